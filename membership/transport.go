package membership

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"gus/quic"
)

// Purposes of this package's streams.
const (
	PurposeGossip    quic.Purpose = 1 // memberlist's exchange of all it knows
	PurposeAdmission quic.Purpose = 2 // a site passes a question on to the founding one
)

// maxGossipStream is how much of one gossip stream is read, in bytes: all that
// maxMembers sites say of themselves, twice.
const maxGossipStream = 2 << 20

// nowhere stands for every site's address within memberlist. Packets and
// streams go by name, over whatever connection there is with that site; where a
// site can be dialled is in its description. So an address that changes is no
// conflict, and a site that can only dial out needs none.
var nowhere = net.IPv4(127, 0, 0, 1)

const nowherePort = 7487

// transport carries memberlist over an endpoint's lanes. It is the only code that
// knows both.
type transport struct {
	endpoint *quic.Endpoint // set before opened is closed
	refused  func(from string, err error)
	packets  chan *memberlist.Packet
	streams  chan net.Conn
	opened   chan struct{}
	closed   chan struct{}
	close    sync.Once
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(refused func(from string, err error)) *transport {
	return &transport{
		refused: refused, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		opened: make(chan struct{}), closed: make(chan struct{}),
	}
}

// open begins to carry.
func (t *transport) open(e *quic.Endpoint) {
	t.endpoint = e
	close(t.opened)
}

// sender is a packet's net.Addr: the name that the sender's certificate says.
type sender string

func (sender) Network() string  { return "gus" }
func (s sender) String() string { return string(s) }

// datagram takes a packet from the endpoint. While memberlist is busy the
// sender's next ones wait, and then are lost.
func (t *transport) datagram(from quic.Site, packet []byte) {
	select {
	case <-t.opened:
	default:
		return
	}
	if err := checkClaims(from.Name, packet); err != nil {
		t.refused(from.Name, err)
		return
	}
	select {
	case t.packets <- &memberlist.Packet{Buf: packet, From: sender(from.Name), Timestamp: time.Now()}:
	case <-t.closed:
	}
}

// stream takes a stream from the endpoint, and returns when memberlist is done
// with it.
func (t *transport) stream(ctx context.Context, _ quic.Site, s *quic.Stream) {
	c := &gossipConn{Stream: s, left: maxGossipStream, done: make(chan struct{})}
	select {
	case t.streams <- c: // nobody receives before opened and after closed
	case <-t.closed:
		return
	case <-ctx.Done():
		return
	case <-time.After(streamWait):
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
}

// streamWait is how long a stream waits for memberlist to begin.
const streamWait = 10 * time.Second

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return nowhere, nowherePort, nil
}

// WriteTo implements memberlist.Transport, which has a name for every packet.
func (t *transport) WriteTo([]byte, string) (time.Time, error) {
	return time.Time{}, errNameless
}

var errNameless = errors.New("a site is known by its name, not by its address")

// WriteToAddress implements memberlist.NodeAwareTransport. It never blocks.
func (t *transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	err := t.endpoint.SendDatagram(to.Name, b)
	if errors.Is(err, quic.ErrUnknownPeer) {
		err = nil // heard of a moment ago: lost, as a packet may be
	}
	return time.Now(), err
}

// DialTimeout implements memberlist.Transport, likewise.
func (t *transport) DialTimeout(string, time.Duration) (net.Conn, error) { return nil, errNameless }

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	select {
	case <-t.closed:
		return nil, net.ErrClosed
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, err := t.endpoint.OpenStream(ctx, to.Name, PurposeGossip)
	if err != nil {
		return nil, err
	}
	return &gossipConn{Stream: s, left: maxGossipStream, done: make(chan struct{})}, nil
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown implements memberlist.Transport. memberlist goes on calling: packets
// and streams are then net.ErrClosed.
func (t *transport) Shutdown() error {
	t.close.Do(func() { close(t.closed) })
	return nil
}

// gossipConn is a stream that says when memberlist has closed it.
type gossipConn struct {
	*quic.Stream
	left int // bytes that may still be read
	done chan struct{}
	once sync.Once
}

func (c *gossipConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Stream.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func (c *gossipConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Stream.Close()
}
