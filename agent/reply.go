package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"gus/agent/client"
	"gus/register"
)

// reply says what came of q, which is of kind get, set or peek: the same to whom asks by
// HTTP and to whom asks through a pipe.
func (a *api) reply(q question, ans answer) client.Reply {
	r := client.Reply{Status: http.StatusOK, Via: ans.via}
	switch {
	case ans.err != nil:
		r.Fail(ans.err)
	case q.kind == kindPeek:
		a.replyLocal(&r, q.key, ans.local)
	default:
		r.Version, r.RoundTrips = version(ans.result.Tag), ans.result.RoundTrips
		if q.kind != kindGet {
			break
		}
		if r.Body = ans.result.Value; !ans.result.Found {
			r.Fail(fmt.Errorf("%w: %s", client.ErrNotFound, q.key))
		}
	}
	return r
}

func (a *api) replyLocal(r *client.Reply, key string, l register.Local) {
	r.Version, r.Body = version(l.Tag), l.Value
	r.Newer, r.Pending, r.Age = l.Newer, l.Pending, max(a.age(), 0)
	if !l.Found {
		r.Fail(fmt.Errorf("%w known at this site: %s", client.ErrNotFound, key))
	}
}

// version names t for clients: empty where there is none.
func version(t register.Tag) client.Version {
	if t.IsZero() {
		return ""
	}
	return client.Version(t.String())
}

// writeReply answers HTTP with r, which came of q, or of nothing where it failed. It sets the header fields by their
// canonical names, which saves making them canonical.
func writeReply(w http.ResponseWriter, q question, ans answer, r client.Reply) {
	h := w.Header()
	if r.Via != "" {
		h[client.HeaderVia] = []string{r.Via}
	}
	if r.Version != "" {
		h[client.HeaderVersion] = []string{string(r.Version)}
	}
	if ans.err == nil {
		h[client.HeaderRoundTrips] = []string{strconv.Itoa(r.RoundTrips)}
		if q.kind == kindPeek {
			h[client.HeaderNewer] = []string{strconv.FormatBool(r.Newer)}
			h[client.HeaderPending] = []string{strconv.FormatBool(r.Pending)}
		}
	}
	if r.Age > 0 {
		h[client.HeaderAge] = []string{strconv.FormatInt(r.Age.Milliseconds(), 10)}
	}
	switch {
	case r.Status >= 300:
		h["Content-Type"] = []string{"application/json"}
		w.WriteHeader(r.Status)
	case q.kind == kindSet:
		h["Content-Length"] = []string{"0"}
	default:
		h["Content-Type"] = []string{"application/octet-stream"}
		h["Content-Length"] = []string{strconv.Itoa(len(r.Body))}
	}
	_, _ = w.Write(r.Body) // a client that is gone needs no answer
}

// sendJSON answers HTTP with v.
func sendJSON(w http.ResponseWriter, v any) error {
	w.Header()["Content-Type"] = []string{"application/json"}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a client that is gone needs no answer
	return nil
}

// fail answers HTTP with an error.
func fail(w http.ResponseWriter, err error) {
	var r client.Reply
	r.Fail(err)
	writeReply(w, question{}, answer{err: err}, r)
}

// tellAge says how old what this site holds may be, where it does not hear all.
func (a *api) tellAge(w http.ResponseWriter) {
	if d := a.age(); d > 0 {
		w.Header()[client.HeaderAge] = []string{strconv.FormatInt(d.Milliseconds(), 10)}
	}
}
