package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gus/agent/client"
	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

const (
	// observeLook is how often an observer looks for a voter while it follows none.
	observeLook = 200 * time.Millisecond
	// nearerLook is how often it looks for one that is nearer: one whose round trip is
	// shorter by a third, and by nearerBy.
	nearerLook = time.Minute
	nearerBy   = 3 * time.Millisecond
	// observeDoubt is for how long another voter is tried first after one has failed.
	observeDoubt = 10 * time.Second
)

// observer is what makes the copy of a site without a vote: it follows the nearest voter,
// and another one when that is gone, from where that one had come with the other.
//
// Why one and not all? One has all that is settled, soon after it is; and a hundred
// observers then cost each voter no more than its share of them.
type observer struct {
	*catchup
	names map[string]register.Voter // of the voters

	mu       sync.Mutex
	doubted  map[string]time.Time // voters that failed
	voter    string               // that is followed; empty: none
	since    time.Time            // of that
	started  time.Time
	complete time.Time // when the copy had all that the voter knew; zero: not since the start
}

func newObserver(n *node) *observer {
	o := &observer{catchup: n.catchup, names: map[string]register.Voter{}, doubted: map[string]time.Time{}, started: n.started, since: n.started}
	for _, v := range n.conf.Voters {
		o.names[v.Name] = v.Number
	}
	return o
}

// run follows voters until ctx ends.
func (o *observer) run(ctx context.Context) error {
	for {
		to, ok := o.nearest()
		if !ok {
			if sleep(ctx, observeLook) != nil {
				return nil
			}
			continue
		}
		err := o.follow(ctx, to)
		if ctx.Err() != nil {
			return nil
		}
		o.left(to.Name, err)
	}
}

// nearest returns the connected voter with the shortest round trip, before one that failed lately.
func (o *observer) nearest() (quic.PeerStatus, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var links []quic.PeerStatus
	for _, p := range o.endpoint.Status().Peers {
		if p.Connected && o.names[p.Name] != 0 {
			links = append(links, p)
		}
	}
	doubt := func(p quic.PeerStatus) int {
		if time.Since(o.doubted[p.Name]) < observeDoubt {
			return 1
		}
		return 0
	}
	if len(links) == 0 {
		return quic.PeerStatus{}, false
	}
	return slices.MinFunc(links, func(a, b quic.PeerStatus) int {
		return cmp.Or(cmp.Compare(doubt(a), doubt(b)), cmp.Compare(a.RTT, b.RTT), cmp.Compare(a.Name, b.Name))
	}), true
}

// left notes that a voter is not followed any more, and why.
func (o *observer) left(name string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.voter != ""
	if was {
		o.since = time.Now()
	}
	o.voter = ""
	if errors.Is(err, errNearer) {
		o.log.Info("follows a nearer voter from now on", "instead_of", name)
		return
	}
	o.doubted[name] = time.Now()
	if was || errors.Is(err, errNonsense) {
		o.log.Warn("cannot follow a voter any more", "peer", name, "err", err)
	}
}

// errNearer: there is a voter that is nearer.
var errNearer = errors.New("another voter is nearer")

// follow learns what a voter tells, until that ends.
func (o *observer) follow(ctx context.Context, to quic.PeerStatus) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, err := o.endpoint.OpenStream(ctx, to.Name, purposeFollow)
	if err != nil {
		return err
	}
	defer s.Close()
	defer bind(ctx, s)()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() { o.lookNearer(ctx, to.Name, cancel) })
	cursor := o.store.Cursors()[to.Name]
	if err := say(s, &followAsk{Version: streamVersion, Database: cursor.Database, After: cursor.Seq}); err != nil {
		return err
	}
	for {
		p, err := o.hear(s, cursor)
		if err == nil {
			cursor, err = o.take(ctx, to.Name, p, cursor)
		}
		if cause := context.Cause(ctx); cause != nil && err != nil {
			return cause
		}
		if err != nil {
			return err
		}
	}
}

