package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"gus/agent/client"
	"gus/register"
	"gus/snapshot"
)

const (
	historyPath = "/v1/history/"
	epochsPath  = "/v1/epochs"
)

// pastQuery is what a request about the past may say.
type pastQuery struct {
	values url.Values
	err    error
}

// pastQueryOf reads a query. What it does not know it refuses.
func pastQueryOf(r *http.Request, known ...string) *pastQuery {
	q := &pastQuery{}
	if q.values, q.err = url.ParseQuery(r.URL.RawQuery); q.err != nil {
		q.err = fmt.Errorf("%w: %w", client.ErrRefused, q.err)
	}
	is := map[string]bool{}
	for _, name := range known {
		is[name] = true
	}
	for name := range q.values {
		if !is[name] {
			q.err = fmt.Errorf("%w: there is no %q here: there are %v", client.ErrRefused, name, known)
		}
	}
	return q
}

// number reads the number called name; 0: it is not there.
func (q *pastQuery) number(name string, most uint64) uint64 {
	text := q.values.Get(name)
	if text == "" || q.err != nil {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n < 1 || n > most {
		q.err = fmt.Errorf("%w: %s %q: must be 1 to %d", client.ErrRefused, name, text, most)
	}
	return n
}

// limit is how many entries a page has.
func (q *pastQuery) limit() int {
	if n := q.number("limit", register.MaxPage); n > 0 {
		return int(n)
	}
	return register.MaxPage
}

const anyEpoch = 1<<63 - 1

// ofPast says in the client's words why the past could not be read.
func ofPast(err error) error {
	if errors.Is(err, snapshot.ErrNoEpoch) {
		return fmt.Errorf("%w%s", client.ErrNoEpoch, strings.TrimPrefix(err.Error(), snapshot.ErrNoEpoch.Error()))
	}
	return err
}

// inPast says whether a request about keys means the past.
func inPast(r *http.Request) bool {
	if r.URL.RawQuery == "" {
		return false
	}
	q := r.URL.Query()
	return q.Has("epoch") || q.Has("version")
}

// getPast answers with a key as it was.
func (a *api) getPast(w http.ResponseWriter, r *http.Request, key string, timeout time.Duration) error {
	q := pastQueryOf(r, "epoch", "version")
	epoch := q.number("epoch", anyEpoch)
	if q.err == nil && (epoch != 0) == q.values.Has("version") {
		q.err = fmt.Errorf("%w: it is epoch or version, and not both", client.ErrRefused)
	}
	if q.err != nil {
		return q.err
	}
	if err := a.desk.admit(0); err != nil {
		return err
	}
	defer a.desk.release(0)
	if epoch == 0 {
		return a.getVersion(w, r, key, q.values.Get("version"), timeout)
	}
	v, ok, err := a.past.At(epoch, key)
	if err != nil {
		return ofPast(err)
	}
	if !ok || v.Deleted {
		err = fmt.Errorf("%w in epoch %d: %s", client.ErrNotFound, epoch, key)
	}
	return a.sendPast(w, v, err)
}

// sendPast sends a value that was read from the disk, or err, which says that the version is none; if memory has
// room for it until it is sent. How large it is nobody knew before; the store reads few at once.
func (a *api) sendPast(w http.ResponseWriter, v snapshot.Version, err error) error {
	size := int64(len(v.Value))
	if err := a.desk.admit(size); err != nil {
		return err
	}
	defer a.desk.release(size)
	r := client.Reply{Status: http.StatusOK, Version: version(v.Tag), Body: v.Value}
	if err != nil {
		r.Fail(err)
	}
	writeReply(w, question{kind: kindGet}, answer{}, r)
	return nil
}

// getVersion answers with one version of a key, be it the present one or one that is kept.
func (a *api) getVersion(w http.ResponseWriter, r *http.Request, key, text string, timeout time.Duration) error {
	tag, err := register.ParseTag(text)
	if err != nil {
		return fmt.Errorf("%w: %w", client.ErrRefused, err)
	}
	now := a.desk.ask(r.Context(), question{kind: kindPeek, key: key, timeout: timeout})
	if now.err != nil {
		return now.err
	}
	v := snapshot.Version{Tag: now.local.Tag, Deleted: !now.local.Found, Value: now.local.Value}
	if v.Tag != tag {
		var ok bool
		if v, ok, err = a.past.Find(key, tag); err != nil {
			return ofPast(err)
		} else if !ok {
			return fmt.Errorf("%w: version %s of %s is not kept here", client.ErrNotFound, tag, key)
		}
	}
	if v.Deleted {
		err = fmt.Errorf("%w: version %s is the deletion of %s", client.ErrNotFound, tag, key)
	}
	return a.sendPast(w, v, err)
}

// listPast answers with a page of keys as they were.
func (a *api) listPast(w http.ResponseWriter, r *http.Request) error {
	q := pastQueryOf(r, "prefix", "after", "limit", "epoch")
	epoch, limit := q.number("epoch", anyEpoch), q.limit()
	prefix, after := q.values.Get("prefix"), q.values.Get("after")
	for _, k := range []string{prefix, after} {
		if k != "" && q.err == nil {
			q.err = checkKey(k)
		}
	}
	if epoch == 0 && q.err == nil {
		q.err = fmt.Errorf("%w: epoch is empty", client.ErrRefused)
	}
	if q.err != nil {
		return q.err
	}
	if err := a.desk.admit(0); err != nil {
		return err
	}
	defer a.desk.release(0)
	list, next, err := a.past.PageAt(epoch, prefix, after, limit)
	if err != nil {
		return ofPast(err)
	}
	p := client.Page{Entries: make([]client.Entry, 0, len(list)), Next: next}
	for _, v := range list {
		p.Entries = append(p.Entries, client.Entry{
			Key: v.Key, Version: client.Version(v.Tag.String()), Size: v.Size,
			Time: time.UnixMilli(v.Tag.Clock()).UTC(), Writer: a.writer(v.Tag.Owner),
		})
	}
	return sendJSON(w, p)
}

// history answers with the versions of a key. What is settled since the last epoch comes first.
func (a *api) history(w http.ResponseWriter, r *http.Request, key string) error {
	q := pastQueryOf(r, "before", "limit")
	before, limit := q.number("before", anyEpoch), q.limit()
	timeout, err := timeoutOf(r)
	if err = errors.Join(q.err, err, checkKey(key)); err != nil {
		return err
	}
	if err := a.desk.admit(0); err != nil {
		return err
	}
	defer a.desk.release(0)
	now := a.desk.ask(r.Context(), question{kind: kindPeek, key: key, timeout: timeout})
	if now.err != nil {
		return now.err
	}
	list, err := a.past.History(key, before, limit)
	if err != nil {
		return ofPast(err)
	}
	h := client.History{Versions: []client.Past{}}
	if len(list) == limit {
		h.Next = list[limit-1].Epoch
	}
	t := now.local.Tag
	if before == 0 && !t.IsZero() && (len(list) == 0 || list[0].Tag.Less(t)) {
		list = append([]snapshot.Version{{Tag: t, Deleted: !now.local.Found, Size: len(now.local.Value)}}, list...)
	}
	for _, v := range list {
		h.Versions = append(h.Versions, client.Past{
			Version: client.Version(v.Tag.String()), Epoch: v.Epoch, Deleted: v.Deleted, Size: v.Size,
			Time: time.UnixMilli(v.Tag.Clock()).UTC(), Writer: a.writer(v.Tag.Owner),
		})
	}
	return sendJSON(w, h)
}

// epochs answers with the epochs that can be read, or the one at a time.
func (a *api) epochs(w http.ResponseWriter, r *http.Request) error {
	q := pastQueryOf(r, "before", "limit", "at")
	before, limit := q.number("before", anyEpoch), q.limit()
	if q.err != nil {
		return q.err
	}
	if err := a.desk.admit(0); err != nil {
		return err
	}
	defer a.desk.release(0)
	var list []snapshot.Moment
	var err error
	if at := q.values.Get("at"); at != "" {
		t, perr := time.Parse(time.RFC3339Nano, at)
		if perr != nil {
			return fmt.Errorf("%w: at %q: must be a time such as 2026-11-30T12:00:00Z", client.ErrRefused, at)
		}
		list = make([]snapshot.Moment, 1)
		list[0], err = a.past.MomentAt(t)
	} else {
		list, err = a.past.Timeline(before, limit)
	}
	if err != nil {
		return ofPast(err)
	}
	p := client.Epochs{Epochs: []client.PastEpoch{}}
	for _, m := range list {
		p.Epochs = append(p.Epochs, client.PastEpoch{Number: m.Number, Time: m.Time.UTC(), Save: uint64(m.Seq), Keys: m.Keys, Bytes: m.Bytes})
	}
	if len(list) == limit {
		p.Next = list[limit-1].Number
	}
	return sendJSON(w, p)
}

// retention is how much of the past is kept: at most a tenth of the disk, unless
// somebody said otherwise.
func (n *node) retention() snapshot.Retention {
	r := n.cfg.Retain
	if r.Bytes <= 0 {
		r.Bytes = diskSize(n.cfg.Data) / 10
	}
	return r
}
