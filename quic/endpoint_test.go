package quic

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
)

func stopAll(sites []*site) {
	for _, s := range sites {
		s.stop()
	}
}

func TestThreeSitesExchange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.three()
		sites[0].SetProgress([]register.Progress{{Voter: 1, Boot: 1, Saved: 41}, {Voter: 3, Boot: 7, Saved: 8}})
		sites[0].Send(register.SetOf(2, 3), need("a"))
		sites[1].Send(register.SetOf(1, 3), need("b"))
		sites[2].Send(register.SetOf(1), &register.MsgWrite{Key: "big", Write: register.Write{Value: make([]byte, register.MaxValue)}})
		w.until("all arrived", func() bool {
			return sites[1].received(1, "a") == 1 && sites[2].received(1, "a") == 1 &&
				sites[0].received(2, "b") == 1 && sites[2].received(2, "b") == 1 && sites[0].received(3, "big") == 1
		})
		if got := sites[1].heard[1]; !slices.Equal(got, []register.Progress{{Voter: 1, Boot: 1, Saved: 41}, {Voter: 3, Boot: 7, Saved: 8}}) {
			t.Errorf("voter 2 was told by voter 1 of %v", got)
		}
		for i, s := range sites {
			if want := register.SetOf(1, 2, 3).Without(register.Voter(i + 1)); s.Connected() != want {
				t.Errorf("%s is connected with %b, want %b", s.id.Name, s.Connected(), want)
			}
			if got := s.history(); len(got) < 2 || slices.ContainsFunc(got, func(e string) bool { return e[0] == '-' }) {
				t.Errorf("%s was told %v, want each of the others up and never down", s.id.Name, got)
			}
		}
		st := sites[0].peerStatus("b")
		if !st.Connected || !st.Register || st.RTT <= 0 || st.Heard.IsZero() || st.Boot != 1 || st.MessagesSent != 1 || st.MessagesReceived != 1 {
			t.Errorf("status of b at a: %+v", st)
		}
	}, "a", "b", "c")
}

func TestSendingToNobodyIsCounted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		if err := a.SetPeer("b", 2, ""); err != nil {
			t.Fatal(err)
		}
		a.Send(register.SetOf(1, 2, 3, 63), need("x"))
		if st := a.peerStatus("b"); st.MessagesUnsent != 1 || st.Connected {
			t.Errorf("status of b: %+v", st)
		}
	}, "a", "b")
}

func TestAKilledSiteComesBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.three()
		sites[1].kill()
		b := w.start(w.ids[1], addr(2), 2)
		b.knows(sites[0], sites[2])
		sites[1] = b
		w.until("both are connected with the new process", func() bool {
			return sites[0].peerStatus("b").Boot == 2 && sites[2].peerStatus("b").Boot == 2
		})
		w.connected(sites...)
		sites[0].Send(register.SetOf(2), need("after"))
		b.Send(register.SetOf(1), need("back"))
		w.until("messages pass", func() bool { return b.received(1, "after") == 1 && sites[0].received(2, "back") == 1 })
		if got := sites[0].history(); got[len(got)-1] != "+2" {
			t.Errorf("voter 1 was told %v, want the return of voter 2 last", got)
		}
	}, "a", "b", "c")
}

func TestAKilledSiteIsNoticedByItsReset(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.start(w.ids[0], addr(1), 1), w.start(w.ids[1], addr(2), 1)
		a.knows(b)
		w.connected(a, b)
		b.kill()
		// The new process does not know where a is: only its answer to what a
		// sends can tell a that the connection is gone.
		w.start(w.ids[1], addr(2), 2)
		a.Send(register.SetOf(2), &register.MsgNeed{Key: strings.Repeat("k", 200)})
		w.until("a has dialled again", func() bool { return a.peerStatus("b").Boot == 2 })
		if !strings.Contains(a.log.String(), "stateless reset") {
			t.Errorf("the reset is not in the log:\n%s", a.log)
		}
	}, "a", "b")
}

func TestAnAddressChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.three()
		sites[2].stop()
		c := w.start(w.ids[2], addr(33), 2)
		sites[2] = c
		w.until("c is away", func() bool { return !sites[0].Connected().Has(3) && !sites[1].Connected().Has(3) })
		sites[0].knows(c)
		sites[1].knows(c)
		w.connected(sites...)
		if got := sites[0].peerStatus("c").Remote; got != c.addr.String() {
			t.Errorf("c is reached at %s, want %s", got, c.addr)
		}
	}, "a", "b", "c")
}