// lookNearer ends the following of a voter once another is clearly nearer.
func (o *observer) lookNearer(ctx context.Context, name string, cancel context.CancelCauseFunc) {
	for sleep(ctx, nearerLook) == nil {
		best, ok := o.nearest()
		for _, p := range o.endpoint.Status().Peers {
			if ok && p.Name == name && p.Connected && best.Name != name && best.RTT*3 < p.RTT*2 && p.RTT-best.RTT > nearerBy {
				cancel(errNearer)
			}
		}
	}
}

// hear reads the next part.
func (o *observer) hear(s *quic.Stream, cursor snapshot.Cursor) (*followPart, error) {
	if err := s.SetReadDeadline(time.Now().Add(followSilence)); err != nil {
		return nil, fmt.Errorf("read from %s: %w", s.Peer().Name, err)
	}
	b, err := quic.ReadFrame(s, maxAnswer)
	if err != nil {
		return nil, err
	}
	p := new(followPart)
	if err := streamDecoding.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("decode %T: %w", p, err)
	}
	return p, p.check(cursor)
}

// take learns a part, and notes how far that is once it is durable.
func (o *observer) take(ctx context.Context, from string, p *followPart, cursor snapshot.Cursor) (snapshot.Cursor, error) {
	writes := make([]register.MsgCatchup, len(p.Writes))
	for i, w := range p.Writes {
		if err := streamDecoding.Unmarshal(w, &writes[i]); err != nil {
			return cursor, fmt.Errorf("decode a write: %w", err)
		}
	}
	o.began(from)
	var refused error
	var covers register.Seq
	err := o.loop.each(ctx, len(writes), func(r *register.Replica, i int) {
		if refused == nil {
			refused = r.Step(o.names[from], &writes[i])
		}
		covers = r.Covers()
	})
	switch {
	case err != nil:
		return cursor, err
	case refused != nil:
		return cursor, nonsense("%v", refused)
	}
	if len(writes) > 0 {
		if err := o.durable(ctx, covers); err != nil {
			return cursor, err
		}
	}
	if p.Upto != 0 {
		cursor = snapshot.Cursor{Database: p.Database, Seq: p.Upto}
		o.store.SetCursor(from, cursor)
	}
	o.adopt(from, p.Cursors)
	if p.Complete {
		o.completed()
	}
	return cursor, nil
}

// adopt goes on, should another voter be followed next, from where the one that tells of it had come
// with that.
func (o *observer) adopt(from string, cursors []voterCursor) {
	all := o.store.Cursors()
	for _, c := range cursors {
		have := all[c.Voter]
		if o.names[c.Voter] != 0 && c.Voter != from && c.Database != 0 && (have.Database != c.Database || have.Seq < c.Seq) {
			o.store.SetCursor(c.Voter, snapshot.Cursor{Database: c.Database, Seq: c.Seq})
		}
	}
}

// began notes that a voter tells something.
func (o *observer) began(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.voter == "" {
		o.voter, o.since = name, time.Now()
		delete(o.doubted, name)
		o.log.Info("follows a voter", "peer", name)
	}
}

// completed notes that the copy has all that there is.
func (o *observer) completed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.complete.Before(o.since) {
		o.log.Info("has all that the voter knows", "peer", o.voter, "after", time.Since(o.since).Round(time.Millisecond))
	}
	o.complete = time.Now()
}

// age returns how old the copy is, at least.
func (o *observer) age() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.complete.IsZero() {
		return time.Since(o.started)
	}
	if d := time.Since(o.complete); d > 3*followAlive {
		return d
	}
	return 0 // each part renews it
}

// status adds to s whom this site follows.
func (o *observer) status(s *client.Status) {
	age := o.age()
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Following = &client.Following{Voter: o.voter, Since: o.since, Age: client.Duration(age), Complete: !o.complete.Before(o.since) && age == 0}
}
