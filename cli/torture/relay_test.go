//go:build unix

package torture

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestLinkLosesAndRepeats(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	l := lane{link: link{loss: 0.2, repeat: 0.1}}
	var lost, once, twice int
	for range 10_000 {
		switch len(l.fates(time.Now(), rng)) {
		case 0:
			lost++
		case 1:
			once++
		case 2:
			twice++
		}
	}
	if lost < 1_900 || lost > 2_100 || twice < 700 || twice > 900 || once+lost+twice != 10_000 {
		t.Errorf("of 10,000 packets %d are lost, %d come once, %d twice", lost, once, twice)
	}
	l.cut = true
	if n := len(l.fates(time.Now(), rng)); n != 0 {
		t.Errorf("%d copies pass a cut", n)
	}
}

// TestJitterKeepsTheOrder, unless packets are to be overtaken.
func TestJitterKeepsTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	overtaken := func(l lane) (n int) {
		now := time.Now()
		var last time.Time
		for i := range 1000 {
			sent := now.Add(time.Duration(i) * time.Millisecond)
			at := l.fates(sent, rng)[0]
			if at.Sub(sent) < l.delay {
				t.Errorf("a packet arrives %v after it was sent, over a link of %v", at.Sub(sent), l.delay)
			}
			if at.Before(last) {
				n++
			}
			last = at
		}
		return n
	}
	if n := overtaken(lane{link: link{delay: 10 * time.Millisecond, jitter: 20 * time.Millisecond}}); n != 0 {
		t.Errorf("jitter lets %d packets of 1,000 be overtaken", n)
	}
	if n := overtaken(lane{link: link{reorder: 0.1}}); n < 50 {
		t.Errorf("of 1,000 packets %d are overtaken, of which 1 in 10 is held back", n)
	}
}

// TestPacketsOfOneTimeKeepTheirOrder where they wait.
func TestPacketsOfOneTimeKeepTheirOrder(t *testing.T) {
	var q packets
	now := time.Now()
	for i := range 100 {
		heap.Push(&q, &packet{due: now.Add(time.Duration(i%3) * time.Second), number: uint64(i)})
	}
	last := heap.Pop(&q).(*packet)
	for q.Len() > 0 {
		p := heap.Pop(&q).(*packet)
		if p.due.Before(last.due) || p.due.Equal(last.due) && p.number < last.number {
			t.Fatalf("packet %d, due %v, comes after %d, due %v", p.number, p.due, last.number, last.due)
		}
		last = p
	}
}

// party is a relay with the sockets of three sites.
type party struct {
	t     *testing.T
	relay *relay
	sites []*net.UDPConn
}

func newParty(t *testing.T, base link) *party {
	p := &party{t: t}
	var private []netip.AddrPort
	for range 3 {
		p.sites = append(p.sites, socket(t))
		private = append(private, p.sites[len(private)].LocalAddr().(*net.UDPAddr).AddrPort())
	}
	var err error
	if p.relay, err = newRelay(private, base, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.relay.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func socket(t *testing.T) *net.UDPConn {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// says sends text from one site to another's public address.
func (p *party) says(from, to int, text string) {
	p.t.Helper()
	if _, err := p.sites[from].WriteToUDPAddrPort([]byte(text), netip.MustParseAddrPort(p.relay.address(to))); err != nil {
		p.t.Fatal(err)
	}
}

// hears wants the next packet of a site to be text, from another's public address.
func (p *party) hears(to, from int, text string) {
	p.t.Helper()
	b := make([]byte, maxPacket)
	p.sites[to].SetReadDeadline(time.Now().Add(time.Minute))
	n, source, err := p.sites[to].ReadFromUDPAddrPort(b)
	if err != nil {
		p.t.Fatal(err)
	}
	if got := string(b[:n]); got != text || source.String() != p.relay.address(from) {
		p.t.Fatalf("site %d hears %q from %v, want %q from %s", to, got, source, text, p.relay.address(from))
	}
}

// until waits for what the relay's goroutines do.
func (p *party) until(f func() bool) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatal("it does not happen")
		}
	}
}

func TestRelayPassesPacketsBothWays(t *testing.T) {
	for _, base := range []link{{}, {delay: time.Millisecond, jitter: time.Millisecond}} {
		p := newParty(t, base)
		for i := range 50 {
			text := fmt.Sprintf("packet %d", i)
			p.says(0, 1, text)
			p.says(2, 0, text)
			p.hears(1, 0, text)
			p.hears(0, 2, text)
		}
		for i := range 50 {
			p.says(1, 2, fmt.Sprint(i))
		}
		for i := range 50 {
			p.hears(2, 1, fmt.Sprint(i))
		}
	}
}

func TestRelayCutsOneWay(t *testing.T) {
	p := newParty(t, link{delay: time.Millisecond})
	heal := p.relay.put(func(from, to int, l *link) { l.cut = l.cut || from == 0 && to == 1 })
	other := p.relay.put(func(from, to int, l *link) { l.delay += time.Millisecond })
	p.says(0, 1, "lost")
	p.says(1, 0, "the other way")
	p.hears(0, 1, "the other way")
	p.says(0, 2, "elsewhere")
	p.hears(2, 0, "elsewhere")
	p.until(func() bool { return p.relay.lost.Load() == 1 })
	other()
	p.says(0, 1, "lost too")
	p.until(func() bool { return p.relay.lost.Load() == 2 })
	heal()
	p.says(0, 1, "again")
	p.hears(1, 0, "again")
}

// TestRelayPassesNothingOfStrangers, and nothing that a site sends to itself.
func TestRelayPassesNothingOfStrangers(t *testing.T) {
	p := newParty(t, link{})
	if _, err := socket(t).WriteToUDPAddrPort([]byte("let me in"), netip.MustParseAddrPort(p.relay.address(0))); err != nil {
		t.Fatal(err)
	}
	p.says(0, 0, "to myself")
	p.until(func() bool { return p.relay.strange.Load() == 2 })
	p.says(1, 0, "a friend")
	p.hears(0, 1, "a friend")
}

// TestRelayHoldsNoMoreThanItsBound.
func TestRelayHoldsNoMoreThanItsBound(t *testing.T) {
	p := newParty(t, link{delay: time.Hour})
	for range maxHeld + 10 {
		p.relay.pass(0, 1, []byte("packet"))
	}
	if n := p.relay.lost.Load(); n != 10 {
		t.Errorf("of %d packets %d are lost, and %d can be held", maxHeld+10, n, maxHeld)
	}
}
