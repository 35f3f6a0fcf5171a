package quic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// Connection codes tell the other side why a connection was ended.
const (
	connClosed    quicgo.ApplicationErrorCode = 0 // this site stops
	connDuplicate quicgo.ApplicationErrorCode = 1 // there is a better connection already
	connReplaced  quicgo.ApplicationErrorCode = 2 // a better connection took its place
	connRefused   quicgo.ApplicationErrorCode = 3 // the hello was not acceptable
	connBusy      quicgo.ApplicationErrorCode = 4 // too many are saying hello at once
	connTwin      quicgo.ApplicationErrorCode = 5 // another process runs under the dialler's identity
	connSelf      quicgo.ApplicationErrorCode = 6 // the dialler has reached itself
)

const (
	// grace is how long a replaced connection still delivers what is under way.
	grace = 2 * time.Second
	// maxServing is how many streams of one connection are served at once.
	maxServing = 64
	// purposeTimeout is how long a stream may take to say its purpose.
	purposeTimeout = 10 * time.Second
)

// conn is one connection to a peer that has said hello.
type conn struct {
	e        *Endpoint
	peer     *peer
	qc       *quicgo.Conn
	dialled  bool // by this site
	boot     uint64
	instance uint64 // the peer's, 0 where it said none
	attempt  uint64 // the dialler's number of this connection, 0 where it said none
	observed string // where the peer sees this site, "" where it said nothing
	register bool   // both are voters of one configuration: the register lane is open
	since    time.Time

	messages  chan struct{} // holds a token while register messages wait
	datagrams chan struct{} // holds a token while gossip packets wait
	retired   chan struct{} // closed once another connection took its place
	heard     atomic.Int64  // Unix nanoseconds of the last thing that arrived
}

func (e *Endpoint) newConn(p *peer, qc *quicgo.Conn, dialled bool, h hello) *conn {
	c := &conn{
		e: e, peer: p, qc: qc, dialled: dialled, since: time.Now(),
		boot: h.Boot, instance: h.Instance, observed: h.Observed,
		register: e.id.Role == RoleVoter && p.site.Role == RoleVoter && h.Configuration == e.cfg.Configuration,
		messages: make(chan struct{}, 1), datagrams: make(chan struct{}, 1),
		retired: make(chan struct{}),
	}
	// What was queued before is for this connection to send.
	wake(c.messages)
	wake(c.datagrams)
	c.hear()
	return c
}

// hear notes that something arrived.
func (c *conn) hear() { c.heard.Store(time.Now().UnixNano()) }

// retire takes c out of use, under its peer's lock and once.
func (c *conn) retire() { close(c.retired) }

// lowerDialled says whether the lower of the two sites dialled.
func (c *conn) lowerDialled() bool {
	return c.dialled == (compareSites(c.e.id.Site, c.peer.site) < 0)
}

// serve runs the connection until it ends, ctx ends, or another took its place
// and the grace is over; then it waits for all that it started.
func (c *conn) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, f := range []func(context.Context){
		c.writeBatches, c.readBatches, c.writeDatagrams, c.readDatagrams, c.acceptStreams,
	} {
		wg.Go(func() { f(ctx) })
	}
	code, reason := c.wait(ctx)
	c.e.noteTwin(context.Cause(c.qc.Context()), c.qc.RemoteAddr())
	if c.peer.remove(c) {
		c.e.log.Info("disconnected", "peer", c.peer.site.Name, "addr", c.qc.RemoteAddr(), "why", reason)
		c.e.notify(c.peer)
	}
	_ = c.qc.CloseWithError(code, reason) // what it returns says nothing new
	cancel()
	wg.Wait()
}

func (c *conn) wait(ctx context.Context) (quicgo.ApplicationErrorCode, string) {
	select {
	case <-c.qc.Context().Done():
		return connClosed, context.Cause(c.qc.Context()).Error()
	case <-ctx.Done():
		return connClosed, "this site stops"
	case <-c.retired:
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.qc.Context().Done():
	case <-ctx.Done():
	case <-timer.C:
	}
	return connReplaced, "replaced"
}

