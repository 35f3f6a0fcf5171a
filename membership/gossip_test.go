package membership

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/quic"
)

func TestFiveSitesFindEachOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		m := sites[4].member("b")
		if m.Role != quic.RoleVoter || m.Number != 2 || m.Version != "v1" || m.Configuration != 1 || m.Boot != 2 || m.Self {
			t.Errorf("e knows of b: %+v", m)
		}
		if me := sites[4].member("e"); !me.Self || me.Address != sites[4].addr.String() {
			t.Errorf("e knows of itself: %+v", me)
		}
		for _, s := range sites {
			if len(s.Members()) != 5 || len(s.Peers()) != 4 || len(s.Conflicts()) != 0 {
				t.Errorf("%s: %v, %v, %v", s.id.Name, s.Members(), s.Peers(), s.Conflicts())
			}
		}
		w.until("all are connected", func() bool {
			for _, s := range sites {
				if s.endpoint.Connected().Len() != 4 {
					return false
				}
			}
			return true
		})
	}, "a", "b", "c", "d", "e")
}

func TestAKilledSiteComesBackAtAnotherAddress(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		sites[2].kill()
		w.until("it is dead to all", func() bool {
			return sites[0].sees("c", StateDead) && sites[1].sees("c", StateDead)
		})
		mustContain(t, "a's log", sites[0].log.String(), "a site is gone", "peer=c")
		c := w.start(w.ids[2], 30) // without a seed: it remembers
		w.converged(sites[0], sites[1], c)
		mustContain(t, "c's file", read(t, filepath.Join(sites[0].data, peersFile)), c.addr.String())
	}, "a", "b", "c")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A site whose connection broke is suspect at once, here, and not dead before
// gossip says so.
func TestSuspicion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		sites[1].stop() // it says goodbye to its connections, and does not leave
		w.until("it is suspect", func() bool { return sites[0].sees("b", StateSuspect) })
		w.until("it is dead", func() bool { return sites[0].sees("b", StateDead) })
	}, "a", "b", "c")
}

func TestTwoHalvesComeTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		w.part(1, 2, 3)
		w.until("the halves have given each other up", func() bool {
			for i, s := range sites {
				for j, o := range sites {
					if (i < 3) != (j < 3) && !s.sees(o.id.Name, StateDead) {
						return false
					}
				}
			}
			return true
		})
		time.Sleep(20 * time.Minute) // and forgotten
		w.cutOff(nil)
		w.converged(sites...)
	}, "a", "b", "c", "d", "e", "f")
}

func TestIsolatedForAnHour(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		w.part(3)
		time.Sleep(time.Hour)
		if !sites[0].sees("c", StateDead) || !sites[2].sees("a", StateDead) || !sites[2].sees("b", StateDead) {
			t.Errorf("after an hour a sees %v, c sees %v", sites[0].Members(), sites[2].Members())
		}
		if !sites[0].sees("b", StateAlive) {
			t.Error("a has lost b")
		}
		w.cutOff(nil)
		w.converged(sites...)
	}, "a", "b", "c")
}

// All stop, and start in the other order at other addresses. One seed by name
// is enough for everybody to be found again.
func TestColdStartInAnyOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		for _, s := range sites {
			s.stop()
		}
		w.name("b.example", addr(22).IP.String())
		var again []*site
		for i := len(w.ids) - 1; i >= 0; i-- {
			again = append(again, w.start(w.ids[i], 21+i, seeds("b.example:7487")))
			time.Sleep(40 * time.Second)
		}
		w.converged(again...)
	}, "a", "b", "c")
}

// Nobody has a seed, and one of three is where it was: it is remembered.
func TestOneThatStayedIsEnough(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		time.Sleep(time.Minute)
		for _, s := range sites {
			s.stop()
		}
		w.converged(w.start(w.ids[0], 11), w.start(w.ids[1], 2), w.start(w.ids[2], 13))
	}, "a", "b", "c")
}

func TestTwoStartedAtTheSameMoment(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := []string{addr(1).String(), addr(2).String()}
		w.converged(w.start(w.ids[0], 1, seeds(all...)), w.start(w.ids[1], 2, seeds(all...)))
	}, "a", "b")
}

// A name that nobody knows yet is no reason not to start, and only oneself is
// nobody.
func TestSeedsAreTriedForEver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], 1, seeds(addr(1).String(), "b.example:7487", addr(9).String()))
		time.Sleep(10 * time.Minute)
		if a.sees("b", StateAlive) || !a.sees("b", StateUnseen) {
			t.Errorf("a sees %v", a.Members())
		}
		mustContain(t, "a's log", a.log.String(), "this site itself", "no such host")
		if n := strings.Count(a.log.String(), "nobody met"); n > 4 {
			t.Errorf("%d lines about three seeds:\n%s", n, a.log)
		}
		b := w.start(w.ids[1], 2)
		w.name("b.example", "1.0.0.77") // first wrong, then right
		time.Sleep(5 * time.Minute)
		w.name("b.example", "1.0.0.2")
		w.converged(a, b)
	}, "a", "b")
}

// Every tenth packet is lost, for an hour: nobody is given up for that.
func TestLossIsNoDeath(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		n := 0
		w.cutOff(func(string, string) bool { n++; return n%10 == 0 }) // called under a lock
		time.Sleep(time.Hour)
		for _, s := range sites {
			if strings.Contains(s.log.String(), "gone") || strings.Contains(s.log.String(), "disconnected") {
				t.Errorf("%s gave somebody up:\n%s", s.id.Name, s.log)
			}
		}
	}, "a", "b", "c")
}

