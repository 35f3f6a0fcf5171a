package quic

import (
	"context"
	"errors"
	"fmt"
	"net"

	quicgo "github.com/quic-go/quic-go"

	"gus/register"
)

// Run runs the endpoint until ctx ends or Close is called, and then returns
// nil, after all that it started has ended. Another error means that the
// socket failed. It is called once.
func (e *Endpoint) Run(ctx context.Context) error {
	if !e.begin() {
		return net.ErrClosed
	}
	defer close(e.done)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	listener, err := e.transport.Listen(e.tls, quicConfig())
	if err != nil {
		failed <- err
	} else {
		e.wg.Go(func() {
			if err := e.accept(ctx, listener); err != nil {
				failed <- err
			}
		})
	}
	err = e.direct(ctx, failed)
	e.shut()
	cancel()
	e.wg.Wait()
	// Only now: closing the transport says nothing to the peers.
	return errors.Join(err, e.release())
}

// begin says whether Run may begin.
func (e *Endpoint) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	ok := !e.running && !e.closed
	e.running = true
	return ok
}

// direct starts what keeps each peer connected, until the endpoint is to end.
func (e *Endpoint) direct(ctx context.Context, failed <-chan error) error {
	for {
		for _, p := range e.takePending() {
			e.wg.Go(func() { e.keepConnected(ctx, p) })
		}
		select {
		case <-e.starts:
		case c := <-e.met:
			e.wg.Go(func() { c.serve(ctx) })
		case <-ctx.Done():
			return nil
		case <-e.stop:
			return nil
		case err := <-failed:
			return fmt.Errorf("accept connections: %w", err)
		}
	}
}

func (e *Endpoint) takePending() []*peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pending
	e.pending = nil
	return p
}

// shut makes all methods return net.ErrClosed and Run end. It says whether Run
// was called, and whether this was the first call of shut.
func (e *Endpoint) shut() (running, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first = !e.closed
	if first {
		e.closed = true
		close(e.stop)
	}
	return e.running, first
}

// release gives the socket up.
func (e *Endpoint) release() error {
	if err := errors.Join(e.transport.Close(), e.cfg.Conn.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the socket: %w", err)
	}
	return nil
}

// Close ends the endpoint and waits for Run to return. It may be called more
// than once, and without Run.
func (e *Endpoint) Close() error {
	running, first := e.shut()
	if running {
		<-e.done
		return nil
	}
	if !first {
		return nil
	}
	return e.release()
}

// accept takes incoming connections until ctx ends.
func (e *Endpoint) accept(ctx context.Context, l *quicgo.Listener) error {
	slots, joins := make(chan struct{}, maxHellos), make(chan struct{}, maxJoins)
	for {
		qc, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		into, serve := slots, e.receive
		if qc.ConnectionState().TLS.NegotiatedProtocol == JoinALPN {
			into, serve = joins, e.serveJoin
		}
		select {
		case into <- struct{}{}:
			e.wg.Go(func() { serve(ctx, qc, func() { <-into }) })
		default:
			_ = qc.CloseWithError(connBusy, "too many connections at once, try again")
		}
	}
}

// receive serves an incoming connection of a site; welcomed is called when
// that has said hello, or has not.
func (e *Endpoint) receive(ctx context.Context, qc *quicgo.Conn, welcomed func()) {
	c, err := e.welcome(ctx, qc)
	welcomed()
	switch {
	case err == nil:
		c.serve(ctx)
	case errors.Is(err, errDuplicate), errors.Is(err, errSelf): // two sites that dial at once do that
	default:
		e.limited.warn("refused a connection", "from", qc.RemoteAddr(), "err", err)
	}
}

var (
	// errDuplicate is what becomes of the second of two connections.
	errDuplicate = errors.New("connected already")
	// errTwin is what becomes of a connection of a second process.
	errTwin = errors.New("another process is connected under this identity: is its data directory a copy?")
	// errSelf says that a site has dialled itself.
	errSelf = errors.New("this is the site itself")
)

