package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"gus/agent/client"
	"gus/membership"
	"gus/quic"
)

const (
	// maxIdleForwards is how many streams to one voter wait unused, streamIdle for how
	// long: the voter waits twice as long, so that it does not end one that is just
	// about to be used.
	maxIdleForwards = 8
	streamIdle      = forwardIdle / 2
	// forwardPatience is after what time without an answer a voter is doubted. A read is
	// asked elsewhere then; a write that was sent is not.
	forwardPatience = time.Second
	// doubtRead is for how long others are asked before a voter that is doubted, doubtWrite
	// likewise for writes: of one that is dead and still connected they would end unknown.
	doubtRead  = 15 * time.Second
	doubtWrite = time.Minute
	// routeLook is how often there is a look for a voter to ask while there is none.
	routeLook = 200 * time.Millisecond
	// wordGrace is how much longer than its deadline a request waits for the voter's
	// word of what became of it.
	wordGrace = 500 * time.Millisecond
)

// forwarder is an observer's part in passing on: it has a voter answer what needs a
// quorum. It asks the nearest voter that it is connected with, and another one where
// the first one has certainly done nothing, or where asking twice does no harm.
//
// Why not the nearest quorum of them, as a voter does? The observer would be a
// client of the protocol whose writes nobody owns. And why streams that stay open?
// A request then costs one round trip to the voter beside the voter's own, and none
// of it waits for another.
type forwarder struct {
	endpoint *quic.Endpoint
	voters   []string                     // the configuration's
	stopped  <-chan struct{}              // closed once the agent stops
	silent   func(voter string) time.Time // since when it seems to be dead; zero: not. Nil: nobody knows
	log      *slog.Logger
	lanes    map[string]*forwardLane // by voter; the map does not change
}

// forwardLane is what there is with one voter.
type forwardLane struct {
	slots chan struct{} // one for each request under way

	mu      sync.Mutex
	idle    []idleStream // the last used one last
	doubted time.Time    // when it did not answer in time; zero where it has answered since
}

type idleStream struct {
	*quic.Stream
	since time.Time
}

// newForwarder returns an observer's forwarder over e. stopped is closed when the agent
// stops: the desk's.
func newForwarder(e *quic.Endpoint, conf membership.Configuration, stopped <-chan struct{}, log *slog.Logger) *forwarder {
	f := &forwarder{endpoint: e, stopped: stopped, log: log, lanes: map[string]*forwardLane{}}
	for _, v := range conf.Voters {
		f.voters = append(f.voters, v.Name)
		f.lanes[v.Name] = &forwardLane{slots: make(chan struct{}, maxForwards)}
	}
	return f
}

// ask has a voter answer a question of kind get, set or list. As of desk.ask, its
// answer comes soon after the question's timeout at the latest, and when ctx ends nobody
// reads it.
func (f *forwarder) ask(ctx context.Context, q question) answer {
	p := &passing{forwarder: f, question: q, deadline: time.Now().Add(q.timeout), tried: map[string]bool{}}
	var last answer
	for {
		links := p.routes()
		if len(links) > 0 {
			p.tried[links[0].Name] = true
			a, again := p.try(ctx, links[0], len(links) == 1)
			if !again {
				return a
			}
			last = a
			continue
		}
		if last.via != "" {
			return last // each voter in reach says why not
		}
		if err := p.rest(ctx); err != nil {
			return answer{err: err}
		}
		clear(p.tried)
	}
}

// passing is a question that is passed on.
type passing struct {
	*forwarder
	question
	deadline time.Time
	tried    map[string]bool // voters, since the last rest
}

// routes returns the voters that are connected and were not tried, the best one first: the
// nearest, and of those in doubt the one that has been so the longest.
func (p *passing) routes() []quic.PeerStatus {
	var links []quic.PeerStatus
	doubts := map[string]int64{} // since when; 0: not
	for _, l := range p.endpoint.Status().Peers {
		lane := p.lanes[l.Name]
		if lane == nil || !l.Connected || p.tried[l.Name] {
			continue
		}
		links = append(links, l)
		doubts[l.Name] = lane.inDoubt(l.Since, p.kind)
		if doubts[l.Name] == 0 && p.silent != nil {
			if at := p.silent(l.Name); at.After(l.Since) {
				doubts[l.Name] = at.UnixNano()
			}
		}
	}
	slices.SortFunc(links, func(a, b quic.PeerStatus) int {
		return cmp.Or(cmp.Compare(doubts[a.Name], doubts[b.Name]), cmp.Compare(a.RTT, b.RTT), cmp.Compare(a.Name, b.Name))
	})
	return links
}

