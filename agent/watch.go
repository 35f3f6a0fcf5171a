package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gus/agent/client"
	"gus/register"
	"gus/snapshot"
)

const (
	watchPath = "/v1/watch"
	// maxWatches is how many may be under way.
	maxWatches = 1024
	// watchAlive is after how long without an event there is a line to show that the
	// watch is alive, and its cursor.
	watchAlive = 15 * time.Second
	// watchOld is how often there is a look whether the site hears of all changes again.
	watchOld = 200 * time.Millisecond
	// maxState is how many keys of the present state are read at once.
	maxState = 64
)

// watches serves watches: lines of JSON, an event each, until the client goes away.
// Its lines wait for the client, and the client's slowness for nobody: see tail.
type watches struct {
	node  *node
	count atomic.Int64
}

// watching is one watch.
type watching struct {
	*watches
	*tail
	enc    *json.Encoder
	flush  func() error
	values bool
	old    bool // the client was told that the site does not hear of all changes
	state  bool // is still to be told: no cursor stands for a part of it
}

func (s *watches) serve(w http.ResponseWriter, r *http.Request) error {
	x := &watching{watches: s, enc: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
	x.enc.SetEscapeHTML(false)
	prefix, after, err := x.parameters(r)
	if err != nil {
		return err
	}
	defer s.count.Add(-1)
	if n := s.count.Add(1); n > maxWatches {
		return fmt.Errorf("%w: %d watches are under way, which is the limit: end some", client.ErrNotSent, maxWatches)
	}
	if after == nil {
		var durable register.Seq
		if err := s.node.loop.visit(r.Context(), func(r *register.Replica) { durable = r.Durable() }); err != nil {
			return err
		}
		after = &durable
	}
	x.tail = newTail(s.node.loop, s.node.store, prefix, *after)
	defer x.close()
	h := w.Header()
	h["Content-Type"] = []string{"application/x-ndjson"}
	h["Cache-Control"] = []string{"no-store"}
	w.WriteHeader(http.StatusOK)
	if err := x.flush(); err != nil { // the client knows that there is an agent
		return nil // nobody is left to tell
	}
	if err := x.run(r.Context()); r.Context().Err() == nil { // else nobody is left to tell
		_, code := client.Code(err)
		_ = x.enc.Encode(client.Error{Code: code, Message: err.Error()})
	}
	return nil
}

// parameters reads the query. What it does not know it refuses.
func (x *watching) parameters(r *http.Request) (prefix string, after *register.Seq, err error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", client.ErrRefused, err)
	}
	for name := range values {
		value := values.Get(name)
		switch name {
		case "prefix":
			if prefix = value; value != "" {
				err = checkKey(value)
			}
		case "after":
			after, err = x.cursorOf(value)
		case "state":
			x.state, err = flagOf(name, value)
		case "values":
			x.values, err = flagOf(name, value)
		default:
			err = fmt.Errorf("%w: a watch has no %q: it has prefix, after, state and values", client.ErrRefused, name)
		}
		if err != nil {
			return "", nil, err
		}
	}
	if x.state && after != nil {
		return "", nil, fmt.Errorf("%w: a watch begins with the state, or after a cursor, not both", client.ErrRefused)
	}
	return prefix, after, nil
}

func flagOf(name, value string) (bool, error) {
	switch value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%w: %s %q: must be true or false", client.ErrRefused, name, value)
}

// cursorText is a cursor as a client is given it: the database and the save.
func (s *watches) cursorText(seq register.Seq) string {
	return fmt.Sprintf("%016x-%d", s.node.store.Database(), seq)
}

// cursorOf reads it again. One of another site's database, or of one that was lost, says
// nothing here.
func (s *watches) cursorOf(text string) (*register.Seq, error) {
	database, number, ok := strings.Cut(text, "-")
	d, err := strconv.ParseUint(database, 16, 64)
	n, nerr := strconv.ParseUint(number, 10, 63)
	if !ok || err != nil || nerr != nil {
		return nil, fmt.Errorf("%w: %q is not a cursor: it is what an event of a watch has as one", client.ErrRefused, text)
	}
	if _, ok := s.node.store.Resume(snapshot.Cursor{Database: d, Seq: register.Seq(n)}); !ok {
		return nil, fmt.Errorf("%w: the cursor %s is not of this site's database, or too old, or the database was put back since: watch with the state first", client.ErrRelist, text)
	}
	return (*register.Seq)(&n), nil
}

// run tells what there is, and never ends but with an error.
func (x *watching) run(ctx context.Context) error {
	if x.state {
		if err := x.sendState(ctx); err != nil {
			return err
		}
	}
	if err := x.flush(); err != nil {
		return err
	}
	synced, idle := false, false
	for {
		events, more, err := x.next(ctx)
		if err != nil {
			return err
		}
		if err := x.send(events); err != nil {
			return err
		}
		if more {
			continue
		}
		switch {
		case !synced:
			synced, err = true, x.line(client.Event{Type: client.EventSynced})
		case idle && len(events) == 0: // not only keys below the prefix move the cursor on
			err = x.line(client.Event{Type: client.EventAlive})
		}
		if err == nil {
			err = x.flush()
		}
		if err != nil {
			return err
		}
		if idle, err = x.idle(ctx); err != nil {
			return err
		}
	}
}

// idle waits for what comes, and says whether it is time for a line without that: after a
// while, and where the site begins to hear of all changes again.
func (x *watching) idle(ctx context.Context) (bool, error) {
	for begin := time.Now(); ; {
		d := watchAlive - time.Since(begin)
		if x.old {
			d = min(d, watchOld)
		}
		switch err := x.wait(ctx, d); {
		case !errors.Is(err, errIdle):
			return false, err
		case !x.old || x.node.age() == 0 || time.Since(begin) >= watchAlive:
			return true, nil
		}
	}
}

// sendState sends what there is now. Each page waits until it is durable here, so that no
// start of this site ever shows less.
func (x *watching) sendState(ctx context.Context) error {
	for after, more := "", true; more; {
		var events []*event
		var covers register.Seq
		err := x.loop.visit(ctx, func(r *register.Replica) {
			var entries []register.Entry
			entries, after = r.PeekList(x.prefix, after, maxState)
			for _, e := range entries {
				l := r.Peek(e.Key)
				events = append(events, &event{News: register.News{Key: e.Key, Write: register.Write{Tag: l.Tag, Value: l.Value}}})
			}
			covers, more = r.Covers(), after != ""
		})
		if err == nil {
			err = x.node.catchup.known(ctx, covers)
		}
		if err == nil {
			err = x.send(events)
		}
		if err != nil {
			return err
		}
	}
	x.state = false
	return nil
}

// send sends a batch of events.
func (x *watching) send(events []*event) error {
	for i, e := range events {
		out := client.Event{
			Type: client.EventSet, Key: e.Key, Version: client.Version(e.Tag.String()), Size: len(e.Value),
			Time: time.UnixMilli(e.Tag.Clock()).UTC(), Writer: x.node.writer(e.Tag.Owner), More: i < len(events)-1,
		}
		if e.Deleted {
			out.Type = client.EventDelete
		} else if x.values {
			out.Value = e.Value
		}
		if err := x.line(out); err != nil {
			return err
		}
	}
	return nil
}

// line sends one line. The cursor is that after the whole batch.
func (x *watching) line(e client.Event) error {
	if !e.More && !x.state {
		e.Cursor = x.cursorText(x.cursor)
	}
	if e.Type == client.EventSynced || e.Type == client.EventAlive {
		age := x.node.age()
		x.old, e.Age = age > 0, client.Duration(age)
	}
	return x.enc.Encode(e)
}
