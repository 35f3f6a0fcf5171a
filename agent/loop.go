package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"gus/agent/client"
	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

// batch is what a peer said at once.
type batch struct {
	from     register.Voter
	header   quic.Header
	messages []register.Message
}

// link is a connection to a peer that came or went.
type link struct {
	peer register.Voter
	up   bool
}

// saving is how a save ended.
type saving struct {
	seq register.Seq
	err error
}

// transport carries messages, and with each batch of them how far voters have come.
type transport interface {
	register.Transport
	SetProgress(progress []register.Progress)
}

// loop owns the replica: its run is the one goroutine that touches it. Whatever
// happens reaches it by a channel; what is to be done about it is done by
// register.Drive.
//
// A turn takes in all that waits and then drives once, so that under load the
// records of many operations share one sync and their messages one batch, and
// when idle nothing waits for company.
type loop struct {
	replica   *register.Replica
	store     register.Store
	transport transport
	log       *slog.Logger
	now       func() time.Time // the clock, as the replica is told

	desk    *desk
	batches chan batch  // maxBatches; a peer's reader waits for room: back-pressure
	links   chan link   // the endpoint waits for room
	saved   chan saving // one: there is never a second save under way
	visits  chan func(*register.Replica)
	joining chan func(*register.Replica) // visits that wait for something to save

	reach   *reach
	pending map[register.Op]*request // handed to the replica
	queue   waiting                  // not yet: no quorum is in reach

	feed *feed
	lost atomic.Int64 // when the last quorum went out of reach, in Unix nanoseconds; 0 while there is one
	saves
	standing
	progress []register.Progress // as the transport was told
	data     string              // the directory, for people
}

const (
	maxBatches = 64
	maxLinks   = 16
)

func newLoop(d *desk, log *slog.Logger) *loop {
	return &loop{
		log:     log,
		now:     newClock(),
		desk:    d,
		batches: make(chan batch, maxBatches),
		links:   make(chan link, maxLinks),
		saved:   make(chan saving, 1),
		visits:  make(chan func(*register.Replica)),
		joining: make(chan func(*register.Replica)),
		pending: map[register.Op]*request{},
		feed:    newFeed(),
	}
}

// run turns until ctx ends (nil) or a save ends so that nobody knows what the
// disk holds. By then each request has its answer.
func (l *loop) run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	defer l.stop()
	l.begin()
	for {
		select {
		case <-ctx.Done():
			return nil
		case in := <-l.desk.inputs:
			l.clock()
			l.input(in)
		case b := <-l.batches:
			l.clock()
			l.step(b)
		case k := <-l.links:
			l.clock()
			l.link(k)
		case s := <-l.saved:
			l.clock()
			if err := l.save(s); err != nil {
				return err
			}
		case f := <-l.visits:
			l.clock()
			f(l.replica)
		case <-tick.C:
			l.clock()
			l.replica.Tick()
			l.watchDisk()
		}
		// Whoever is about to ask or to deliver does so now and shares the
		// turn: a third less processor time under load, and nothing when idle.
		runtime.Gosched()
		if err := l.drain(); err != nil {
			return err
		}
		l.stand()
		l.tell()
		l.feed.publish(l.replica)
		register.Drive(l.replica, (*timed)(l), l.transport, l.report)
		if err := l.checkForgotten(); err != nil {
			return err
		}
	}
}

func (l *loop) clock() { l.replica.Clock(l.now().UnixMilli()) }

// drain takes in what waits, and no more than the queues hold: what comes in
// meanwhile is for the next turn.
func (l *loop) drain() error {
	for range len(l.batches) {
		l.step(<-l.batches)
	}
	for range len(l.desk.inputs) {
		l.input(<-l.desk.inputs)
	}
	for range len(l.links) {
		l.link(<-l.links)
	}
	for range len(l.saved) {
		if err := l.save(<-l.saved); err != nil {
			return err
		}
	}
	l.letJoin()
	return nil
}

func (l *loop) input(in input) {
	if in.req == nil {
		l.drop(in.op)
		return
	}
	switch in.req.kind {
	case kindGet:
		l.pending[in.op] = in.req
		l.replica.Get(in.op, in.req.key)
	case kindSet:
		if !l.votes || !l.reach.write() {
			l.queue.add(in)
			return
		}
		l.set(in)
	case kindPeek:
		in.req.give(answer{local: l.replica.Peek(in.req.key)})
	case kindList:
		l.pending[in.op] = in.req
		l.replica.List(in.op, in.req.key, in.req.after, in.req.limit)
	case kindPeekList:
		entries, next := l.replica.PeekList(in.req.key, in.req.after, in.req.limit)
		in.req.give(answer{result: register.Result{Entries: entries, Next: next}})
	case kindStatus:
		in.req.give(answer{status: l.status()})
	}
}

func (l *loop) set(in input) {
	l.pending[in.op] = in.req
	l.replica.Set(in.op, in.req.key, in.req.value, in.req.deleted)
}