// check says whether a batch is of the cluster, configuration and process that
// said hello.
func (c *conn) check(h Header) error {
	switch {
	case h.Cluster != c.e.id.Cluster:
		return &strangerError{c.e.id.Cluster, fmt.Sprintf("cluster %s by its batch", h.Cluster)}
	case h.Configuration != c.e.cfg.Configuration:
		return fmt.Errorf("a batch of configuration %d, this site has %d", h.Configuration, c.e.cfg.Configuration)
	case h.Boot != c.boot:
		return fmt.Errorf("a batch of boot %d, the connection is of boot %d", h.Boot, c.boot)
	}
	return nil
}

// refuse counts and logs what was not acceptable, unless the connection ended
// in the middle of it.
func (c *conn) refuse(ctx context.Context, what string, err error) {
	if ctx.Err() != nil || c.qc.Context().Err() != nil {
		return
	}
	c.peer.count(func(s *Counters) { s.Refused++ })
	c.e.limited.warn("refused "+what, "peer", c.peer.site.Name, "err", err)
}

// writeDatagrams is the only sender of gossip packets: sending blocks while 32
// of them wait in the connection.
func (c *conn) writeDatagrams(ctx context.Context) {
	for {
		select {
		case <-c.datagrams:
		case <-ctx.Done():
			return
		}
		for b := c.peer.takeDatagram(c); b != nil; b = c.peer.takeDatagram(c) {
			err := c.qc.SendDatagram(b)
			c.peer.count(func(s *Counters) {
				if err != nil {
					s.DatagramsDropped++
				} else {
					s.DatagramsSent++
				}
			})
			var large *quicgo.DatagramTooLargeError
			if errors.As(err, &large) {
				c.e.limited.warn("a gossip packet is too large for the path", "peer", c.peer.site.Name,
					"size", len(b), "limit", large.MaxDatagramPayloadSize)
			}
		}
	}
}

func (c *conn) readDatagrams(ctx context.Context) {
	for {
		b, err := c.qc.ReceiveDatagram(ctx)
		if err != nil {
			return
		}
		c.hear()
		c.peer.count(func(s *Counters) { s.DatagramsReceived++ })
		if c.e.cfg.Datagram != nil {
			c.e.cfg.Datagram(c.peer.site, b)
		}
	}
}

// acceptStreams serves the peer's bidirectional streams.
func (c *conn) acceptStreams(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxServing)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s, err := c.qc.AcceptStream(ctx)
		if err != nil {
			return
		}
		c.hear()
		wg.Go(func() {
			defer func() { <-slots }()
			st := &Stream{qs: s, conn: c.qc, peer: c.peer.site}
			if err := c.handle(ctx, st); err != nil {
				st.abort(streamRefused)
				c.refuse(ctx, "a stream", err)
			}
		})
	}
}

// handle reads what a stream is for and has it served.
func (c *conn) handle(ctx context.Context, s *Stream) error {
	if err := s.SetReadDeadline(time.Now().Add(purposeTimeout)); err != nil {
		return fmt.Errorf("serve a stream: %w", err)
	}
	p, err := readPurpose(s)
	if err != nil {
		return err
	}
	h := c.e.cfg.Handlers[p]
	if h == nil {
		return fmt.Errorf("purpose %d is not known", p)
	}
	if err := s.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("serve a stream: %w", err)
	}
	c.peer.count(func(s *Counters) { s.StreamsServed++ })
	h(ctx, c.peer.site, s)
	_ = s.Close()
	return nil
}

// open opens a stream to the peer.
func (c *conn) open(ctx context.Context, p Purpose) (*Stream, error) {
	qs, err := c.qc.OpenStreamSync(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a stream to %s: %w", c.peer.site.Name, err)
	}
	s := &Stream{qs: qs, conn: c.qc, peer: c.peer.site}
	if _, err := s.Write([]byte{byte(p)}); err != nil {
		s.abort(streamDone)
		return nil, fmt.Errorf("open a stream to %s: %w", c.peer.site.Name, err)
	}
	return s, nil
}

// header is what each of this site's batches says of it.
func (e *Endpoint) header() Header {
	h := Header{Cluster: e.id.Cluster, Configuration: e.cfg.Configuration, Boot: e.cfg.Boot}
	if p := e.progress.Load(); p != nil {
		h.Progress = *p
	}
	return h
}
