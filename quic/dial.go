package quic

import (
	"context"
	"errors"
	"fmt"
	"net"

	quicgo "github.com/quic-go/quic-go"
)

// ErrSelf is returned by Meet where nobody but this site itself answers.
var ErrSelf = errors.New("at this address answers this site itself")

// dial connects to the peer at addr, the try-th of its addresses, and has the
// connection served.
func (e *Endpoint) dial(ctx context.Context, p *peer, addr string, try int) error {
	dialling, cancel := context.WithTimeout(ctx, 2*helloTimeout)
	defer cancel()
	at, err := lookup(dialling, addr, e.cfg.Lookup)
	if err != nil {
		return err
	}
	udp := at[try%len(at)]
	qc, site, err := e.reach(dialling, udp)
	if err != nil {
		return err
	}
	if site != p.site {
		return refuse(qc, fmt.Errorf("at %s answers %s, not %s", udp, site, p.site))
	}
	c, err := e.greet(dialling, p, qc)
	if err != nil || c == nil {
		return err
	}
	e.wg.Go(func() { c.serve(ctx) })
	return nil
}

// Meet connects to whoever of the cluster is at host:port, of which no more is
// known: the certificate says who it is, and that site is then a known peer.
// It returns those that it met at the addresses of a name, also where they were
// connected already. Only where there was nobody is there an error: ErrSelf
// where only this site itself answered. Run must be running.
func (e *Endpoint) Meet(ctx context.Context, addr string) ([]Site, error) {
	at, err := lookup(ctx, addr, e.cfg.Lookup)
	if err != nil {
		return nil, err
	}
	var met []Site
	var failures error
	for _, udp := range at {
		site, err := e.meet(ctx, udp)
		if err == nil {
			met = append(met, site)
		} else if failures == nil || errors.Is(failures, ErrSelf) {
			failures = err
		}
	}
	if len(met) > 0 {
		return met, nil
	}
	return nil, failures
}

func (e *Endpoint) meet(ctx context.Context, udp *net.UDPAddr) (Site, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*helloTimeout)
	defer cancel()
	qc, site, err := e.reach(ctx, udp)
	if err != nil {
		return Site{}, err
	}
	if site == e.id.Site {
		return Site{}, e.meetSelf(ctx, qc)
	}
	p, err := e.known(site)
	if err != nil {
		return Site{}, refuse(qc, fmt.Errorf("at %s: %w", udp, err))
	}
	c, err := e.greet(ctx, p, qc)
	if err != nil || c == nil {
		return site, err
	}
	select {
	case e.met <- c:
		return site, nil
	case <-e.stop:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	if p.remove(c) {
		e.notify(p)
	}
	return Site{}, refuse(qc, err)
}

// meetSelf finds out whether somebody with this site's certificate is this
// site: the other side knows.
func (e *Endpoint) meetSelf(ctx context.Context, qc *quicgo.Conn) error {
	_, err := e.sayHello(ctx, qc, e.attempts.Add(1))
	_ = qc.CloseWithError(connSelf, errSelf.Error())
	var app *quicgo.ApplicationError
	if errors.As(err, &app) && app.ErrorCode == connTwin {
		e.twin(e.id.Site, qc.RemoteAddr())
		return errTwin
	}
	return ErrSelf
}

// reach dials udp, and returns who answered, by its certificate.
func (e *Endpoint) reach(ctx context.Context, udp *net.UDPAddr) (*quicgo.Conn, Site, error) {
	qc, err := e.transport.Dial(ctx, udp, e.tls, quicConfig())
	if err != nil {
		return nil, Site{}, fmt.Errorf("dial %s: %w", udp, explain(err))
	}
	site, err := verify(qc.ConnectionState().TLS.PeerCertificates, e.id.CA)
	if err != nil {
		return nil, Site{}, refuse(qc, err)
	}
	return qc, site, nil
}

// greet says hello to the peer and makes qc its connection. The result is nil,
// without an error, where there is one already.
func (e *Endpoint) greet(ctx context.Context, p *peer, qc *quicgo.Conn) (*conn, error) {
	if c, _ := p.current(); c != nil { // the peer was faster
		_ = qc.CloseWithError(connDuplicate, errDuplicate.Error())
		return nil, nil
	}
	attempt := e.attempts.Add(1)
	h, err := e.sayHello(ctx, qc, attempt)
	if err != nil {
		e.noteTwin(err, qc.RemoteAddr())
		return nil, refuse(qc, explain(err))
	}
	c := e.newConn(p, qc, true, h)
	c.attempt = attempt
	if err := e.install(c); errors.Is(err, errDuplicate) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return c, nil
}