func TestAnHourOfPartition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.three()
		alone := sites[2].addr.IP.String()
		before := len(sites[0].history())
		w.cutOff(func(from, to string) bool { return from == alone || to == alone })
		time.Sleep(time.Hour)
		if sites[0].Connected() != register.SetOf(2) || sites[2].Connected() != 0 {
			t.Errorf("a is connected with %b, c with %b", sites[0].Connected(), sites[2].Connected())
		}
		if f := sites[2].peerStatus("a").Failure; f == "" {
			t.Error("c does not say why it cannot connect")
		}
		if n := strings.Count(sites[2].log.String(), "cannot connect"); n > 10 {
			t.Errorf("an hour without a peer wrote %d lines", n)
		}
		w.cutOff(nil)
		w.connected(sites...)
		sites[2].Send(register.SetOf(1, 2), need("healed"))
		w.until("messages pass", func() bool {
			return sites[0].received(3, "healed") == 1 && sites[1].received(3, "healed") == 1
		})
		if want := []string{"-3", "+3"}; !slices.Equal(sites[0].history()[before:], want) {
			t.Errorf("a was told %v, want %v after the first %d", sites[0].history(), want, before)
		}
	}, "a", "b", "c")
}

func TestOneWayPartition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.three()
		mute := sites[2].addr.IP.String()
		w.cutOff(func(from, to string) bool { return from == mute })
		w.until("both ends notice", func() bool {
			return !sites[0].Connected().Has(3) && sites[2].Connected() == 0
		})
		w.cutOff(nil)
		w.connected(sites...)
	}, "a", "b", "c")
}

func TestBothDialAtOnce(t *testing.T) {
	for lag := range 12 {
		t.Run(fmt.Sprintf("%d ms apart", 2*lag), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, b := w.start(w.ids[0], addr(1), 1), w.start(w.ids[1], addr(2), 1)
				b.knows(a)
				time.Sleep(time.Duration(2*lag) * time.Millisecond)
				a.knows(b)
				w.connected(a, b)
				time.Sleep(time.Minute)
				w.connected(a, b)
				before := len(a.history()) + len(b.history())
				at, bt := a.peerStatus("b"), b.peerStatus("a")
				if at.Dialled == bt.Dialled {
					t.Errorf("dialled by a: %v, by b: %v; they use different connections", at.Dialled, bt.Dialled)
				}
				time.Sleep(10 * time.Minute)
				if after := len(a.history()) + len(b.history()); after != before || before > 4 {
					t.Errorf("the connection flaps: a was told %v, b %v", a.history(), b.history())
				}
				a.Send(register.SetOf(2), need("x"))
				b.Send(register.SetOf(1), need("y"))
				w.until("messages pass", func() bool { return b.received(1, "x") == 1 && a.received(2, "y") == 1 })
			}, "a", "b")
		})
	}
}

// A connection that one end has lost without the other's knowledge must not
// keep its successor out until it times out there.
func TestTheOtherEndHasForgotten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.start(w.ids[0], addr(1), 1), w.start(w.ids[1], addr(2), 1)
		a.knows(b)
		w.connected(a, b)
		time.Sleep(time.Minute)
		c, _ := b.peers["a"].current()
		w.cutOff(func(from, to string) bool { return true })
		_ = c.qc.CloseWithError(connClosed, "forgotten")
		w.until("b has forgotten", func() bool { return !b.Connected().Has(1) })
		w.cutOff(nil)
		b.knows(a) // now b dials, the higher of the two
		w.until("b is connected again", func() bool { return b.Connected().Has(1) })
		b.Send(register.SetOf(1), need("x"))
		a.Send(register.SetOf(2), need("y"))
		w.until("messages pass", func() bool { return a.received(2, "x") == 1 && b.received(1, "y") == 1 })
		if got := a.history(); !slices.Equal(got, []string{"+2", "+2"}) {
			t.Errorf("a was told %v, want up and up again", got)
		}
	}, "a", "b")
}

func TestAStrangersClusterIsRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		ca, ids, err := MakeVoters("x", "b")
		if err != nil {
			t.Fatal(err)
		}
		b := w.start(ids[1], addr(2), 1)
		a.knows(b) // a believes its own b to be there
		if err := b.SetPeer("x", 1, a.addr.String()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if a.Connected() != 0 || b.Connected() != 0 {
			t.Error("two clusters are connected")
		}
		for _, s := range []*site{a, b} {
			log := s.log.String()
			if !strings.Contains(log, ca.Cluster().String()) || !strings.Contains(log, w.ca.Cluster().String()) {
				t.Errorf("not both ids are in the log:\n%s", log)
			}
			if n := strings.Count(log, "\n"); n > 40 {
				t.Errorf("a minute of refusals wrote %d lines", n)
			}
		}
	}, "a", "b")
}

