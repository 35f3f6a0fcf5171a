package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
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
	var after register.Seq
	if ask.Database == c.store.Database() && ask.After <= c.store.Last() {
		after = ask.After
	}
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
	phase  float64 // 0 to 1, of this one

	sent    register.Seq // the last Upto
	idle    bool         // Complete was sent, and nothing has come since
	cursors []voterCursor
	rest    register.Seq // what has to be told before cursors may be
	told    []voterCursor
}

func (t *telling) run(ctx context.Context) error {
	for {
		events, more, err := t.tail.next(ctx)
		if err != nil {
			return err
		}
		if err := t.tell(events, !more); err != nil {
			return err
		}
		if more {
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

// slot is how long it is to this follower's next turn. Each has its own phase of the common
// pace: a hundred that all wake at one set would hold up the next.
func (t *telling) slot(now time.Time) time.Duration {
	pace := max(leastPace, pacePerFollower*time.Duration(t.followers()))
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
func (t *telling) tell(events []*event, complete bool) error {
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
		if events = events[n:]; len(events) == 0 {
			p.Upto, p.Complete, p.Cursors = t.cursor, complete, t.others()
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
// all that they stand for has been told: what this voter had saved when it
// read them.
func (t *telling) others() []voterCursor {
	if t.cursors == nil {
		t.cursors = cursorsOf(t.catchup.store.Cursors())
		t.rest = t.catchup.store.Last()
	}
	if t.cursor < t.rest {
		return nil
	}
	now := t.cursors
	t.cursors = nil
	if slices.Equal(now, t.told) {
		return nil
	}
	t.told = now
	return now
}

func cursorsOf(all map[string]snapshot.Cursor) []voterCursor {
	list := []voterCursor{}
	for name, c := range all {
		list = append(list, voterCursor{name, c.Database, c.Seq})
	}
	slices.SortFunc(list, func(a, b voterCursor) int {
		if a.Voter < b.Voter {
			return -1
		}
		return 1
	})
	return list
}
