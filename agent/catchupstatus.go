package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"gus/agent/client"
)

// status adds to s how far this site is with each voter, and on what they disagree.
func (c *catchup) status(s *client.Status) {
	for _, p := range c.peers {
		p.mu.Lock()
		known := p.known
		for i := range s.Members {
			if m := &s.Members[i]; m.Name == p.name {
				m.Catchup = p.progress()
			}
		}
		p.mu.Unlock()
		s.Disagreements.Count += len(known)
		s.Disagreements.Keys = append(s.Disagreements.Keys, known...)
	}
	d := &s.Disagreements
	slices.SortStableFunc(d.Keys, func(a, b client.Disagreement) int { return cmp.Compare(a.Key, b.Key) })
	d.Keys = d.Keys[:min(len(d.Keys), maxToldKeys)]
}

// progress is what status says of p. The caller holds mu.
func (p *follower) progress() *client.Catchup {
	k := &client.Catchup{Pulling: p.pulling}
	if p.pulling {
		k.Taken = p.taken
	}
	if p.heard > p.cursor.Seq {
		k.Behind, k.Since = uint64(p.heard-p.cursor.Seq), p.behind
	}
	return k
}

// disagreementWarning says on what sites disagree, and what to do about it.
func disagreementWarning(d client.Disagreements) client.Warning {
	var keys []string
	var same bool
	for _, k := range d.Keys {
		same = same || k.Version == k.PeerVersion
		keys = append(keys, fmt.Sprintf("%s (%s here, %s at %s)", k.Key, orNone(k.Version), orNone(k.PeerVersion), k.Peer))
	}
	w := client.Warning{
		Code: "disagreement",
		Text: "sites disagree on what is settled: " + strings.Join(keys, ", "),
		Cure: "these keys are being read, which brings the later version to both sites; where that does not end it, set the key again",
	}
	if more := d.Count - len(d.Keys); more > 0 {
		w.Text += fmt.Sprintf(" and %d more", more)
	}
	if same {
		w.Cure = "set again what has one version at both sites: its contents differ; what has two is being read, which brings the later one to both"
	}
	return w
}

func orNone(v client.Version) string { return cmp.Or(string(v), "none") }

// getVerify answers with a comparison of this site and all others.
func (a *api) getVerify(w http.ResponseWriter, r *http.Request) error {
	timeout, err := timeoutOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	v, err := a.verify(ctx)
	if err != nil {
		return err
	}
	return sendJSON(w, v)
}
