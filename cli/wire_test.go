//go:build unix

package cli

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// wire stands between sites, so that one can be cut off while its agent runs. Each has a
// public address there, at which the others know it, and what one sends to another's
// arrives from the first one's.
type wire struct {
	public  []*net.UDPConn
	private []netip.AddrPort
	sites   map[netip.AddrPort]int
	cut     []atomic.Bool // by site: nothing comes, nothing leaves
	wg      sync.WaitGroup
}

// newWire returns a wire between n sites, which ends with the test.
func newWire(t *testing.T, n int) *wire {
	w := &wire{sites: map[netip.AddrPort]int{}, cut: make([]atomic.Bool, n)}
	for i := range n {
		addr := freeAddress(t, w.private)
		w.private, w.sites[addr] = append(w.private, addr), i
		public, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		_ = public.SetReadBuffer(4 << 20) // as much of it as the system grants
		w.public = append(w.public, public)
	}
	for i := range n {
		w.wg.Go(func() { w.carry(i) })
	}
	t.Cleanup(func() {
		for _, c := range w.public {
			c.Close()
		}
		w.wg.Wait()
	})
	return w
}

// freeAddress returns a UDP address that nobody listens at, below the ports that the
// system hands out by itself: while an agent is down it stays free.
func freeAddress(t *testing.T, taken []netip.AddrPort) netip.AddrPort {
	for range 1000 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(15000+rand.IntN(15000)))
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			continue
		}
		c.Close()
		if !slices.Contains(taken, addr) {
			return addr
		}
	}
	t.Fatal("there is no free UDP port")
	return netip.AddrPort{}
}

// carry passes on what is sent to site to.
func (w *wire) carry(to int) {
	buf := make([]byte, 1<<16)
	for {
		n, source, err := w.public[to].ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		from, ok := w.sites[netip.AddrPortFrom(source.Addr().Unmap(), source.Port())]
		if err != nil || !ok || w.cut[from].Load() || w.cut[to].Load() {
			continue
		}
		// What cannot be sent is lost, as packets are.
		_, _ = w.public[from].WriteToUDPAddrPort(buf[:n], w.private[to])
	}
}
