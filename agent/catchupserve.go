package agent

import (
	"context"
	"errors"
	"io"
	"time"

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
	keys []string     // of the page before
	upto register.Seq // as said in it
	held bool         // it stays so: a key was left out that the disk may be older of
}

// saveWait is how long a page waits for the disk, so that what it leaves out is changed again
// on disk.
const saveWait = 2 * time.Second

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
		page := &pullPage{Database: x.store.Database(), Upto: x.changes.upto, End: true}
		if !ask.Last {
			var err error
			if page, err = x.page(ctx); err != nil {
				return err
			}
		}
		page.Upto = x.reach(page.Upto)
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
	x.changes, x.upto = newChanges(x.store, after, durable, false), after
	return x.look()
}

// reach returns up to where the pages so far are complete.
func (x *served) reach(upto register.Seq) register.Seq {
	if !x.held {
		x.upto = upto
	}
	return x.upto
}

// page reads the next changes, and shows the keys of those that are settled. One
// that is not is changed again when it is, and has a higher number then. Why wait for that? What is
// on disk of it may be settled, and is what a crash leaves: nobody would come back for it.
func (x *served) page(ctx context.Context) (*pullPage, error) {
	keys, err := x.changes.page(maxShown, maxShownBytes)
	if err != nil {
		return nil, err
	}
	p := &pullPage{Database: x.store.Database(), Upto: x.changes.upto, End: x.ended()}
	x.keys = x.keys[:0]
	var covers register.Seq
	err = x.loop.each(ctx, len(keys), func(r *register.Replica, i int) {
		switch s := r.Show(keys[i : i+1])[0]; {
		case !s.Settled():
			covers = r.Covers()
		case !s.Tag.IsZero():
			p.Keys, x.keys = append(p.Keys, s), append(x.keys, s.Key)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := x.awaitSave(ctx, covers); err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.served += len(p.Keys)
	x.mu.Unlock()
	return p, nil
}

// awaitSave waits until a save is durable, or holds the cursor where it is: the disk is full, or slow.
func (x *served) awaitSave(ctx context.Context, covers register.Seq) error {
	if covers == 0 {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, saveWait)
	defer cancel()
	err := x.known(soon, covers)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		x.held, err = true, nil
	}
	return err
}

var errLeftOut = errors.New("a write that was shown is not settled any more, and what has come instead cannot be saved")

// sendWrites sends what it has of the wanted keys of the page before. Which of
// them are not settled any more it leaves out, and waits as page does.
func (x *served) sendWrites(ctx context.Context, wanted []uint16) error {
	last := -1
	for _, i := range wanted {
		if int(i) <= last || int(i) >= len(x.keys) {
			return nonsense("key %d of a page of %d is wanted after %d", i, len(x.keys), last)
		}
		last = int(i)
	}
	var writes []*register.MsgCatchup // what they point to is the replica's, to read
	var covers register.Seq
	err := x.loop.each(ctx, len(wanted), func(r *register.Replica, i int) {
		k := int(wanted[i])
		some := r.Catchup(x.keys[k : k+1])
		if writes = append(writes, some...); len(some) == 0 {
			covers = r.Covers()
		}
	})
	if err != nil {
		return err
	}
	held := x.held
	if err := x.awaitSave(ctx, covers); err != nil {
		return err
	}
	if x.held && !held {
		return errLeftOut // too late to hold the cursor: the page is out
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