func TestIPv6WorksLikeIPv4(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(600)
		w.converged(sites...)
		sites[1].stop()
		w.converged(sites[0], w.start(w.ids[1], 7), sites[2]) // and now by IPv4
	}, "a", "b", "c")
}

// A site that nobody can dial is reached over the connections that it makes:
// what comes first through its NAT is dropped.
func TestASiteThatCanOnlyDialOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		inside := addr(3).IP.String()
		open := map[string]bool{}
		w.cutOff(func(from, to string) bool {
			if from == inside {
				open[to] = true
			}
			return to == inside && !open[from]
		})
		sites := w.startAll(1)
		w.converged(sites...)
		time.Sleep(10 * time.Minute)
		w.converged(sites...)
		if strings.Contains(sites[0].log.String(), "gone") {
			t.Errorf("it flapped:\n%s", sites[0].log)
		}
	}, "a", "b", "c")
}

// Who listens everywhere learns from the others where that is.
func TestAnAddressIsLearntFromTheOthers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		everywhere := func(c *Config, _ *quic.Config) { c.Listen = anywhere }
		sites := []*site{w.start(w.ids[0], 1, everywhere)}
		if sites[0].Address() != "" {
			t.Errorf("it knows its address: %q", sites[0].Address())
		}
		for i := 1; i < 3; i++ {
			sites = append(sites, w.start(w.ids[i], i+1, everywhere, seeds(addr(1).String())))
		}
		w.converged(sites...)
		moved := "moved.example:1234"
		sites[2].stop()
		w.name("moved.example", addr(3).IP.String())
		c := w.start(w.ids[2], 3, func(c *Config, _ *quic.Config) { c.Advertise = moved })
		w.until("the address that it was told counts", func() bool { return sites[1].member("c").Address == moved && c.Address() == moved })
	}, "a", "b", "c")
}

func TestAnObserverIsSeenToo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.start(w.ids[0], 1), w.start(w.ids[1], 2, seeds(addr(1).String()))
		o := w.start(identity(w, "watcher", 0), 3, seeds(addr(2).String()))
		w.converged(a, b, o)
		if m := a.member("watcher"); m.Role != quic.RoleObserver || m.Number != 0 {
			t.Errorf("%+v", m)
		}
	}, "a", "b")
}

// Two processes with one identity, by a copied directory: both are told, and the
// others keep the one that they had.
func TestOneCertificateTwice(t *testing.T) {
	for name, boot := range map[string]uint64{"an equal boot": 2, "an earlier boot": 1, "a later boot": 9} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.start(w.ids[0], 1)
				w.made = 1
				b := w.start(w.ids[1], 2, seeds(addr(1).String()))
				w.converged(a, b)
				twin := w.start(w.ids[1], 3, seeds(addr(1).String()), func(c *Config, q *quic.Config) {
					c.Boot, q.Boot, c.Data = boot, boot, t.TempDir()
				})
				w.until("both are told", func() bool { return len(b.Conflicts()) == 1 && len(twin.Conflicts()) == 1 && len(a.Conflicts()) == 1 })
				mustContain(t, "b's log", b.log.String(), "another process runs")
				mustContain(t, "the twin's log", twin.log.String(), "another process runs")
				mustContain(t, "a's log", a.log.String(), "two processes", "peer=b")
				time.Sleep(5 * time.Minute)
				stays, goes, connections := b, twin, 1
				if boot > 2 { // it looked like a restart at first
					stays, goes, connections = twin, b, 2
				}
				if !a.sees("b", StateAlive) || a.member("b").Address != stays.addr.String() {
					t.Errorf("a sees %+v", a.member("b"))
				}
				if n := strings.Count(a.log.String(), "msg=connected peer=b"); n != connections {
					t.Errorf("%d connections with b:\n%s", n, a.log)
				}
				goes.stop()
				w.until("it is forgotten", func() bool { return len(a.Conflicts())+len(stays.Conflicts()) == 0 })
			}, "a", "b")
		})
	}
}

// The two meet each other, and nobody else.
func TestTwinsMeet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], 1)
		twin := w.start(w.ids[0], 2, seeds(addr(1).String()), func(c *Config, _ *quic.Config) { c.Data = t.TempDir() })
		w.until("both are told", func() bool { return len(a.Conflicts()) == 1 && len(twin.Conflicts()) == 1 })
	}, "a", "b")
}

// One who restarts is not two.
func TestARestartIsNoConflict(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.start(w.ids[0], 1), w.start(w.ids[1], 2, seeds(addr(1).String()))
		w.converged(a, b)
		for range 5 {
			b.kill()
			b = w.start(w.ids[1], 2)
			w.converged(a, b)
		}
		if len(a.Conflicts())+len(b.Conflicts()) != 0 {
			t.Errorf("%v, %v", a.Conflicts(), b.Conflicts())
		}
	}, "a", "b")
}

func TestRunEndsAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		before := time.Now()
		sites[0].stop()
		if d := time.Since(before); d > 5*time.Second { // of virtual time
			t.Errorf("it took %v", d)
		}
		synctest.Wait()
		if len(sites[0].Members()) != 3 {
			t.Error("a stopped site has no answer")
		}
	}, "a", "b", "c")
}