func TestTheWrongSiteAnswers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, c := w.start(w.ids[0], addr(1), 1), w.start(w.ids[2], addr(3), 1)
		if err := a.SetPeer("b", 2, c.addr.String()); err != nil {
			t.Fatal(err)
		}
		w.until("a says who answers", func() bool {
			return strings.Contains(a.peerStatus("b").Failure, "answers c (voter 3), not b (voter 2)")
		})
		if a.Connected() != 0 {
			t.Errorf("a is connected with %b", a.Connected())
		}
	}, "a", "b", "c")
}

func TestACopyOfAnIdentityIsRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, copied := w.start(w.ids[0], addr(1), 1), w.start(w.ids[0], addr(2), 1)
		other, err := w.ca.NewIdentity("other", RoleVoter, 2)
		if err != nil {
			t.Fatal(err)
		}
		twice := w.start(other, addr(3), 1)
		if err := a.SetPeer("b", 2, ""); err != nil {
			t.Fatal(err)
		}
		if err := copied.SetPeer("b", 2, a.addr.String()); err != nil {
			t.Fatal(err)
		}
		twice.knows(a)
		w.until("a refuses a second voter 2", func() bool {
			return strings.Contains(twice.peerStatus("a").Failure, "voter 2 is known as b")
		})
		if err := a.SetPeer("a", 1, ""); err == nil {
			t.Error("a site is its own peer")
		}
		if err := a.SetPeer("b", 3, ""); err == nil {
			t.Error("b has two numbers")
		}
	}, "a", "b")
}

// TLS 1.3 lets a dial succeed before the server has judged the certificate.
func TestARefusalAfterTheDialIsAFailedConnect(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		forger, err := NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		forger.cluster = w.ca.cluster
		if _, err := forger.NewIdentity("b", RoleVoter, 2); err == nil {
			t.Fatal("an identity of two authorities")
		}
		// What b has been sold as a certificate of this cluster.
		key := w.ids[1].Key
		cert, err := forger.Issue("b", RoleVoter, 2, key.Public().(ed25519.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		forged := &Identity{Site: w.ids[1].Site, Key: key, Certificate: cert, CA: w.ca.cert}
		a, b := w.start(w.ids[0], addr(1), 1), w.start(forged, addr(2), 1)
		b.knows(a)
		w.until("b is told", func() bool {
			return strings.Contains(b.peerStatus("a").Failure, "refused this site's certificate")
		})
		time.Sleep(time.Minute)
		if len(a.history()) != 0 || len(b.history()) != 0 {
			t.Errorf("a was told %v, b %v", a.history(), b.history())
		}
	}, "a", "b")
}

func TestConfigurationsDiffer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		b := w.start(w.ids[1], addr(2), 1, func(s *site, c *Config) { c.Configuration = 2 })
		a.knows(b)
		w.until("connected, but not for the register", func() bool {
			st := a.peerStatus("b")
			return st.Connected && !st.Register
		})
		a.Send(register.SetOf(2), need("x"))
		if err := a.SendDatagram("b", []byte("hi")); err != nil {
			t.Error(err)
		}
		w.until("gossip passes", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.packets) == 1 })
		if b.count() != 0 || a.Connected() != 0 || a.peerStatus("b").MessagesUnsent != 1 {
			t.Errorf("a message of another configuration was delivered, or not counted: %+v", a.peerStatus("b"))
		}
	}, "a", "b")
}

// Nothing looks at the wall clock: a box without a battery begins in 1970, and
// certificates outlive everybody.
func TestClocksDoNotCount(t *testing.T) {
	for _, year := range []int{1970, 2100, 9000} {
		t.Run(fmt.Sprint(year), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				now := func() time.Time { return time.Date(year, 1, 1, 0, 0, 1, 0, time.UTC) }
				sites := []*site{w.start(w.ids[0], addr(1), 1), w.start(w.ids[1], addr(2), 1)}
				for _, s := range sites {
					s.tls.Time = now
				}
				sites[0].knows(sites[1])
				w.connected(sites...)
			}, "a", "b")
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		time.Sleep(100 * 365 * 24 * time.Hour)
		stopAll(w.three())
	}, "a", "b", "c")
}

func TestASlowReceiverHoldsItsSenderUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		gate := make(chan struct{})
		b := w.start(w.ids[1], addr(2), 1, func(s *site, _ *Config) { s.blocked = gate })
		a.knows(b)
		w.connected(a, b)
		value := bytes.Repeat([]byte("v"), 256<<10)
		const sent = 400 // 100 MiB
		for i := range sent {
			a.Send(register.SetOf(2), &register.MsgWrite{Key: fmt.Sprint(i), Write: register.Write{Value: value}})
			time.Sleep(100 * time.Millisecond)
		}
		st := a.peerStatus("b")
		if st.MessagesDropped == 0 || st.QueuedBytes > maxQueuedBytes || st.QueuedMessages == 0 {
			t.Errorf("the queue is not full, or fuller than it may be: %+v", st)
		}
		if b.count() != 0 {
			t.Error("something was delivered past the gate")
		}
		close(gate)
		w.until("all that was not dropped arrives", func() bool {
			return b.count()+int(a.peerStatus("b").MessagesDropped) == sent
		})
		if st := a.peerStatus("b"); st.QueuedBytes != 0 || st.QueuedMessages != 0 {
			t.Errorf("the queue is not empty: %+v", st)
		}
	}, "a", "b")
}

func TestAFullQueueDropsAndCounts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.start(w.ids[0], addr(1), 1), w.start(w.ids[1], addr(2), 1)
		a.knows(b)
		w.connected(a, b)
		w.cutOff(func(from, to string) bool { return true })
		const sent = 3 * maxQueued
		for range sent {
			a.Send(register.SetOf(2), need("x"))
		}
		if st := a.peerStatus("b"); st.QueuedMessages > maxQueued {
			t.Errorf("%d messages are queued, the limit is %d", st.QueuedMessages, maxQueued)
		}
		w.cutOff(nil)
		w.until("what was not dropped arrives", func() bool {
			return b.received(1, "x")+int(a.peerStatus("b").MessagesDropped) == sent
		})
		if a.peerStatus("b").MessagesDropped == 0 {
			t.Error("nothing was dropped")
		}
		if st := a.peerStatus("b"); st.BatchesSent > sent/100 {
			t.Errorf("%d batches for %d messages: load does not make batches", st.BatchesSent, sent)
		}
	}, "a", "b")
}

func TestGossipWaitsForTheConnection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.start(w.ids[0], addr(1), 1), w.start(w.ids[1], addr(2), 1)
		if err := a.SetPeer("b", 2, ""); err != nil {
			t.Fatal(err)
		}
		for i := range maxDatagrams + 10 {
			if err := a.SendDatagram("b", fmt.Appendf(nil, "%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		a.knows(b)
		w.until("the newest arrive", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.packets) == maxDatagrams && b.packets[0] == "a:10"
		})
		if st := a.peerStatus("b"); st.DatagramsDropped != 10 || st.DatagramsSent != maxDatagrams {
			t.Errorf("status: %+v", st)
		}
		if err := b.SendDatagram("a", make([]byte, MaxDatagram)); err != nil {
			t.Error(err)
		}
		w.until("the largest arrives", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.packets) == 1 })
		if err := a.SendDatagram("b", make([]byte, MaxDatagram+1)); err == nil {
			t.Error("a packet beyond the limit was taken")
		}
		if err := a.SendDatagram("nobody", nil); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("to nobody: %v", err)
		}
	}, "a", "b")
}

func TestAfterCloseAllIsClosed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.three()
		stopAll(sites)
		a := sites[0]
		a.Send(register.SetOf(2), need("x"))
		if err := a.SendDatagram("b", nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("send a packet: %v", err)
		}
		if _, err := a.OpenStream(t.Context(), "b", 1); !errors.Is(err, net.ErrClosed) {
			t.Errorf("open a stream: %v", err)
		}
		if err := a.SetPeer("b", 2, ""); !errors.Is(err, net.ErrClosed) {
			t.Errorf("set a peer: %v", err)
		}
		if err := a.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("run again: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("close again: %v", err)
		}
	}, "a", "b", "c")
}

func TestCloseWithoutRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		conn, unplug := w.socket(addr(1), 0)
		defer unplug()
		e, err := New(Config{Identity: w.ids[0], Conn: conn, Boot: 1, Log: discard(), Deliver: new(site).deliver})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.Close(), e.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := e.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("run: %v", err)
		}
	}, "a")
}

func TestTheSocketFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		synctest.Wait()
		if err := a.cfg.Conn.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-a.runErr; err == nil {
			t.Error("Run did not say that the socket failed")
		}
		a.runErr <- nil // for stop
	}, "a")
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
