//go:build unix

package torture

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxHeld bounds the packets under way from one site to another; what
	// comes then is lost, as at a router.
	maxHeld   = 4096
	maxPacket = 2048 // bytes; a larger one is lost
)

// relay stands between sites. Each has a public address there. What one sends
// to another's arrives there from the first one's, after what the lane between
// them does to it. All methods may be called concurrently.
type relay struct {
	private []netip.AddrPort // where the sites really are
	public  []*net.UDPConn
	sites   map[netip.AddrPort]int

	mu       sync.Mutex
	rng      *rand.Rand
	lanes    [][]lane // by sender and receiver
	base     link
	overlays []*overlay
	queue    packets
	number   uint64        // of the last packet in the queue
	wake     chan struct{} // holds one: the queue has a new first

	stop    chan struct{}
	wg      sync.WaitGroup
	passed  atomic.Int64 // packets sent on
	lost    atomic.Int64 // packets and copies not sent on
	strange atomic.Int64 // packets from nobody's address
}

// overlay is what a fault does to links.
type overlay struct{ apply func(from, to int, l *link) }

// newRelay returns a running relay between sites at the given addresses, with
// all links as base says. Close ends it.
func newRelay(private []netip.AddrPort, base link, seed uint64) (*relay, error) {
	r := &relay{
		private: private, base: base, sites: map[netip.AddrPort]int{},
		rng:  rand.New(rand.NewPCG(seed, streamRelay)),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	for i, addr := range private {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a public address: %w", err), r.close())
		}
		_ = c.SetReadBuffer(1 << 20) // as much of it as the system grants
		r.public = append(r.public, c)
		r.sites[addr] = i
		r.lanes = append(r.lanes, make([]lane, len(private)))
	}
	r.refresh()
	for i := range r.public {
		r.wg.Go(func() { r.read(i) })
	}
	r.wg.Go(r.deliver)
	return r, nil
}

// close ends the relay and waits for all that it started.
func (r *relay) close() error {
	close(r.stop)
	var errs []error
	for _, c := range r.public {
		errs = append(errs, c.Close())
	}
	r.wg.Wait()
	return errors.Join(errs...)
}

// address returns the public address of site i.
func (r *relay) address(i int) string { return r.public[i].LocalAddr().String() }

// put changes links until the returned function is called. Several changes may
// hold at a time.
func (r *relay) put(apply func(from, to int, l *link)) (remove func()) {
	o := &overlay{apply}
	r.change(func() { r.overlays = append(r.overlays, o) })
	return func() {
		r.change(func() { r.overlays = slices.DeleteFunc(r.overlays, func(p *overlay) bool { return p == o }) })
	}
}

func (r *relay) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.refresh()
}

// refresh makes each link what the overlays make of the base.
func (r *relay) refresh() {
	for from := range r.lanes {
		for to := range r.lanes[from] {
			l := r.base
			for _, o := range r.overlays {
				o.apply(from, to, &l)
			}
			r.lanes[from][to].link = l
		}
	}
}

// read takes what is sent to site to.
func (r *relay) read(to int) {
	buf := make([]byte, maxPacket+1)
	for {
		n, source, err := r.public[to].ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		from, ok := r.sites[netip.AddrPortFrom(source.Addr().Unmap(), source.Port())]
		switch {
		case err != nil: // one packet's, not the socket's
		case !ok || from == to:
			r.strange.Add(1)
		case n <= maxPacket:
			r.pass(from, to, buf[:n])
		}
	}
}

// pass decides what becomes of a packet, which is the caller's again afterwards.
func (r *relay) pass(from, to int, b []byte) {
	first, atOnce := r.admit(from, to, b, time.Now())
	for range atOnce {
		r.send(from, to, b)
	}
	if first {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// admit puts the copies of a packet that are to come later into the queue. It
// returns whether one of them is the queue's first now, and how many are to be
// sent at once.
func (r *relay) admit(from, to int, b []byte, now time.Time) (first bool, atOnce int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.lanes[from][to]
	fates := l.fates(now, r.rng)
	if len(fates) == 0 {
		r.lost.Add(1)
	}
	for _, due := range fates {
		if !due.After(now) {
			atOnce++
			continue
		}
		if l.held >= maxHeld {
			r.lost.Add(1)
			continue
		}
		l.held++
		r.number++
		p := &packet{due: due, number: r.number, from: from, to: to, bytes: append([]byte(nil), b...)}
		heap.Push(&r.queue, p)
		first = first || r.queue[0] == p
	}
	return first, atOnce
}

func (r *relay) send(from, to int, b []byte) {
	if _, err := r.public[from].WriteToUDPAddrPort(b, r.private[to]); err == nil {
		r.passed.Add(1)
	}
}

// deliver sends what is due.
func (r *relay) deliver() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := r.due(time.Now())
		for _, p := range due {
			r.send(p.from, p.to, p.bytes)
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-r.wake:
		case <-r.stop:
			return
		}
	}
}

// due takes out what is due, and says how long it is until there is more.
func (r *relay) due(now time.Time) (due []*packet, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) > 0 && !r.queue[0].due.After(now) {
		p := heap.Pop(&r.queue).(*packet)
		l := &r.lanes[p.from][p.to]
		l.held--
		if l.cut {
			r.lost.Add(1)
			continue
		}
		due = append(due, p)
	}
	if len(r.queue) == 0 {
		return due, time.Hour
	}
	return due, r.queue[0].due.Sub(now)
}
