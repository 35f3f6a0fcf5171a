package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"gus/agent/client"
	"gus/quic"
)

const (
	// forwardIdle is how long a voter waits for the next question of a stream. An
	// observer uses none that has been idle for half as long.
	forwardIdle = time.Minute
	// What observers have under way at a voter leaves half of the desk's room to its
	// own clients.
	maxForwarded      = maxRequests / 2
	maxForwardedBytes = maxRequestBytes / 2
	// largeForward is from where a question is a large one, in bytes; of these
	// maxLargeForwards of one observer are read and answered at once, so that one that
	// sends many, slowly, takes up that much memory.
	largeForward     = 64 << 10
	maxLargeForwards = 4
)

// forwardServer is a voter's part in passing on: it has the desk answer what observers
// ask, with the limits, checks and errors of local clients.
type forwardServer struct {
	desk *desk
	log  *slog.Logger

	mu       sync.Mutex
	guests   map[string]*guest // the observers that have streams here, by name
	requests int               // under way, of all of them
	bytes    int64             // of values, likewise
}

// guest is an observer that is served.
type guest struct {
	streams []*context.CancelFunc // each ends one, the oldest first
	large   chan struct{}         // holds one for each large question
}

// newForwardServer returns what serves observers at the desk of a voter.
func newForwardServer(d *desk, log *slog.Logger) *forwardServer {
	return &forwardServer{desk: d, log: log, guests: map[string]*guest{}}
}

// serve serves a stream of purposeForward: for quic.Config.Handlers, at a voter. Voters
// have desks of their own.
func (f *forwardServer) serve(ctx context.Context, from quic.Site, s *quic.Stream) {
	if from.Role != quic.RoleObserver {
		return
	}
	ctx, g, leave := f.enter(ctx, from.Name)
	defer leave()
	defer bind(ctx, s)()
	for {
		if err := f.next(ctx, g, s); err == io.EOF {
			return
		} else if err != nil {
			f.log.Debug("stopped serving an observer", "peer", from.Name, "err", err)
			return
		}
	}
}

// enter notes that a stream of an observer is served. Of more than twice maxForwards the
// one that has been served the longest ends: it is left over from a connection that is
// gone, if the observer keeps to the protocol.
func (f *forwardServer) enter(ctx context.Context, site string) (_ context.Context, _ *guest, leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	this := &cancel
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.guests[site]
	if g == nil {
		g = &guest{large: make(chan struct{}, maxLargeForwards)}
		f.guests[site] = g
	}
	if len(g.streams) >= 2*maxForwards {
		(*g.streams[0])()
		g.streams = g.streams[1:]
	}
	g.streams = append(g.streams, this)
	return ctx, g, func() {
		cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, other := range g.streams {
			if other == this {
				g.streams = append(g.streams[:i:i], g.streams[i+1:]...)
				break
			}
		}
		if len(g.streams) == 0 && f.guests[site] == g {
			delete(f.guests, site)
		}
	}
}

// next answers one question. The error is io.EOF where there is none any more.
func (f *forwardServer) next(ctx context.Context, g *guest, s *quic.Stream) error {
	if err := s.SetReadDeadline(time.Now().Add(forwardIdle)); err != nil {
		return fmt.Errorf("wait for a question: %w", err)
	}
	size, err := quic.FrameSize(s, maxForward)
	if err != nil {
		return err
	}
	if size > largeForward {
		select {
		case g.large <- struct{}{}:
			defer func() { <-g.large }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := s.SetReadDeadline(time.Now().Add(stepTimeout)); err != nil {
		return fmt.Errorf("read a question: %w", err)
	}
	b, err := quic.FramePayload(s, size)
	if err != nil {
		return err
	}
	ask, err := decodeForwardAsk(b)
	if err != nil {
		return err
	}
	return say(s, newForwardAnswer(f.answer(ctx, s, ask)))
}

func decodeForwardAsk(b []byte) (*forwardAsk, error) {
	ask := new(forwardAsk)
	if err := streamDecoding.Unmarshal(b, ask); err != nil {
		return nil, fmt.Errorf("decode %T: %w", ask, err)
	}
	return ask, ask.check()
}

// answer has the desk answer. Where the observer ends the stream, its client is gone.
func (f *forwardServer) answer(ctx context.Context, s *quic.Stream, ask *forwardAsk) answer {
	q, err := ask.question(s.Peer().Name)
	if err != nil {
		return answer{err: err}
	}
	n := int64(len(q.value))
	if err := f.admit(n); err != nil {
		return answer{err: err}
	}
	defer f.release(n)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.Context(), cancel)()
	return f.desk.ask(ctx, q)
}

// admit makes room for a request with a value of n bytes, here and at the desk.
func (f *forwardServer) admit(n int64) error {
	f.mu.Lock()
	full := f.requests >= maxForwarded || f.bytes+n > maxForwardedBytes
	if !full {
		f.requests++
		f.bytes += n
	}
	requests, bytes := f.requests, f.bytes
	f.mu.Unlock()
	if full {
		return fmt.Errorf("%w: the agent is busy with %d requests of observers, of %d bytes: nothing changed, try again", client.ErrNotSent, requests, bytes)
	}
	if err := f.desk.admit(n); err != nil {
		f.leave(n)
		return err
	}
	return nil
}

func (f *forwardServer) release(n int64) {
	f.desk.release(n)
	f.leave(n)
}

func (f *forwardServer) leave(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests--
	f.bytes -= n
}