// welcome makes an incoming connection the one in use, or ends it.
func (e *Endpoint) welcome(ctx context.Context, qc *quicgo.Conn) (*conn, error) {
	site, err := verify(qc.ConnectionState().TLS.PeerCertificates, e.id.CA)
	if err != nil {
		return nil, refuse(qc, err)
	}
	h, st, err := e.hearHello(ctx, qc)
	if err != nil {
		return nil, refuse(qc, fmt.Errorf("%s: %w", site, err))
	}
	if site == e.id.Site {
		return nil, e.mirror(qc, h)
	}
	p, err := e.known(site)
	if err != nil {
		return nil, refuse(qc, err)
	}
	c := e.newConn(p, qc, false, h)
	c.attempt = h.Attempt
	if err := e.install(c); err != nil {
		return nil, err
	}
	// The answer comes after the decision: with it, the other side may rely
	// on the connection. Where it fails, so does the connection.
	if err := e.writeHello(st, 0); err != nil {
		_ = qc.CloseWithError(connRefused, "hello could not be answered")
	}
	_ = st.Close()
	return c, nil
}

// mirror ends a connection of somebody with this site's own identity: this site
// itself, or a twin.
func (e *Endpoint) mirror(qc *quicgo.Conn, h hello) error {
	if h.Instance == e.instance {
		_ = qc.CloseWithError(connSelf, errSelf.Error())
		return errSelf
	}
	_ = qc.CloseWithError(connTwin, errTwin.Error())
	e.twin(e.id.Site, qc.RemoteAddr())
	return errTwin
}

// install puts a connection to use, or ends it and says why.
func (e *Endpoint) install(c *conn) error {
	err := c.peer.install(c)
	switch {
	case errors.Is(err, errTwin):
		_ = c.qc.CloseWithError(connTwin, err.Error())
		e.twin(c.peer.site, c.qc.RemoteAddr())
	case err != nil:
		_ = c.qc.CloseWithError(connDuplicate, err.Error())
	default:
		e.announce(c)
	}
	return err
}

// twin tells that a site runs twice.
func (e *Endpoint) twin(site Site, at net.Addr) {
	if e.cfg.Twin != nil {
		e.cfg.Twin(site, at)
	}
}

// noteTwin looks whether the other side ended a connection because this site
// runs twice.
func (e *Endpoint) noteTwin(err error, at net.Addr) {
	var app *quicgo.ApplicationError
	if errors.As(err, &app) && app.Remote && app.ErrorCode == connTwin {
		e.twin(e.id.Site, at)
	}
}

// refuse ends a connection that must not be, and returns why.
func refuse(qc *quicgo.Conn, err error) error {
	_ = qc.CloseWithError(connRefused, err.Error())
	return err
}

// known returns the peer that a certificate names; it is made known by it,
// unless the configuration or another certificate says otherwise.
func (e *Endpoint) known(site Site) (*peer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peerOf(site)
}

// peerOf returns the peer of the site, under the lock.
func (e *Endpoint) peerOf(site Site) (*peer, error) {
	if site.Name == e.id.Name || site.Number != 0 && site.Number == e.id.Number {
		return nil, fmt.Errorf("%s bears this site's own name or number: is its identity a copy?", site)
	}
	if site.Role == RoleObserver && e.id.Role == RoleObserver {
		return nil, fmt.Errorf("%s: observers connect with voters only", site)
	}
	if p := e.peers[site.Name]; p != nil {
		if p.site != site {
			return nil, fmt.Errorf("%s is known as %s", site, p.site)
		}
		return p, nil
	}
	if site.Number != 0 {
		if p := e.voters[site.Number]; p != nil {
			return nil, fmt.Errorf("%s: voter %d is known as %s", site, site.Number, p.site.Name)
		}
	}
	p := newPeer(site)
	e.peers[site.Name] = p
	if site.Role == RoleVoter {
		e.voters[site.Number] = p
	}
	return p, nil
}

// announce tells of a connection that came into use.
func (e *Endpoint) announce(c *conn) {
	e.log.Info("connected", "peer", c.peer.site.Name, "addr", c.qc.RemoteAddr(),
		"dialled", c.dialled, "boot", c.boot, "register", c.register)
	e.notify(c.peer)
}

func (e *Endpoint) notify(p *peer) {
	if e.cfg.Peer != nil {
		p.notify(e.cfg.Peer)
	}
	if e.cfg.Changed != nil {
		e.cfg.Changed()
	}
}

// Connected returns the voters that register messages can go out to now.
func (e *Endpoint) Connected() register.Set {
	var s register.Set
	e.mu.Lock()
	defer e.mu.Unlock()
	for v, p := range e.voters {
		if p == nil {
			continue
		}
		if c, _ := p.current(); c != nil && c.register {
			s = s.With(register.Voter(v))
		}
	}
	return s
}
