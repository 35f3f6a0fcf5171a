package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"gus/register"
	"gus/snapshot"
)

const (
	// maxTail is how many events a tail returns at once, with about maxTailBytes at most.
	maxTail      = 256
	maxTailBytes = 1 << 20
	// scanPause is how long a tail waits before it reads the database again, where the feed
	// does not hold what followed.
	scanPause = 100 * time.Millisecond
)

// tail follows the settled writes of keys with a prefix: first those that the database
// has after a cursor, and then the feed, as long as it keeps up with that. Where it does
// not, it goes back to the database, so that who is slow costs nothing but its own
// goroutine. One goroutine uses it; close must follow.
//
// Of each key versions only grow, one may come twice, and the last one always comes. Each
// part of that is the core's to hold (Replica.Settled and Told) and the simulator's to check.
type tail struct {
	loop   *loop
	store  *snapshot.Store
	prefix string
	most   int          // keys that are read of the database at once
	cursor register.Seq // all that is settled and in a save up to it has been returned

	pages     *changes     // of the database, while they are read
	until     register.Seq // the cursor stays where it is before that save
	listening bool         // to the feed
	at        uint64       // the position in it
}

func newTail(l *loop, store *snapshot.Store, prefix string, after register.Seq) *tail {
	return &tail{loop: l, store: store, prefix: prefix, most: maxTail, cursor: after}
}

func (t *tail) close() {
	if t.pages != nil {
		t.pages.stop()
		t.pages = nil
	}
}

// next returns what is there, nothing where there is nothing new. more says whether there
// may be more at once.
func (t *tail) next(ctx context.Context) (events []*event, more bool, err error) {
	if t.listening {
		var upto register.Seq
		var ok bool
		events, t.at, upto, ok = t.loop.feed.read(t.at, maxTail, maxTailBytes)
		if ok {
			t.reach(upto)
			return t.below(events), t.at < t.loop.feed.position(), nil
		}
		t.listening = false
	}
	events, err = t.scan(ctx)
	return events, true, err
}

// below leaves out events of keys that do not have the prefix.
func (t *tail) below(events []*event) []*event {
	if t.prefix == "" {
		return events
	}
	kept := events[:0]
	for _, e := range events {
		if strings.HasPrefix(e.Key, t.prefix) {
			kept = append(kept, e)
		}
	}
	return kept
}

// scan returns what a page of the database's changes has.
func (t *tail) scan(ctx context.Context) (events []*event, err error) {
	if t.pages == nil {
		if t.pages, err = t.begin(ctx); err != nil {
			return nil, err
		}
	}
	keys, err := t.pages.page(t.most, maxShownBytes)
	if err != nil {
		return nil, err
	}
	wanted := keys[:0]
	for _, k := range keys {
		if strings.HasPrefix(k, t.prefix) {
			wanted = append(wanted, k)
		}
	}
	err = t.loop.each(ctx, len(wanted), func(r *register.Replica, i int) {
		if n, ok := r.Told(wanted[i]); ok {
			events = append(events, &event{News: n})
		} else {
			t.until = r.Covers()
		}
	})
	if err != nil {
		return nil, err
	}
	t.reach(t.pages.upto)
	if t.pages.ended() {
		return events, t.listen(ctx)
	}
	return events, nil
}

// reach moves the cursor on: all that is in the saves up to that one has been returned. Of a key of
// which something was about to be told when the database was read, those may hold an older
// version that is settled: it is what a crash leaves, if it comes before that is saved.
func (t *tail) reach(upto register.Seq) {
	if upto >= t.until {
		t.cursor = max(t.cursor, upto)
	}
}

func (t *tail) begin(ctx context.Context) (*changes, error) {
	t.until = 0
	var durable register.Seq
	if err := t.loop.visit(ctx, func(r *register.Replica) { durable = r.Durable() }); err != nil {
		return nil, err
	}
	c := newChanges(t.store, t.cursor, durable, true)
	if err := c.look(); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// listen goes over to the feed. What the replica has shown so far is in it by then: a
// turn publishes after its visit, and another visit is a later turn's.
func (t *tail) listen(ctx context.Context) error {
	end := t.pages.end
	t.close()
	if err := t.loop.visit(ctx, func(*register.Replica) {}); err != nil {
		return err
	}
	t.at, t.listening = t.loop.feed.from(end)
	if !t.listening { // it has grown by more than it holds: what it does not hold is saved soon
		return sleep(ctx, scanPause)
	}
	return nil
}

// errIdle: nothing has come for a while.
var errIdle = errors.New("nothing new")

// wait waits until there may be something new, or returns errIdle after d.
func (t *tail) wait(ctx context.Context, d time.Duration) error {
	idle := time.NewTimer(d)
	defer idle.Stop()
	for {
		more := t.loop.feed.more.next()
		if !t.listening || t.at < t.loop.feed.position() {
			return nil
		}
		select {
		case <-more:
		case <-idle.C:
			return errIdle
		case <-t.loop.desk.stopped:
			return errStopping()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
