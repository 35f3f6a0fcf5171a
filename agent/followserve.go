package agent

import (
	"context"
	"errors"
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
	t := &telling{catchup: c, stream: s, tail: newTail(c.loop, c.store, "", after)}
	defer t.close()
	return t.run(ctx)
}

// telling is an observer that is told what there is and what comes.
type telling struct {
	*catchup
	*tail
	stream *quic.Stream

	sent    register.Seq // the last Upto
	idle    bool         // Complete was sent, and nothing has come since
	cursors []voterCursor
	rest    register.Seq // what has to be told before cursors may be
	told    []voterCursor
}

func (t *telling) run(ctx context.Context) error {
	for {
		begin := time.Now()
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
		if err := sleep(ctx, followPace-time.Since(begin)); err != nil {
			return err
		}
		if err := t.wait(ctx, followAlive); err != nil && !errors.Is(err, errIdle) {
			return err
		} else if err != nil {
			t.idle = false // to be said again
		}
	}
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
