package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"gus/agent/client"
	"gus/membership"
)

// maxTokenAddrs is how many addresses a token has; ownTokenAddrs of them are
// this site's at most, since a token may be redeemed through any site.
const (
	maxTokenAddrs = 4
	ownTokenAddrs = 2
)

// token makes a join token that lives for life.
func (n *node) token(ctx context.Context, life time.Duration) (string, error) {
	addrs := n.tokenAddrs()
	if len(addrs) == 0 {
		return "", errors.New("make a token: this site does not know where others can reach it: start the agent with --advertise HOST:PORT")
	}
	t, err := n.admission.NewToken(ctx, addrs, life)
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// tokenAddrs are this site's addresses, best first, and those of others.
func (n *node) tokenAddrs() []string {
	var all []string
	add := func(most int, addrs ...string) {
		for _, a := range addrs {
			if a != "" && len(all) < most && !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	add(ownTokenAddrs, n.gossip.Address())
	if n.cfg.Advertise == "" {
		add(ownTokenAddrs, membership.LocalAddresses(n.conn.LocalAddr())...)
	}
	for _, p := range n.gossip.Peers() {
		add(maxTokenAddrs, p.Address)
	}
	return all
}

func (a *api) postToken(w http.ResponseWriter, r *http.Request) error {
	life := membership.TokenLifetime
	if ttl := r.URL.Query().Get("ttl"); ttl != "" {
		d, err := time.ParseDuration(ttl)
		if err != nil || d < time.Second || d > membership.MaxLifetime {
			return fmt.Errorf("%w: ttl %q: must be 1s to %v", client.ErrRefused, ttl, membership.MaxLifetime)
		}
		life = d
	}
	timeout, err := timeoutOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	token, err := a.token(ctx, life)
	if err != nil {
		return err
	}
	return sendJSON(w, client.Token{Token: token, Lifetime: int(life / time.Second)})
}