// rest waits until there may be somebody to ask again. Its error says that the
// question is over.
func (p *passing) rest(ctx context.Context) error {
	select {
	case <-time.After(min(routeLook, time.Until(p.deadline))):
	case <-p.stopped:
		return errStopping()
	case <-ctx.Done():
		return ctx.Err()
	}
	switch voters := strings.Join(p.voters, ", "); {
	case time.Now().Before(p.deadline):
		return nil
	case len(p.tried) > 0:
		return fmt.Errorf("%w: this site is an observer, and its connections with the voters (%s) do not hold: nothing changed, try again", client.ErrNoQuorum, voters)
	default:
		return fmt.Errorf("%w: this site is an observer, and none of the voters (%s) is in reach: nothing changed; "+
			"see that one of them runs and that UDP passes to it; what this site knows it tells locally", client.ErrNoQuorum, voters)
	}
}

// try asks one voter. It says whether another one may be asked. alone says that there
// is no other.
func (p *passing) try(ctx context.Context, to quic.PeerStatus, alone bool) (a answer, again bool) {
	lane := p.lanes[to.Name]
	if err := p.enter(ctx, lane, to.Name, alone); err != nil {
		return answer{err: err}, errors.Is(err, errLaneFull)
	}
	defer func() { <-lane.slots }()
	ask := newForwardAsk(p.question)
	left := time.Until(p.deadline)
	ask.Timeout = max(left-2*to.RTT, left/2, time.Microsecond).Microseconds()
	frame, err := encodeFrame(ask)
	if err != nil {
		return answer{err: err}, false
	}
	s, err := p.send(ctx, lane, to.Name, frame)
	switch {
	case err == nil:
		return p.hear(ctx, lane, s, to.Name, alone)
	case ctx.Err() != nil:
		return answer{err: ctx.Err()}, false
	case !time.Now().Before(p.deadline):
		return answer{err: fmt.Errorf("%w: %s did not take it in time: nothing changed", client.ErrNotSent, to.Name)}, false
	}
	p.log.Debug("could not pass a request on", "peer", to.Name, "err", err)
	return answer{err: err}, true
}

// errLaneFull says that others have all streams to a voter, and that there are more voters.
var errLaneFull = errors.New("as many requests are under way as may be")

// enter waits for a stream to be free, to the only voter until the question is over.
func (p *passing) enter(ctx context.Context, lane *forwardLane, voter string, alone bool) error {
	wait := time.Until(p.deadline)
	if !alone {
		wait = min(wait, routeLook)
	}
	full := time.NewTimer(wait)
	defer full.Stop()
	select {
	case lane.slots <- struct{}{}:
		return nil
	case <-p.stopped:
		return errStopping()
	case <-ctx.Done():
		return ctx.Err()
	case <-full.C:
	}
	if time.Now().Before(p.deadline) {
		return errLaneFull
	}
	return fmt.Errorf("%w: %d requests are under way to %s, which is the limit: nothing changed", client.ErrNotSent, maxForwards, voter)
}

// encodeFrame is v as one frame.
func encodeFrame(v any) ([]byte, error) {
	const head = 4 // the length
	b := bytes.NewBuffer(make([]byte, head, 256))
	if err := streamEncoding.MarshalToBuffer(v, b); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-head))
	return b.Bytes(), nil
}

// send writes a frame on a stream to the voter. With an error the voter has not got
// all of it, and so does nothing about it.
func (p *passing) send(ctx context.Context, lane *forwardLane, voter string, frame []byte) (*quic.Stream, error) {
	for {
		s := lane.take()
		fresh := s == nil
		if fresh {
			var err error
			if s, err = p.open(ctx, voter); err != nil {
				return nil, err
			}
		}
		n, err := p.write(ctx, s, frame)
		if n == len(frame) { // with an error, too: it may be on its way
			return s, nil
		}
		_ = s.Close()
		if fresh {
			return nil, fmt.Errorf("pass a request on to %s: %w", voter, err)
		}
	}
}

// open opens a stream to the voter, which is connected, or was a moment ago.
func (p *passing) open(ctx context.Context, voter string) (*quic.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, min(forwardPatience, time.Until(p.deadline)))
	defer cancel()
	return p.endpoint.OpenStream(ctx, voter, purposeForward)
}

func (p *passing) write(ctx context.Context, s *quic.Stream, frame []byte) (int, error) {
	defer bind(ctx, s)()
	if err := s.SetWriteDeadline(p.deadline); err != nil {
		return 0, err
	}
	return s.Write(frame)
}

