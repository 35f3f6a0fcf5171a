package cli

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// delayed is a UDP socket whose packets reach some addresses late, as if these
// were far away. Packets to one address keep their order. It stands between
// real sockets: all else that a network does to packets is real.
//
// Each far address has a goroutine that sleeps until the next packet is due,
// to the fraction of a millisecond: Go's timers may come a millisecond late,
// and there are two ways in a round trip. Its queue holds maxInFlight packets; what
// does not fit is lost, as on any full link.
//
// It embeds the interface, not the socket: whoever found the socket's other
// methods would send past the delay.
type delayed struct {
	net.PacketConn
	socket *net.UDPConn // the same
	to     map[netip.AddrPort]*lane
	mu     sync.RWMutex // closed is set under it, so that nobody sends to a closed lane
	closed bool
	wait   sync.WaitGroup
}

// lane is the way to one address.
type lane struct {
	delay time.Duration
	queue chan packet
}

type packet struct {
	due  time.Time
	data []byte
}

// maxInFlight packets of 1,200 bytes in 75 ms are some 0.8 Gbit/s.
const maxInFlight = 1 << 13

// newDelayed takes c over. Packets to addresses that delays does not have are
// not delayed.
func newDelayed(c *net.UDPConn, delays map[netip.AddrPort]time.Duration) *delayed {
	d := &delayed{PacketConn: c, socket: c, to: map[netip.AddrPort]*lane{}}
	for addr, delay := range delays {
		l := &lane{delay: delay, queue: make(chan packet, maxInFlight)}
		d.to[addr] = l
		d.wait.Go(func() { d.deliver(l, addr) })
	}
	return d
}

func (d *delayed) deliver(l *lane, addr netip.AddrPort) {
	for p := range l.queue {
		sleepUntil(p.due)
		// A packet that cannot be sent is lost, as packets are.
		_, _ = d.socket.WriteToUDPAddrPort(p.data, addr)
	}
}

// WriteTo sends p to addr after the delay of addr. Like every socket's it may
// be called concurrently.
func (d *delayed) WriteTo(p []byte, addr net.Addr) (int, error) {
	udp, ok := addr.(*net.UDPAddr)
	if !ok {
		return d.socket.WriteTo(p, addr)
	}
	to := udp.AddrPort()
	l := d.to[netip.AddrPortFrom(to.Addr().Unmap(), to.Port())]
	if l == nil {
		return d.socket.WriteTo(p, addr)
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return 0, net.ErrClosed
	}
	select {
	case l.queue <- packet{time.Now().Add(l.delay), append([]byte(nil), p...)}:
	default:
	}
	return len(p), nil
}

// Close closes the socket, drops what is on its way, and waits for the
// deliverers.
func (d *delayed) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return net.ErrClosed
	}
	d.closed = true
	for _, l := range d.to {
		close(l.queue)
		for range l.queue { // drop
		}
	}
	d.mu.Unlock()
	err := d.socket.Close()
	d.wait.Wait()
	return err
}

// SetReadBuffer sets the socket's receive buffer in bytes.
func (d *delayed) SetReadBuffer(bytes int) error { return d.socket.SetReadBuffer(bytes) }

// SetWriteBuffer sets the socket's send buffer in bytes.
func (d *delayed) SetWriteBuffer(bytes int) error { return d.socket.SetWriteBuffer(bytes) }
