package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gus/agent/client"
	"gus/membership"
	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

const (
	// epochLength is how often there is a look for what a peer has saved that
	// this site has not looked at, and for keys that two sites disagree on.
	epochLength = 10 * time.Second
	// Under load there is much to look at, of which nearly all has come by itself: after a look there
	// is a rest of so many times as long as it took, up to maxRest.
	restPerLook = 9
	maxRest     = time.Minute
	// minRetry and maxRetry bound the pause after an attempt that failed.
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// catchup is this site's part in holding what the other voters hold without
// anybody reading: it pulls from each of them what it missed, compares what
// both hold (agree.go), and serves both to them.
//
// Why beside the register lane? What a voter missed while it was away is
// unbounded, and no queue of messages is. And why asked for rather than sent? Who
// asks knows what it lacks, what it can take in, and where it was when it stopped.
type catchup struct {
	loop     *loop
	store    *snapshot.Store
	endpoint *quic.Endpoint
	log      *slog.Logger
	names    func(register.Voter) string
	peers    []*follower
	observes bool          // this site has no vote
	pulls    chan struct{} // holds one: that of the pull under way
	disk     tide

	verifying sync.Mutex // held by the one verification under way

	mu      sync.Mutex
	serving map[serving][]*context.CancelFunc // each ends a stream, the oldest first
	streams int                               // served since the start, of both purposes
	served  int                               // keys shown to who catches up, since the start
}

// serving is who is served what.
type serving struct {
	site    string
	purpose quic.Purpose
}

// follower is what this site knows of how far it is with a peer. One goroutine
// follows a peer; what others read is behind mu.
type follower struct {
	name  string
	voter register.Voter
	wake  chan struct{} // holds one: the peer is connected
	agreement

	mu      sync.Mutex
	up      bool            // connected
	fresh   bool            // connected since the last pull that succeeded
	cursor  snapshot.Cursor // all of that peer's changes up to it have been looked at
	heard   register.Seq    // the highest number of a record that the peer is known to have saved
	behind  time.Time       // since when heard is above the cursor; zero while it is not
	pulling bool
	pulled  bool                  // once since the start
	taken   int                   // keys, by the pull under way
	known   []client.Disagreement // alarms
}

func newCatchup(n *node) *catchup {
	c := &catchup{
		loop: n.loop, store: n.store, log: n.log, names: n.writer,
		pulls: make(chan struct{}, 1), serving: map[serving][]*context.CancelFunc{}, observes: n.id.Role == quic.RoleObserver,
	}
	cursors := n.store.Cursors()
	for _, v := range n.conf.Voters {
		if v.Number != n.id.Number {
			c.peers = append(c.peers, newFollower(v, cursors[v.Name]))
		}
	}
	return c
}

func newFollower(v membership.Voter, cursor snapshot.Cursor) *follower {
	return &follower{
		name: v.Name, voter: v.Number, wake: make(chan struct{}, 1), cursor: cursor,
		agreement: agreement{suspects: map[string]*suspect{}},
	}
}

// linked is told of connections to voters.
func (c *catchup) linked(v register.Voter, up bool) {
	for _, p := range c.peers {
		if p.voter != v {
			continue
		}
		p.mu.Lock()
		p.up = up
		p.fresh = p.fresh || up
		p.mu.Unlock()
		if up {
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
	}
}

// run follows each peer until ctx ends. An observer does that in its own way: it only
// compares with them, when it is asked to.
func (c *catchup) run(ctx context.Context) error {
	var wg sync.WaitGroup
	peers := c.peers
	if c.observes {
		peers = nil
	}
	for _, p := range peers {
		wg.Go(func() { c.follow(ctx, p) })
	}
	wg.Wait()
	<-ctx.Done() // also where there is nobody to follow: a part that returns ends the agent
	return nil
}

// Why nothing is done with a peer: it is not connected, or this site does not
// vote yet.
var (
	errAway   = errors.New("not connected")
	errNotYet = errors.New("this site does not vote yet")
)

// follow keeps up with p until ctx ends: once when it comes, and each epoch. At
// the latter it looks for disagreement as well.
func (c *catchup) follow(ctx context.Context, p *follower) {
	next := time.NewTimer(epochLength)
	defer next.Stop()
	failures, failing := 0, false
	for {
		epoch := false
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-next.C:
			epoch = true
		}
		begin := time.Now()
		switch err := c.keepUp(ctx, p, epoch); {
		case err == nil:
			if failing {
				c.log.Info("keeps up with a site again", "peer", p.name)
			}
			failures, failing = 0, false
			next.Reset(min(max(epochLength, restPerLook*time.Since(begin)), maxRest))
		case errors.Is(err, errAway):
			next.Reset(epochLength)
		case errors.Is(err, errNotYet):
			next.Reset(minRetry)
		default:
			// A connection that ends, or is replaced by a better one, is said
			// elsewhere: what stays so is what is said here.
			if failures++; failures >= 3 && !failing && ctx.Err() == nil && p.connected() {
				c.log.Warn("cannot keep up with a site: tries again", "peer", p.name, "err", err)
				failing = true
			}
			next.Reset(min(minRetry<<min(failures-1, 8), maxRetry))
		}
	}
}

func (p *follower) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// keepUp pulls from p what there is, and compares with it at an epoch.
func (c *catchup) keepUp(ctx context.Context, p *follower, epoch bool) error {
	if !p.connected() {
		return errAway
	}
	var votes bool
	var progress []register.Progress
	err := c.loop.visit(ctx, func(r *register.Replica) { votes, progress = r.Votes(), r.Progress() })
	if err != nil {
		return err
	}
	if !votes {
		return errNotYet
	}
	for _, g := range progress {
		if g.Voter == p.voter {
			p.hear(g.Saved)
		}
	}
	if p.due() {
		if err := c.pull(ctx, p); err != nil {
			return err
		}
	}
	if epoch {
		return c.agree(ctx, p)
	}
	return nil
}

// pulled is of how many voters this site has looked at all that they had saved, since the start.
func (c *catchup) pulled() (n int) {
	for _, p := range c.peers {
		p.mu.Lock()
		if p.pulled {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

// due says whether there may be something to pull.
func (p *follower) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fresh || p.heard > p.cursor.Seq
}

// hear notes that the peer has saved seq, and returns the highest that it is
// known to have saved.
func (p *follower) hear(seq register.Seq) register.Seq {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = max(p.heard, seq)
	if p.heard > p.cursor.Seq && p.behind.IsZero() {
		p.behind = time.Now()
	}
	return p.heard
}

// reached notes that all of the peer's changes up to the cursor have been looked
// at, and that what this site lacked of them is durable here.
func (c *catchup) reached(p *follower, cursor snapshot.Cursor) {
	c.store.SetCursor(p.name, cursor)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cursor.Database != cursor.Database || p.cursor.Seq > cursor.Seq {
		p.heard = cursor.Seq // what was known is of another database
	}
	p.cursor = cursor
	if p.heard <= cursor.Seq {
		p.behind = time.Time{}
	}
}

// enter notes that a stream of the purpose is served to a site. Of more than
// limit the one that has been served the longest ends: it is left over from a
// connection that is gone, if the site keeps to the protocol. What it returns is for
// serving; leave must follow.
func (c *catchup) enter(ctx context.Context, site string, purpose quic.Purpose, limit int) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	key, this := serving{site, purpose}, &cancel
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.serving[key]; len(all) >= limit {
		(*all[0])()
		c.serving[key] = all[1:]
	}
	c.serving[key] = append(c.serving[key], this)
	c.streams++
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.serving[key] = slices.DeleteFunc(c.serving[key], func(f *context.CancelFunc) bool { return f == this })
	}
}

// tide lets goroutines wait for the disk. The zero value is ready for use.
type tide struct {
	mu    sync.Mutex
	risen chan struct{} // nil: nobody waits
}

// rise wakes who waits: a save has ended.
func (t *tide) rise() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.risen != nil {
		close(t.risen)
		t.risen = nil
	}
}