// hear waits for the voter's answer to what it was sent.
func (p *passing) hear(ctx context.Context, lane *forwardLane, s *quic.Stream, voter string, alone bool) (a answer, again bool) {
	release := bind(ctx, s)
	leaves := p.kind != kindSet && !alone
	patience := time.AfterFunc(min(forwardPatience, p.timeout/2), func() {
		lane.doubt()
		if leaves {
			_ = s.Close()
		}
	})
	f, err := hearForward(s, p.deadline.Add(wordGrace))
	patient := patience.Stop()
	mine := release()
	if err != nil {
		_ = s.Close()
		return p.unanswered(ctx, voter, err)
	}
	if mine && (patient || !leaves) {
		lane.put(s)
	} else {
		_ = s.Close()
	}
	a = f.answer(voter)
	if !errors.Is(a.err, client.ErrNoQuorum) { // else another voter may have one
		lane.trust()
	}
	// With these nothing has been done, and another voter may be better off.
	again = errors.Is(a.err, client.ErrNotSent) || errors.Is(a.err, client.ErrStopping) || errors.Is(a.err, client.ErrNotSaved)
	return a, again
}

// hearForward reads an answer that cannot be wrong.
func hearForward(s *quic.Stream, deadline time.Time) (*forwardAnswer, error) {
	if err := s.SetReadDeadline(deadline); err != nil {
		return nil, fmt.Errorf("wait for an answer: %w", err)
	}
	b, err := quic.ReadFrame(s, maxAnswer)
	switch {
	case err == io.EOF:
		return nil, errEnded
	case err != nil:
		return nil, err
	}
	f := new(forwardAnswer)
	if err := streamDecoding.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("decode %T: %w", f, err)
	}
	return f, f.check()
}

// unanswered is what becomes of a question that was sent and has no answer. A read may
// be asked again, a write never.
func (p *passing) unanswered(ctx context.Context, voter string, err error) (a answer, again bool) {
	what := "the connection with it was lost before it answered"
	over := !time.Now().Before(p.deadline)
	switch {
	case p.isStopped():
		what = "this agent stopped before it answered"
	case over:
		what = fmt.Sprintf("it did not answer within %v", p.timeout)
	case errors.Is(err, errNonsense):
		what = "its answer makes no sense: " + err.Error()
	}
	switch {
	case p.kind == kindSet && ctx.Err() != nil: // a pipe of an agent that stops tells its client
		return answer{via: voter, err: fmt.Errorf("%w: %s was given it, and its answer was not waited for (%w): it may still take effect; read the key to see", client.ErrUnknownOutcome, voter, ctx.Err())}, false
	case p.kind == kindSet:
		return answer{via: voter, err: fmt.Errorf("%w: %s was given it, and %s: it may still take effect; read the key to see", client.ErrUnknownOutcome, voter, what)}, false
	case ctx.Err() != nil:
		return answer{err: ctx.Err()}, false
	case p.isStopped():
		return answer{err: errStopping()}, false
	}
	return answer{err: fmt.Errorf("%w: %s was asked, and %s: nothing changed", client.ErrNoQuorum, voter, what)}, !over
}

func (p *passing) isStopped() bool {
	select {
	case <-p.stopped:
		return true
	default:
		return false
	}
}

// take returns an idle stream, or nil.
func (l *forwardLane) take() *quic.Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.idle); n > 0; n = len(l.idle) {
		s := l.idle[n-1]
		if time.Since(s.since) > streamIdle { // and so are those before it
			for _, s := range l.idle {
				_ = s.Close()
			}
			l.idle = nil
			return nil
		}
		l.idle = l.idle[:n-1]
		if s.Context().Err() == nil {
			return s.Stream
		}
		_ = s.Close()
	}
	return nil
}

// put keeps a stream for the next request.
func (l *forwardLane) put(s *quic.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.idle) >= maxIdleForwards {
		_ = s.Close()
		return
	}
	l.idle = append(l.idle, idleStream{s, time.Now()})
}

// doubt notes that the voter has not answered in time, trust that it has answered.
func (l *forwardLane) doubt() { l.note(time.Now()) }
func (l *forwardLane) trust() { l.note(time.Time{}) }

func (l *forwardLane) note(doubted time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubted = doubted
}

// inDoubt returns since when others are to be asked first, in Unix nanoseconds; 0 where they
// are not. since is when the voter was connected: a new connection is not doubted.
func (l *forwardLane) inDoubt(since time.Time, k kind) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	long := doubtRead
	if k == kindSet {
		long = doubtWrite
	}
	if l.doubted.After(since) && time.Since(l.doubted) < long {
		return l.doubted.UnixNano()
	}
	return 0
}
