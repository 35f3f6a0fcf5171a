package agent

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gus/agent/client"
	"gus/register"
	"gus/snapshot"
)

// caughtUp says whether s has looked at all that each peer is known to have saved.
func (s *testSite) caughtUp() bool {
	for _, p := range s.catchup.peers {
		p.mu.Lock()
		ok := p.up && !p.fresh && !p.pulling && p.heard <= p.cursor.Seq
		p.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

// counts returns how many streams s has served, and keys it has shown on them.
func (s *testSite) counts() (streams, keys int) {
	s.catchup.mu.Lock()
	defer s.catchup.mu.Unlock()
	return s.catchup.streams, s.catchup.served
}

// changeMany sets n keys at the sites in turn, then overwrites every third one
// and deletes every third one. It returns what there is then, "" where there is nothing.
func (w *world) changeMany(n int, sites ...*testSite) map[string]string {
	w.t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	want := map[string]string{}
	for from := range 50 {
		wg.Go(func() {
			for i := from; i < n; i += 50 {
				s, key, value := sites[i%len(sites)], fmt.Sprintf("key/%05d", i), fmt.Sprint(i)
				r := s.set(key, value)
				switch i % 3 {
				case 1:
					value = "again " + value
					r = s.set(key, value)
				case 2:
					value = ""
					r = s.ask(w.t.Context(), "DELETE", kvPath+key, "5s", "")
				}
				if r.err() != nil {
					w.t.Error(r.body)
				}
				mu.Lock()
				want[key] = value
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return want
}

// holds checks that s knows all of want without asking anybody.
func (s *testSite) holds(want map[string]string) {
	s.w.t.Helper()
	bad := 0
	for key, value := range want {
		r := s.local(key)
		if found := r.status == 200; found != (value != "") || found && r.body != value || len(r.header[client.HeaderVersion]) != 1 {
			if bad++; bad <= 10 {
				s.w.t.Errorf("%s holds of %s: %d %q, want %q", s.name, key, r.status, r.body, value)
			}
		}
	}
	if bad > 10 {
		s.w.t.Errorf("%s: %d keys are wrong", s.name, bad)
	}
}

func TestASiteThatWasAwayCatchesUp(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		ir.kill()
		want := w.changeMany(3000, ca, va)
		ir.restart()
		w.await(func() bool { return w.connected(3) && ir.caughtUp() })
		ir.holds(want)
		if m := ir.member("ca"); m.Catchup == nil || m.Catchup.Behind != 0 || m.Catchup.Pulling || !m.Catchup.Since.IsZero() {
			t.Errorf("%+v", m.Catchup)
		}

		// What it has looked at it does not ask for again, after a restart neither.
		time.Sleep(3 * epochLength)
		ir.kill()
		more := map[string]string{"one": "1", "two": "2", "three": "3"}
		for key, value := range more {
			w.want(va.set(key, value), "")
		}
		time.Sleep(3 * epochLength)
		_, before := ca.counts()
		ir.restart()
		w.await(func() bool { return w.connected(3) && ir.caughtUp() })
		ir.holds(more)
		if _, after := ca.counts(); after-before > 50 {
			t.Errorf("%d keys were shown for 3 new ones", after-before)
		}
	})
}

// A site that was only cut off has the same process and connection numbers as
// before: nothing is announced, and nobody reads.
func TestASiteThatWasCutOffCatchesUp(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		w.cutOff(ir, true)
		w.await(func() bool { return ca.status().Quorum.Reached == 2 && va.status().Quorum.Reached == 2 })
		want := w.changeMany(90, ca, va)
		w.cutOff(ir, false)
		w.await(func() bool { return w.connected(3) && ir.caughtUp() })
		ir.holds(want)
	})
}

func TestASiteThatIsKilledWhileItCatchesUp(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		ir.kill()
		want := w.changeMany(6000, ca, va)
		ir.restart()
		taken := 0
		w.await(func() bool {
			for _, p := range ir.catchup.peers {
				p.mu.Lock()
				if p.pulling && p.cursor.Seq > 0 {
					taken = max(taken, p.taken)
				}
				p.mu.Unlock()
			}
			return taken > 0
		})
		ir.kill()
		if taken >= len(want) {
			t.Fatalf("it had %d of %d keys when it was killed: not in the middle", taken, len(want))
		}
		ir.restart()
		w.await(func() bool { return w.connected(3) && ir.caughtUp() })
		ir.holds(want)
	})
}