// drop answers a request that is over its time, unless it is answered already.
func (l *loop) drop(op register.Op) {
	if req := l.queue.take(op); req != nil {
		req.give(answer{err: l.missing(req.operation())})
		return
	}
	req := l.pending[op]
	if req == nil {
		return
	}
	delete(l.pending, op)
	req.give(answer{err: l.dropped(op, req)})
}

// dropped takes a request back from the replica and says what it came to.
func (l *loop) dropped(op register.Op, req *request) error {
	switch sent := l.replica.Drop(op); {
	case sent:
		return fmt.Errorf("%w: sent and not acknowledged by %d voters within %v: it may still take effect; read the key to see",
			client.ErrUnknownOutcome, l.reach.conf.WriteQuorum, req.timeout)
	case l.saveErr != nil && req.kind == kindSet:
		return fmt.Errorf("%w: %v: nothing changed", client.ErrNotSaved, l.saveErr)
	case l.saveErr != nil:
		return fmt.Errorf("%w: this site cannot save (%v), and too few of the others answered to read without it", client.ErrNoQuorum, l.saveErr)
	case req.kind == kindSet && l.stall() > req.timeout/2:
		return fmt.Errorf("%w: the disk of this site has not finished a save since %s: nothing changed", client.ErrNotSaved, l.saveFrom.Format(time.DateTime))
	}
	return l.missing(req.operation())
}

// report passes on what an operation came to.
func (l *loop) report(r register.Result) {
	req := l.pending[r.Op]
	if req == nil {
		return
	}
	delete(l.pending, r.Op)
	a := answer{result: r}
	switch {
	case errors.Is(r.Err, register.ErrNotSaved):
		a.err = fmt.Errorf("%w: %v: nothing changed", client.ErrNotSaved, l.saveErr)
	case r.Err != nil:
		a.err = fmt.Errorf("%w: %w", client.ErrRefused, r.Err)
	}
	req.give(a)
}

func (l *loop) step(b batch) {
	if !l.replica.Hear(b.from, b.header.Boot, b.header.Progress) {
		return // a later start of it has spoken
	}
	for _, m := range b.messages {
		asking := !l.replica.Votes()
		if err := l.replica.Step(b.from, m); err != nil {
			l.log.Warn("refused a message", "from", l.reach.name(b.from), "kind", m.Kind(), "key", m.Register(), "err", err)
		}
		if asking && !l.replica.Awaits().Has(b.from) {
			l.answered = l.answered.With(b.from)
		}
	}
}

// lostFor is for how long no quorum has been in reach. Safe for concurrent use.
func (l *loop) lostFor() time.Duration {
	if at := l.lost.Load(); at != 0 {
		return time.Since(time.Unix(0, at))
	}
	return 0
}

// link notes that a peer came or went, and hands out what waited for it.
func (l *loop) link(k link) {
	before := l.reach.ok()
	l.reach.set(k.peer, k.up, time.Now())
	l.lost.Store(l.reach.lostAt())
	what := "quorum"
	if l.reach.self == 0 {
		what = "voter" // an observer asks one, which asks the others
	}
	switch after := l.reach.ok(); {
	case before && !after:
		l.log.Warn("no "+what+" is in reach", "voters", l.reach.count())
	case after && !before:
		l.log.Info("a "+what+" is in reach", "voters", l.reach.count())
	}
	if k.up {
		l.replica.Resend(k.peer)
	}
	l.handOut()
}

// handOut gives the replica the sets that waited, if they need not wait any more.
func (l *loop) handOut() {
	if !l.votes || !l.reach.write() {
		return
	}
	for _, in := range l.queue.all() {
		l.set(in)
	}
}

// save tells the replica how a save ended. An error that leaves open what the
// disk holds ends the loop: the next start reads what is really there.
func (l *loop) save(s saving) error {
	l.saveEnded()
	switch {
	case s.err == nil:
		if l.saveErr != nil {
			l.log.Info("saves work again")
		}
		l.saveErr = nil
		l.replica.Saved(s.seq)
		return nil
	case errors.Is(s.err, snapshot.ErrRolledBack):
		if l.saveErr == nil {
			l.log.Error("a save failed: writes are refused until saves work again", "err", s.err)
		}
		l.saveErr = s.err
		l.replica.SaveFailed(s.seq)
		return nil
	}
	return fmt.Errorf("save record %d: %w", s.seq, s.err)
}

// stop answers what is left. Requests that nobody has taken out of the queue
// answer themselves.
func (l *loop) stop() {
	for _, in := range l.queue.all() {
		in.req.give(answer{err: errStopping()})
	}
	for op, req := range l.pending {
		err := errStopping()
		if l.replica.Drop(op) {
			err = fmt.Errorf("%w: the agent stopped before it was acknowledged: it may still take effect; read the key to see", client.ErrUnknownOutcome)
		}
		req.give(answer{err: err})
	}
	close(l.desk.stopped)
}

// loopStatus is what only the loop knows.
type loopStatus struct {
	replica register.Status
	reach   reach
	voting  client.Voting
	waiting int
	saves   saves
}

func (l *loop) status() loopStatus {
	return loopStatus{replica: l.replica.Status(), reach: l.reach.clone(), voting: l.voting(), waiting: l.queue.len(), saves: l.saves}
}
