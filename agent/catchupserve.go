package agent

import (
	"context"
	"io"

	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

// serve serves a stream of purposeCatchup: one a site at most.
func (c *catchup) serve(ctx context.Context, from quic.Site, s *quic.Stream) {
	if from.Number == 0 {
		return
	}
	ctx, leave := c.enter(ctx, from.Name, purposeCatchup, 1)
	defer leave()
	defer bind(ctx, s)()
	x := &served{catchup: c, stream: s, changes: &changes{stop: func() {}}}
	defer func() { x.stop() }()
	c.note(from, x.run(ctx))
}

// note logs why a stream that this site served ended, where it did so too early.
func (c *catchup) note(from quic.Site, err error) {
	if err != nil {
		c.log.Debug("stopped serving a site", "peer", from.Name, "err", err)
	}
}

// served is one pull, at the end that is asked.
type served struct {
	*catchup
	stream *quic.Stream
	*changes
	keys []string // of the page before
}

func (x *served) run(ctx context.Context) error {
	for first := true; ; first = false {
		var ask pullAsk
		if err := hearFrame(x.stream, maxAsk, &ask); err == io.EOF {
			return nil // it knows enough
		} else if err != nil {
			return err
		}
		if first {
			if err := x.begin(ctx, ask); err != nil {
				return err
			}
		}
		if err := x.sendWrites(ctx, ask.Wanted); err != nil {
			return err
		}
		page := &pullPage{Database: x.store.Database(), Upto: x.upto, End: true}
		if !ask.Last {
			var err error
			if page, err = x.page(ctx); err != nil {
				return err
			}
		}
		page.Last = max(x.store.Last(), page.Upto)
		if err := say(x.stream, &pullAnswer{Page: page}); err != nil || ask.Last {
			return err
		}
	}
}

// begin finds where to go on. A cursor into another database is none, and so is
// one that is further than this site.
func (x *served) begin(ctx context.Context, ask pullAsk) error {
	if ask.Version != streamVersion {
		return nonsense("version %d, this is version %d", ask.Version, streamVersion)
	}
	after, _ := x.store.Resume(snapshot.Cursor{Database: ask.Database, Seq: ask.After})
	// What the disk has and the replica has not heard of yet is not shown, and so not
	// passed over: the answer is complete up to where both are.
	var durable register.Seq
	if err := x.loop.visit(ctx, func(r *register.Replica) { durable = r.Durable() }); err != nil {
		return err
	}
	x.changes = newChanges(x.store, after, durable)
	return x.look()
}

// page reads the next changes, and shows the keys of those that are settled. One
// that is not is changed again when it is, and has a higher number then.
func (x *served) page(ctx context.Context) (*pullPage, error) {
	keys, err := x.changes.page(maxShown, maxShownBytes)
	if err != nil {
		return nil, err
	}
	p := &pullPage{Database: x.store.Database(), Upto: x.upto, End: x.ended()}
	shown, err := x.loop.show(ctx, keys)
	if err != nil {
		return nil, err
	}
	x.keys = x.keys[:0]
	for _, s := range shown {
		if s.Settled() && !s.Tag.IsZero() {
			p.Keys, x.keys = append(p.Keys, s), append(x.keys, s.Key)
		}
	}
	x.mu.Lock()
	x.served += len(p.Keys)
	x.mu.Unlock()
	return p, nil
}

// sendWrites sends what it has of the wanted keys of the page before. Which of
// them are not settled any more it leaves out.
func (x *served) sendWrites(ctx context.Context, wanted []uint16) error {
	last := -1
	for _, i := range wanted {
		if int(i) <= last || int(i) >= len(x.keys) {
			return nonsense("key %d of a page of %d is wanted after %d", i, len(x.keys), last)
		}
		last = int(i)
	}
	var writes []*register.MsgCatchup // what they point to is the replica's, to read
	err := x.loop.each(ctx, len(wanted), func(r *register.Replica, i int) {
		k := int(wanted[i])
		writes = append(writes, r.Catchup(x.keys[k:k+1])...)
	})
	if err != nil {
		return err
	}
	for len(writes) > 0 {
		var a pullAnswer
		for size := 0; len(writes) > 0; writes = writes[1:] {
			if size += writeSize(writes[0]); size > fillAnswer && len(a.Writes) > 0 {
				break
			}
			a.Writes = append(a.Writes, *writes[0])
		}
		if err := say(x.stream, &a); err != nil {
			return err
		}
	}
	return nil
}

// writeSize is how large a write may be when it is encoded, or more.
func writeSize(m *register.MsgCatchup) int {
	return 64 + len(m.Key) + len(m.Write.Value) + 16*len(m.Write.Known)
}
