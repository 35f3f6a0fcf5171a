package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Watching says what to watch. The zero value watches all keys from now on,
// without their values.
type Watching struct {
	Prefix string // of the keys
	// After is the Cursor of an event, or of a line without one: what came after
	// that follows. Empty: what comes after now.
	After string
	// State begins with the keys that are there now, each as a set, and then goes on
	// from there. After must be empty.
	State bool
	// Values has each set carry its value.
	Values bool
	// Timeout is how long the agent may take to begin. 0: five seconds.
	Timeout time.Duration
}

// EventType says what a line of a watch is.
type EventType string

// The types of events.
const (
	EventSet    EventType = "set"
	EventDelete EventType = "delete"
	// EventSynced follows once all is told that there was when the watch began.
	EventSynced EventType = "synced"
	// EventAlive comes where nothing else has for a while, and renews the cursor.
	EventAlive EventType = "keepalive"
)

// Event is a line of a watch. Of each key versions only grow, and the last one
// always comes; those in between may be left out. After a watch is resumed the last version
// may come once more.
type Event struct {
	Type    EventType `json:"event"`
	Key     string    `json:"key,omitempty"`
	Version Version   `json:"version,omitempty"`
	Size    int       `json:"size,omitempty"`   // of the value, in bytes
	Value   []byte    `json:"value,omitempty"`  // of a set, where values were asked for; empty and nil are the same
	Time    time.Time `json:"time,omitzero"`    // when it was written, by the clock of the site that wrote it; UTC
	Writer  string    `json:"writer,omitempty"` // the site that wrote it
	// Cursor is from where to resume after this event. It is for this site alone, and
	// good across restarts of the agent.
	Cursor string `json:"cursor,omitempty"`
	// Age is how old what the site shows is, at least, where it does not hear of all changes; 0: it
	// does, or this is no EventSynced or EventAlive.
	Age Duration `json:"age_ms,omitzero"`
	// More says that another event follows at once: what comes up to and with the first
	// one without it is a batch.
	More bool `json:"more,omitempty"`
}

// ErrRelist: the cursor of a watch is not one of this site's database: list the keys
// again, or watch with State.
var ErrRelist = errors.New("re-list")

// Watch is a watch under way. One goroutine may call Next; Close may be called by
// any, at any time.
type Watch struct {
	conn *conn
	resp *http.Response
	stop func() bool // of what closes the connection when ctx ends
	ctx  context.Context
	in   *json.Decoder
}

// silence is after how long without a line the agent is taken for gone: it sends
// one each 15 s.
const silence = time.Minute

// Watch begins to watch. It ends with ctx, with Close, or with an error of Next:
// ErrNotRunning or ErrStopping where the agent went away, after which a new
// one can be had After the last Cursor; ErrRelist where that cursor is of no use here. An agent that
// does not answer before w.Timeout or the deadline of ctx is ErrNotSent.
func (c *Client) Watch(ctx context.Context, w Watching) (*Watch, error) {
	q := url.Values{"prefix": {w.Prefix}}
	if w.After != "" {
		q.Set("after", w.After)
	}
	if w.State {
		q.Set("state", "true")
	}
	if w.Values {
		q.Set("values", "true")
	}
	cn, err := c.pool.dial(ctx)
	if err != nil {
		return nil, err
	}
	x := &Watch{conn: cn, ctx: ctx, stop: context.AfterFunc(ctx, func() { cn.Close() })}
	timeout := cmp.Or(w.Timeout, defaultTimeout)
	if err := x.begin(request{method: http.MethodGet, target: "/v1/watch?" + q.Encode()}, timeout); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// begin sends r and reads the head of the answer, within timeout. Next sets deadlines of its own.
func (x *Watch) begin(r request, timeout time.Duration) error {
	x.conn.SetDeadline(time.Now().Add(timeout))
	if _, err := x.conn.send(r, timeout); err != nil {
		return unanswered(x.ctx, x.conn.socket, err, false)
	}
	var err error
	if x.resp, err = http.ReadResponse(x.conn.in, nil); err != nil {
		return unanswered(x.ctx, x.conn.socket, err, false)
	}
	if x.resp.StatusCode >= 300 {
		body, err := readBody(x.resp)
		if err != nil {
			return unanswered(x.ctx, x.conn.socket, err, false)
		}
		_, err = (&response{status: x.resp.StatusCode, header: x.resp.Header, body: body}).result()
		return err
	}
	x.in = json.NewDecoder(bufio.NewReader(x.resp.Body))
	return nil
}

// Next returns the next event, and waits for it.
func (x *Watch) Next() (Event, error) {
	x.conn.SetDeadline(time.Now().Add(silence))
	var line struct {
		Event
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	err := x.in.Decode(&line)
	switch {
	case err == nil && line.Code != "":
		return Event{}, &Error{Code: line.Code, Message: line.Message}
	case err == nil:
		return line.Event, nil
	case x.ctx.Err() != nil:
		return Event{}, x.ctx.Err()
	case errors.Is(err, io.EOF):
		return Event{}, fmt.Errorf("%w: it ended the watch", ErrStopping)
	}
	return Event{}, fmt.Errorf("%w: the watch broke: %v", ErrNotRunning, err)
}

// Close ends the watch.
func (x *Watch) Close() error {
	x.stop()
	return x.conn.Close()
}
