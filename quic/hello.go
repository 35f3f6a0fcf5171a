package quic

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// helloTimeout is how long both sides take at most to say hello.
const helloTimeout = 5 * time.Second

const maxHello = 256 // bytes

// hello is the first thing that the two ends of a connection say to each
// other, on a stream of purpose purposeHello that the dialler opens. Who they
// are they have proved before it, by certificate.
type hello struct {
	Version       uint64 `cbor:"1,keyasint"`
	Cluster       []byte `cbor:"2,keyasint"`
	Configuration uint64 `cbor:"3,keyasint"`
	Boot          uint64 `cbor:"4,keyasint"`
	// Instance is drawn by each process: it tells a restart from a twin.
	Instance uint64 `cbor:"5,keyasint,omitempty"`
	// Observed is where the sender sees the other one, IP:PORT: a site behind
	// a wildcard address or NAT cannot know that by itself.
	Observed string `cbor:"6,keyasint,omitempty"`
	// Attempt numbers the dialler's connections: both ends know which of two is
	// the later one, in whatever order they come to stand. The acceptor says 0.
	Attempt uint64 `cbor:"7,keyasint,omitempty"`
}

const helloVersion = 1

func (e *Endpoint) hello(to net.Addr, attempt uint64) hello {
	return hello{
		Version: helloVersion, Cluster: e.id.Cluster[:], Configuration: e.cfg.Configuration,
		Boot: e.cfg.Boot, Instance: e.instance, Observed: plainAddr(to), Attempt: attempt,
	}
}

// plainAddr is a as IP:PORT without a zone, which means nothing elsewhere, ""
// where a is something else.
func plainAddr(a net.Addr) string {
	udp, ok := a.(*net.UDPAddr)
	if !ok {
		return ""
	}
	ap := udp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()).String()
}

// check says whether the other side may stay. Another configuration is no
// reason to part: the site that is behind must be told.
func (h hello) check(ours Cluster) error {
	if h.Version != helloVersion {
		return fmt.Errorf("says hello in version %d, this is version %d", h.Version, helloVersion)
	}
	if string(h.Cluster) != string(ours[:]) {
		return &strangerError{ours, fmt.Sprintf("cluster %x by its hello", h.Cluster)}
	}
	return nil
}

// sayHello is the dialler's part: only with the answer is it connected, since
// TLS lets a dial succeed before the other side has judged the certificate.
func (e *Endpoint) sayHello(ctx context.Context, qc *quicgo.Conn, attempt uint64) (hello, error) {
	s, err := qc.OpenStreamSync(ctx)
	if err != nil {
		return hello{}, fmt.Errorf("say hello: %w", err)
	}
	st := &Stream{qs: s, conn: qc}
	defer st.Close()
	if err := st.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return hello{}, fmt.Errorf("say hello: %w", err)
	}
	if _, err := st.Write([]byte{byte(purposeHello)}); err != nil {
		return hello{}, fmt.Errorf("say hello: %w", err)
	}
	if err := e.writeHello(st, attempt); err != nil {
		return hello{}, fmt.Errorf("say hello: %w", err)
	}
	return e.readHello(st)
}

// hearHello is the acceptor's part. The stream is returned for the answer.
func (e *Endpoint) hearHello(ctx context.Context, qc *quicgo.Conn) (hello, *Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	s, err := qc.AcceptStream(ctx)
	if err != nil {
		return hello{}, nil, fmt.Errorf("wait for hello: %w", err)
	}
	st := &Stream{qs: s, conn: qc}
	if err := st.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return hello{}, nil, fmt.Errorf("wait for hello: %w", err)
	}
	p, err := readPurpose(st)
	if err != nil {
		return hello{}, nil, fmt.Errorf("wait for hello: %w", err)
	}
	if p != purposeHello {
		return hello{}, nil, fmt.Errorf("wait for hello: the first stream is for purpose %d", p)
	}
	h, err := e.readHello(st)
	return h, st, err
}

func (e *Endpoint) writeHello(st *Stream, attempt uint64) error {
	b, err := encoding.Marshal(e.hello(st.RemoteAddr(), attempt))
	if err != nil {
		return fmt.Errorf("encode hello: %w", err)
	}
	return WriteFrame(st, b)
}

func (e *Endpoint) readHello(st *Stream) (hello, error) {
	b, err := ReadFrame(st, maxHello)
	if err != nil {
		return hello{}, fmt.Errorf("wait for hello: %w", err)
	}
	var h hello
	if err := decoding.Unmarshal(b, &h); err != nil {
		return hello{}, fmt.Errorf("decode hello: %w", err)
	}
	if _, err := netip.ParseAddrPort(h.Observed); err != nil {
		h.Observed = "" // a courtesy, which may be missing
	}
	return h, h.check(e.id.Cluster)
}
