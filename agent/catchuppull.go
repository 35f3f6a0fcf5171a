package agent

import (
	"context"
	"fmt"
	"io"
	"time"

	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

const (
	// A portion of writes is learnt and saved before the next one: so many, or so
	// many bytes of values; the last one may go beyond.
	maxPortion      = 256
	maxPortionBytes = 256 << 10
	// maxPause bounds the pause after a portion, which is as long as that took.
	maxPause = 100 * time.Millisecond
	// There are clients at this site for busyFor after an operation. Then a portion has
	// busyPortion writes at most, and waits up to busyWait for a save that it can
	// go with. Before that it waits up to pressedWait for the store to fold what it has.
	busyFor     = time.Second
	busyPortion = 16
	busyWait    = 20 * time.Millisecond
	pressedWait = 200 * time.Millisecond
	// manyKeys is how many keys are worth a line in the log at any time; fewer
	// are only where the peer was away.
	manyKeys = 1000
)

// pull is what there is to do with one peer until all that it has saved is looked at.
type pull struct {
	*catchup
	peer   *follower
	stream *quic.Stream

	cursor snapshot.Cursor
	lastOp uint64    // of this site's clients, when last looked
	busy   time.Time // until when there are clients
	looked int
	news   int             // keys that were older here, not only not known to be settled
	wanted map[string]bool // of the last page
	covers register.Seq    // the save after which all that is known of it here is durable
}

// pull looks at what p has saved above the cursor, page by page, and takes what
// this site lacks of it. While a page is taken in the next one is on its way. The
// others wait: they would send the same writes, and mostly need not any more.
func (c *catchup) pull(ctx context.Context, p *follower) (err error) {
	select {
	case c.pulls <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.pulls }()
	p.mu.Lock()
	fresh, cursor := p.fresh, p.cursor
	p.fresh, p.pulling, p.taken = false, true, 0
	p.mu.Unlock()
	begin, x := time.Now(), &pull{catchup: c, peer: p, cursor: cursor, lastOp: c.loop.desk.lastOp.Load()}
	defer func() {
		p.mu.Lock()
		p.pulling, p.fresh = false, p.fresh || fresh && err != nil
		p.pulled = p.pulled || err == nil
		p.mu.Unlock()
	}()
	x.stream, err = c.endpoint.OpenStream(ctx, p.name, purposeCatchup)
	if err != nil {
		return err
	}
	defer x.stream.Close()
	defer bind(ctx, x.stream)()
	if err := x.run(ctx); err != nil {
		return fmt.Errorf("pull from %s: %w", p.name, err)
	}
	log := c.log.Debug
	if x.news > 0 && (fresh || x.news >= manyKeys) {
		log = c.log.Info
	}
	log("caught up", "peer", p.name, "keys", x.news, "looked", x.looked, "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

func (x *pull) run(ctx context.Context) error {
	ask := pullAsk{Version: streamVersion, Database: x.cursor.Database, After: x.cursor.Seq}
	var before *pullPage
	for {
		if err := say(x.stream, &ask); err != nil {
			return err
		}
		page, err := x.take(ctx)
		if err != nil {
			return err
		}
		if before != nil {
			if err := x.durable(ctx, x.covers); err != nil {
				return err
			}
			x.reached(x.peer, snapshot.Cursor{Database: before.Database, Seq: before.Upto})
		}
		if ask.Last {
			return nil
		}
		if err := x.checkPage(page, before); err != nil {
			return err
		}
		ask = pullAsk{Last: page.End}
		if ask.Wanted, err = x.lacks(ctx, page.Keys); err != nil {
			return err
		}
		if page.End && len(ask.Wanted) == 0 {
			if err := x.durable(ctx, x.covers); err != nil {
				return err
			}
			x.reached(x.peer, snapshot.Cursor{Database: page.Database, Seq: page.Upto})
			x.peer.hear(page.Last)
			return nil
		}
		before = page
	}
}

// checkPage refuses a page that cannot be, and one that does not follow the one
// before.
func (x *pull) checkPage(page, before *pullPage) error {
	switch {
	case page.Database == 0:
		return nonsense("a page of no database")
	case page.Upto > page.Last:
		return nonsense("changes up to %d of %d", page.Upto, page.Last)
	case before != nil && (page.Database != before.Database || page.Upto < before.Upto):
		return nonsense("a page of database %x up to %d after one of %x up to %d", page.Database, page.Upto, before.Database, before.Upto)
	}
	x.looked += len(page.Keys)
	x.peer.hear(page.Last)
	return checkShown(page.Keys)
}

// lacks returns which of the keys this site wants.
func (x *pull) lacks(ctx context.Context, shown []register.Shown) (wanted []uint16, err error) {
	x.wanted = map[string]bool{}
	news := 0
	err = x.loop.each(ctx, len(shown), func(r *register.Replica, i int) {
		s := shown[i]
		x.covers = r.Covers() // what it does not lack need not be durable yet
		if !r.Lacks(s) {
			return
		}
		wanted = append(wanted, uint16(i))
		x.wanted[s.Key] = true
		if r.Show([]string{s.Key})[0].Tag != s.Tag {
			news++
		}
	})
	x.news += news
	x.peer.mu.Lock()
	x.peer.taken += news
	x.peer.mu.Unlock()
	return wanted, err
}

// take takes in an answer, and returns its page once all that came before is durable.
func (x *pull) take(ctx context.Context) (*pullPage, error) {
	for {
		var a pullAnswer
		err := hearWithin(x.stream, answerTimeout, maxAnswer, &a)
		switch {
		case err == io.EOF:
			return nil, errEnded
		case err != nil:
			return nil, err
		case a.Page == nil && len(a.Writes) == 0:
			return nil, nonsense("an answer with nothing in it")
		}
		if err := x.learn(ctx, a.Writes); err != nil {
			return nil, err
		}
		if a.Page != nil {
			return a.Page, nil
		}
	}
}

// clients says whether there were operations at this site lately.
func (x *pull) clients() bool {
	now := time.Now()
	if op := x.loop.desk.lastOp.Load(); op != x.lastOp {
		x.lastOp, x.busy = op, now.Add(busyFor)
	}
	return now.Before(x.busy)
}

// learn hands writes to the replica in portions. Each is durable before the
// next one, and then there is a pause: most of the disk and the processors are
// the clients'.
func (x *pull) learn(ctx context.Context, writes []register.MsgCatchup) error {
	for len(writes) > 0 {
		most, wait := maxPortion, time.Duration(0)
		if x.clients() {
			most, wait = busyPortion, busyWait
			if err := x.giveWay(ctx); err != nil {
				return err
			}
		}
		n := portion(writes, most)
		for _, w := range writes[:n] {
			if !x.wanted[w.Key] {
				return nonsense("%s, which was not asked for", w.Key)
			}
			delete(x.wanted, w.Key)
		}
		begin := time.Now()
		if err := x.learnPortion(ctx, wait, writes[:n]); err != nil {
			return err
		}
		if err := sleep(ctx, min(time.Since(begin), maxPause)); err != nil {
			return err
		}
		writes = writes[n:]
	}
	return nil
}

// portion returns how many of writes are learnt at once.
func portion(writes []register.MsgCatchup, most int) (n int) {
	for size := 0; n < len(writes) && n < most && size < maxPortionBytes; n++ {
		size += len(writes[n].Write.Value)
	}
	return n
}

// giveWay waits while the store has more to fold than is good for clients. They may
// be the reason themselves, so it does not wait for ever.
func (x *pull) giveWay(ctx context.Context) error {
	for end := time.Now().Add(pressedWait); x.store.Pressed() && time.Now().Before(end); {
		if err := sleep(ctx, pressedWait/10); err != nil {
			return err
		}
	}
	return nil
}

func (x *pull) learnPortion(ctx context.Context, wait time.Duration, writes []register.MsgCatchup) error {
	var refused error
	var covers register.Seq
	err := x.loop.joinEach(ctx, wait, len(writes), func(r *register.Replica, i int) {
		if refused == nil {
			refused = r.Step(x.peer.voter, &writes[i])
		}
		covers = r.Covers()
	})
	if err == nil && refused != nil {
		err = nonsense("%v", refused)
	}
	if err != nil {
		return err
	}
	return x.durable(ctx, covers)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