// clusterID is the cluster of a site that need not run.
func (s *testSite) clusterID() string {
	s.w.t.Helper()
	id, _, err := identify(s.data())
	if err != nil {
		s.w.t.Fatal(err)
	}
	return id.Cluster.String()
}

// edit changes what a site that does not run holds.
func (s *testSite) edit(f func(store *snapshot.Store, save func(register.Record))) {
	s.w.t.Helper()
	done := make(chan error, 1)
	store, err := snapshot.Open(s.data(), snapshot.Options{Cluster: s.clusterID(), Done: func(_ register.Seq, err error) { done <- err }})
	if err != nil {
		s.w.t.Fatal(err)
	}
	f(store, func(r register.Record) {
		store.Save(store.Last()+1, []register.Record{r})
		if err := <-done; err != nil {
			s.w.t.Fatal(err)
		}
	})
	time.Sleep(5 * time.Second) // a cursor is saved a little later
	if err := store.Close(); err != nil {
		s.w.t.Fatal(err)
	}
}

// recordOf returns what a store holds of a key.
func recordOf(t *testing.T, store *snapshot.Store, key string) (rec register.Record) {
	t.Helper()
	for r, err := range store.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if r.Key == key {
			rec = register.Fold(rec, r)
		}
	}
	return rec
}

// A cursor into another database says nothing about this one, and one that is
// further than the peer neither.
func TestAPeerWithANewDatabaseIsLookedAtFromTheBeginning(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		want := w.changeMany(60, ca)
		w.await(func() bool { return ca.caughtUp() && ir.caughtUp() })
		time.Sleep(3 * epochLength)
		cursors := map[string]snapshot.Cursor{
			"ca": {Database: ca.store.Database() + 1, Seq: 1},
			"va": {Database: va.store.Database(), Seq: 1 << 40},
		}
		ir.kill()
		ir.edit(func(store *snapshot.Store, _ func(register.Record)) {
			for name, c := range cursors {
				if got := store.Cursors()[name]; got.Seq == 0 || got.Database == 0 {
					t.Errorf("the cursor of %s is %+v", name, got)
				}
				store.SetCursor(name, c)
			}
		})
		_, beforeA := ca.counts()
		_, beforeV := va.counts()
		ir.restart()
		w.await(func() bool { return w.connected(3) && ir.caughtUp() })
		_, afterA := ca.counts()
		_, afterV := va.counts()
		if afterA-beforeA < len(want) || afterV-beforeV < len(want) {
			t.Errorf("ca has shown %d keys, va %d, of %d", afterA-beforeA, afterV-beforeV, len(want))
		}
		for _, p := range ir.catchup.peers {
			p.mu.Lock()
			if p.cursor.Seq >= 1<<40 || p.cursor.Database == cursors["ca"].Database {
				t.Errorf("the cursor of %s is %+v", p.name, p.cursor)
			}
			p.mu.Unlock()
		}
	})
}

// Sites that have nothing to tell each other open no streams for it.
func TestAnIdleClusterComparesNothing(t *testing.T) {
	inWorld(t, three, func(w *world) {
		w.want(w.sites[0].set("k", "v"), "")
		time.Sleep(6 * epochLength)
		var before [3][2]int
		for i, s := range w.sites {
			before[i][0], before[i][1] = s.counts()
			if before[i][0] == 0 {
				t.Errorf("%s was never asked for anything", s.name)
			}
		}
		time.Sleep(time.Hour)
		for i, s := range w.sites {
			if streams, keys := s.counts(); streams != before[i][0] || keys != before[i][1] {
				t.Errorf("%s served %d streams and showed %d keys while nothing happened", s.name, streams-before[i][0], keys-before[i][1])
			}
		}
		// And when something happens again, they do.
		w.want(w.sites[1].set("k", "w"), "")
		time.Sleep(6 * epochLength)
		for i, s := range w.sites {
			if streams, _ := s.counts(); streams == before[i][0] {
				t.Errorf("%s was asked for nothing when something had changed", s.name)
			}
		}
	})
}

// Values of the largest size are taken in as well.
func TestLargeValuesAreCaughtUpWith(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		ir.kill()
		want := map[string]string{}
		for i := range 5 {
			b := make([]byte, register.MaxValue)
			b[i] = byte(i)
			key := fmt.Sprintf("large/%d", i)
			want[key] = string(b)
			w.want(ca.set(key, want[key]), "")
		}
		ir.restart()
		w.await(func() bool { return w.connected(3) && ir.caughtUp() })
		ir.holds(want)
		synctest.Wait()
	})
}
