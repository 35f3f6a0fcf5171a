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
	slots := make(chan struct{}, maxHellos)
	for {
		qc, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case slots <- struct{}{}:
			e.wg.Go(func() {
				c, err := e.welcome(ctx, qc)
				<-slots
				switch {
				case err == nil:
					c.serve(ctx)
				case errors.Is(err, errDuplicate): // two sites that dial at once do that
				default:
					e.limited.warn("refused a connection", "from", qc.RemoteAddr(), "err", err)
				}
			})
		default:
			_ = qc.CloseWithError(connBusy, "too many connections at once, try again")
		}
	}
}

// errDuplicate is what becomes of the second of two connections.
var errDuplicate = errors.New("connected already")

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
	p, err := e.known(site)
	if err != nil {
		return nil, refuse(qc, err)
	}
	c := e.newConn(p, qc, false, h)
	if !p.install(c) {
		_ = qc.CloseWithError(connDuplicate, errDuplicate.Error())
		return nil, errDuplicate
	}
	e.announce(c)
	// The answer comes after the decision: with it, the other side may rely
	// on the connection. Where it fails, so does the connection.
	if err := e.writeHello(st); err != nil {
		_ = qc.CloseWithError(connRefused, "hello could not be answered")
	}
	_ = st.Close()
	return c, nil
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
	if e.cfg.Peer == nil {
		return
	}
	p.notify(e.cfg.Peer)
}

// dial connects to the peer at addr, the try-th of its addresses, and has the
// connection served.
func (e *Endpoint) dial(ctx context.Context, p *peer, addr string, try int) error {
	ctx2, cancel := context.WithTimeout(ctx, 2*helloTimeout)
	defer cancel()
	udp, err := resolve(ctx2, addr, try)
	if err != nil {
		return err
	}
	qc, err := e.transport.Dial(ctx2, udp, e.tls, quicConfig())
	if err != nil {
		return fmt.Errorf("dial %s: %w", udp, explain(err))
	}
	site, err := verify(qc.ConnectionState().TLS.PeerCertificates, e.id.CA)
	if err == nil && site != p.site {
		err = fmt.Errorf("at %s answers %s, not %s", udp, site, p.site)
	}
	if err != nil {
		return refuse(qc, err)
	}
	if p.wanted() == "" { // the peer was faster
		_ = qc.CloseWithError(connDuplicate, errDuplicate.Error())
		return nil
	}
	h, err := e.sayHello(ctx2, qc)
	if err != nil {
		return refuse(qc, explain(err))
	}
	c := e.newConn(p, qc, true, h)
	if !p.install(c) {
		_ = qc.CloseWithError(connDuplicate, errDuplicate.Error())
		return nil
	}
	e.announce(c)
	e.wg.Go(func() { c.serve(ctx) })
	return nil
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