// next returns a channel that the next rise closes.
func (t *tide) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.risen == nil {
		t.risen = make(chan struct{})
	}
	return t.risen
}

// settle waits until all that the replica knows now is durable, and the replica knows that.
func (c *catchup) settle(ctx context.Context) error {
	var covers register.Seq
	if err := c.loop.visit(ctx, func(r *register.Replica) { covers = r.Covers() }); err != nil {
		return err
	}
	return c.known(ctx, covers)
}

// known waits until the save of seq and all before it are durable, and the replica knows.
func (c *catchup) known(ctx context.Context, seq register.Seq) error {
	for {
		if err := c.durable(ctx, seq); err != nil {
			return err
		}
		known := false
		err := c.loop.visit(ctx, func(r *register.Replica) { known = r.Durable() >= min(seq, r.Covers()) })
		if err == nil && !known {
			err = sleep(ctx, time.Millisecond) // the loop is about to hear of it
		}
		if err != nil || known {
			return err
		}
	}
}

// durable waits until the save of seq and all before it are durable.
func (c *catchup) durable(ctx context.Context, seq register.Seq) error {
	for {
		risen := c.disk.next()
		if c.store.Last() >= seq {
			return nil
		}
		select {
		case <-risen:
		case <-time.After(time.Second):
			// A save that has nothing left to save does not come.
			err := c.loop.visit(ctx, func(r *register.Replica) { seq = min(seq, r.Covers()) })
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
