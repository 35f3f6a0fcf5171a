package agent

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"gus/agent/client"
	"gus/register"
)

// list answers with one page of keys.
func (a *api) list(w http.ResponseWriter, r *http.Request) error {
	if inPast(r) {
		return a.listPast(w, r)
	}
	q, err := listQuestion(r)
	if err != nil {
		return err
	}
	if err := a.desk.admit(0); err != nil {
		return err
	}
	defer a.desk.release(0)
	ans := a.answer(r.Context(), q)
	if ans.via != "" {
		w.Header()[client.HeaderVia] = []string{ans.via}
	}
	if ans.err != nil {
		return ans.err
	}
	p := client.Page{Entries: make([]client.Entry, 0, len(ans.result.Entries)), Next: ans.result.Next}
	for _, e := range ans.result.Entries {
		p.Entries = append(p.Entries, client.Entry{
			Key:     e.Key,
			Version: client.Version(e.Tag.String()),
			Size:    e.Size,
			Time:    time.UnixMilli(e.Tag.Clock()).UTC(),
			Writer:  a.writer(e.Tag.Owner),
			Newer:   e.Aside && q.kind == kindPeekList,
		})
	}
	if q.kind == kindPeekList {
		a.tellAge(w)
	}
	w.Header()[client.HeaderRoundTrips] = []string{strconv.Itoa(ans.result.RoundTrips)}
	return sendJSON(w, p)
}

// listQuestion reads the query of a listing. What it does not know it refuses:
// a limit that was misspelt must not list everything.
func listQuestion(r *http.Request) (question, error) {
	q := question{kind: kindList, limit: register.MaxPage}
	var err error
	if q.timeout, err = timeoutOf(r); err != nil {
		return q, err
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, fmt.Errorf("%w: %w", client.ErrRefused, err)
	}
	for name := range values {
		if err := listParameter(&q, name, values.Get(name)); err != nil {
			return q, err
		}
	}
	return q, nil
}

func listParameter(q *question, name, value string) error {
	switch name {
	case "prefix", "after":
		if value != "" {
			if err := checkKey(value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if name == "prefix" {
			q.key = value
		} else {
			q.after = value
		}
	case "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > register.MaxPage {
			return fmt.Errorf("%w: limit %q: must be 1 to %d", client.ErrRefused, value, register.MaxPage)
		}
		q.limit = n
	case "local":
		switch value {
		case "true":
			q.kind = kindPeekList
		case "false":
		default:
			return fmt.Errorf("%w: local %q: must be true or false", client.ErrRefused, value)
		}
	default:
		return fmt.Errorf("%w: a listing has no %q: it has prefix, after, limit and local", client.ErrRefused, name)
	}
	return nil
}
