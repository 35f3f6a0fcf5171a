package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

// serveFollow serves a stream of purposeFollow: one a site at most.
func (c *catchup) serveFollow(ctx context.Context, from quic.Site, s *quic.Stream) {
	if from.Role != quic.RoleObserver {
		return
	}
	ctx, leave := c.enter(ctx, from.Name, purposeFollow, 1)
	defer leave()
	defer bind(ctx, s)()
	c.note(from, c.tellObserver(ctx, s))
}

func (c *catchup) tellObserver(ctx context.Context, s *quic.Stream) error {
	var ask followAsk
	if err := hearFrame(s, maxAsk, &ask); err != nil {
		return err
	}
	if ask.Version != streamVersion {
		return nonsense("version %d, this is version %d", ask.Version, streamVersion)
	}
	after, _ := c.store.Resume(snapshot.Cursor{Database: ask.Database, Seq: ask.After})
	t := &telling{catchup: c, stream: s, tail: newTail(c.loop, c.store, "", after), begun: time.Now(), phase: rand.Float64()}
	defer t.close()
	return t.run(ctx)
}

// telling is an observer that is told what there is and what comes.
type telling struct {
	*catchup
	*tail
	stream *quic.Stream
	begun  time.Time
	lastOp uint64  // of this site's clients, when last looked
	phase  float64 // 0 to 1, of this one

	sent    register.Seq // the last Upto
	idle    bool         // Complete was sent, and nothing has come since
	cursors []voterCursor
	open    map[string]register.Tag // what was unsettled when they were read
	rest    uint64                  // one above the position in the feed up to which is to be told before them; 0: not known yet
	told    []voterCursor
}

func (t *telling) run(ctx context.Context) error {
	for {
		events, more, err := t.tail.next(ctx)
		if err != nil {
			return err
		}
		if err := t.tell(ctx, events, !more); err != nil {
			return err
		}
		if more {
			if err := t.giveWay(ctx); err != nil {
				return err
			}
			continue
		}
		switch err := t.wait(ctx, followAlive); {
		case errors.Is(err, errIdle):
			t.idle = false // to be said again
		case err != nil:
			return err
		}
		if err := sleep(ctx, t.slot(time.Now())); err != nil {
			return err
		}
	}
}

// giveWay lets the clients of this site go first, where there are any, while all that there is is
// read from the database: an observer that joins can wait.
func (t *telling) giveWay(ctx context.Context) error {
	op := t.catchup.loop.desk.lastOp.Load()
	busy := op != t.lastOp
	t.lastOp = op
	if t.listening || !busy {
		t.most = maxTail
		return nil
	}
	t.most = busyPage
	return sleep(ctx, busyPause)
}

// slot is how long it is to this follower's next turn. Each has its own phase of the common
// pace: a hundred that all wake at one set would hold up the next.
func (t *telling) slot(now time.Time) time.Duration {
	n := time.Duration(t.followers())
	pace := min(max(leastPace, paceFactor*n*n), mostPace)
	since := now.Sub(t.begun) + time.Duration(t.phase*float64(pace))
	return pace - since%pace
}

// followers is how many observers are told.
func (c *catchup) followers() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, all := range c.serving {
		if k.purpose == purposeFollow {
			n += len(all)
		}
	}
	return n
}

// tell sends events, in as many parts as they need.
func (t *telling) tell(ctx context.Context, events []*event, complete bool) error {
	for {
		p := followPart{Database: t.catchup.store.Database()}
		n, size := 0, 0
		for ; n < len(events) && (n == 0 || size < fillAnswer); n++ {
			size += len(events[n].encoded())
			if n > 0 && size > fillAnswer {
				break
			}
			p.Writes = append(p.Writes, events[n].encoded())
		}
		clear(events[:n]) // large ones need not be held until all is told
		if events = events[n:]; len(events) == 0 {
			p.Upto, p.Complete = t.cursor, complete
			var err error
			if p.Cursors, err = t.others(ctx); err != nil {
				return err
			}
		}
		if len(p.Writes) == 0 && p.Upto == t.sent && len(p.Cursors) == 0 && t.idle == p.Complete {
			return nil
		}
		if err := say(t.stream, &p); err != nil {
			return err
		}
		t.sent, t.idle = max(t.sent, p.Upto), p.Complete
		if len(events) == 0 {
			return nil
		}
	}
}

// others returns the cursors of this voter into others' changes, where they are news and
// all that they stand for has been told. What this voter had from there when they were read, it has told once each key
// of which it knew something unsettled then is settled, at that or above, and what
// it knew by then has been told.
//
// Why not what is durable? A write may be known there as settled and here as not: because a crash
// has taken the mark, or because something above it has been accepted here, of which nobody
// knows whether it ever will be settled.
func (t *telling) others(ctx context.Context) ([]voterCursor, error) {
	if now := cursorsOf(t.catchup.store.Cursors()); t.cursors == nil && !slices.Equal(now, t.told) {
		if err := t.noteUnsettled(ctx); err != nil || t.open == nil {
			return nil, err
		}
		t.cursors, t.rest = now, 0
	}
	if t.cursors == nil {
		return nil, nil
	}
	if t.rest == 0 {
		if ok, err := t.nowSettled(ctx); err != nil || !ok {
			return nil, err
		}
	}
	if !t.listening || t.at < t.rest-1 {
		return nil, nil
	}
	t.told, t.cursors, t.open = t.cursors, nil, nil
	return t.told, nil
}

// maxOpen is how many unsettled keys are remembered: where there are more, cursors wait for a
// calmer time.
const maxOpen = 4096

// noteUnsettled notes the keys that are not settled now.
func (t *telling) noteUnsettled(ctx context.Context) error {
	return t.catchup.loop.visit(ctx, func(r *register.Replica) {
		open := map[string]register.Tag{}
		for key, tag := range r.Unsettled() {
			if open[key].Less(tag) {
				open[key] = tag
			}
			if len(open) > maxOpen {
				return
			}
		}
		t.open = open
	})
}

// nowSettled says whether they are, and notes how much of the feed is to be told then.
func (t *telling) nowSettled(ctx context.Context) (bool, error) {
	err := t.catchup.loop.visit(ctx, func(r *register.Replica) {
		for key, tag := range t.open {
			if r.Knows(key, tag) {
				delete(t.open, key)
			}
		}
	})
	if err != nil || len(t.open) > 0 {
		return false, err
	}
	// What is settled by now is in the feed two visits after it is durable, and the replica
	// knows that.
	if err := t.catchup.settle(ctx); err != nil {
		return false, err
	}
	for range 2 {
		if err := t.catchup.loop.visit(ctx, func(*register.Replica) {}); err != nil {
			return false, err
		}
	}
	t.rest = t.catchup.loop.feed.position() + 1
	return true, nil
}

func cursorsOf(all map[string]snapshot.Cursor) []voterCursor {
	list := []voterCursor{}
	for name, c := range all {
		list = append(list, voterCursor{name, c.Database, c.Seq})
	}
	slices.SortFunc(list, func(a, b voterCursor) int { return strings.Compare(a.Voter, b.Voter) })
	return list
}
