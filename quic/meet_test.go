package quic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// told notes what an endpoint says of twins and changes.
type told struct {
	mu      sync.Mutex
	twins   []string
	changes int
}

func (n *told) listen(_ *site, c *Config) {
	c.Twin = func(s Site, at net.Addr) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.twins = append(n.twins, s.Name)
	}
	c.Changed = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changes++
	}
}

func (n *told) ofTwin(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.twins {
		if t == name {
			return true
		}
	}
	return false
}

// An address is all that is known, and who is there becomes a peer by its
// certificate.
func TestMeetingSomebody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var news told
		a, b := w.start(w.ids[0], addr(1), 1, news.listen), w.start(w.ids[1], addr(2), 1)
		met, err := a.Meet(t.Context(), addr(2).String())
		if err != nil || len(met) != 1 || met[0] != w.ids[1].Site {
			t.Fatalf("met %v: %v", met, err)
		}
		w.connected(a, b)
		if p := a.peerStatus("b"); p.Observed != addr(1).String() || p.Addr != "" {
			t.Errorf("a is seen at %q, dials b at %q", p.Observed, p.Addr)
		}
		if p := b.peerStatus("a"); p.Observed != addr(2).String() {
			t.Errorf("b is seen at %q", p.Observed)
		}
		a.Send(a.Connected(), need("x"))
		w.until("a message arrives", func() bool { return b.received(1, "x") == 1 })
		if met, err = a.Meet(t.Context(), addr(2).String()); err != nil || len(met) != 1 {
			t.Errorf("met again %v: %v", met, err)
		}
		if a.peerStatus("b").Dialled != true || a.peerStatus("b").Connected != true || len(b.history()) != 1 {
			t.Errorf("meeting again disturbed them: %v", b.history())
		}
		news.mu.Lock()
		defer news.mu.Unlock()
		if news.changes != 1 {
			t.Errorf("%d changes", news.changes)
		}
	}, "a", "b")
}

func TestMeetingNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := map[string][]netip.Addr{
			"both":  {addr(9).AddrPort().Addr(), addr(1).AddrPort().Addr()},
			"all":   {addr(1).AddrPort().Addr(), addr(9).AddrPort().Addr(), addr(2).AddrPort().Addr()},
			"empty": {},
		}
		a := w.start(w.ids[0], addr(1), 1, func(_ *site, c *Config) {
			c.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
				if ips, ok := names[host]; ok {
					return ips, nil
				}
				return nil, &net.DNSError{Err: "no such host", Name: host}
			}
		})
		w.start(w.ids[1], addr(2), 1)
		_, strangers, err := MakeVoters("x")
		if err != nil {
			t.Fatal(err)
		}
		w.start(strangers[0], addr(3), 1)
		if _, err := a.Meet(t.Context(), addr(1).String()); !errors.Is(err, ErrSelf) {
			t.Errorf("oneself: %v", err)
		}
		for at, says := range map[string]string{
			addr(9).String():  "dial 1.0.0.9:7487",
			addr(3).String():  "stranger",
			"both:7487":       "dial 1.0.0.9:7487",
			"nowhere:7487":    "no such host",
			"empty:7487":      "no addresses",
			"no port":         "HOST:PORT",
			"both:no-service": "port",
		} {
			met, err := a.Meet(t.Context(), at)
			if err == nil || len(met) != 0 || !strings.Contains(err.Error(), says) {
				t.Errorf("at %s met %v: %v, want %q", at, met, err, says)
			}
		}
		if met, err := a.Meet(t.Context(), "all:7487"); err != nil || len(met) != 1 || met[0].Name != "b" {
			t.Errorf("at three addresses met %v: %v", met, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.Meet(ctx, addr(2).String()); err == nil {
			t.Error("met somebody after giving up")
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Meet(t.Context(), addr(2).String()); err == nil {
			t.Error("met somebody after the end")
		}
	}, "a", "b")
}

// The first of two processes of one identity stays connected, and they do not
// take turns.
func TestTwinsDoNotTakeTurns(t *testing.T) {
	for name, boots := range map[string][2]uint64{"an equal boot": {3, 3}, "an earlier boot": {3, 2}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var atA, atB, atTwin told
				a, b := w.start(w.ids[0], addr(1), 1, atA.listen), w.start(w.ids[1], addr(2), boots[0], atB.listen)
				a.knows(b)
				w.connected(a, b)
				twin := w.start(w.ids[1], addr(3), boots[1], atTwin.listen)
				twin.knows(a)
				w.until("a and the twin know", func() bool { return atA.ofTwin("b") && atTwin.ofTwin("b") })
				time.Sleep(time.Minute)
				if h := a.history(); len(h) != 1 || a.peerStatus("b").Remote != b.addr.String() {
					t.Errorf("a went through %v", h)
				}
				if atB.ofTwin("b") { // it cannot know by its connections
					t.Error("b knows")
				}
				if _, err := twin.Meet(t.Context(), b.addr.String()); !errors.Is(err, errTwin) || !atB.ofTwin("b") {
					t.Errorf("the twins met: %v", err)
				}
			}, "a", "b")
		})
	}
}

// A later boot is a restart, and nobody's twin.
func TestARestartIsNoTwin(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var at told
		a, b := w.start(w.ids[0], addr(1), 1, at.listen), w.start(w.ids[1], addr(2), 1)
		a.knows(b)
		w.connected(a, b)
		b.kill()
		b = w.start(w.ids[1], addr(3), 2)
		b.knows(a)
		w.connected(a, b)
		w.until("it is the new one", func() bool { return a.peerStatus("b").Remote == b.addr.String() })
		if at.ofTwin("b") {
			t.Error("a restart was taken for a twin")
		}
	}, "a", "b")
}
