package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
	"gus/register"
)

var withObserver = []string{"ca", "va", "ir", "ob"}

// has says whether the site shows the value without asking anybody.
func (s *testSite) has(key, value string) bool { return s.local(key).body == value }

// An observer shows by itself what is set anywhere, and passes on what needs a quorum.
func TestObserver(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		ca, ob := w.sites[0], w.sites[3]
		w.want(ca.set("app/port", "8080"), "")
		w.await(func() bool { return ob.has("app/port", "8080") })
		w.want(ob.get("app/port"), "8080")
		w.want(ob.set("app/host", "www"), "")
		w.want(ca.get("app/host"), "www")
		w.await(func() bool { return ob.has("app/host", "www") })
		if r := ob.get("app/host"); r.header[client.HeaderVia][0] == "" || r.header[client.HeaderRoundTrips][0] != "2" {
			t.Errorf("%v", r.header)
		}
		st := ob.status()
		if f := st.Following; f == nil || f.Voter == "" || !f.Complete || f.Age != 0 || st.Keys != 2 {
			t.Errorf("%+v of %d keys", st.Following, st.Keys)
		}
		if v := ob.verify(); len(v.Differ) != 0 || v.Keys != 2 || len(v.Compared) != 3 {
			t.Errorf("%+v", v)
		}
		if f := ca.status().Following; f != nil {
			t.Errorf("a voter follows %+v", f)
		}
	})
}

// An observer has what was there before it came, moves on when its voter dies, and misses
// nothing that came meanwhile; so it is after its own restart.
func TestObserverMovesOn(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		ca, va, ob := w.sites[0], w.sites[1], w.sites[3]
		ob.kill()
		want := w.changeMany(300, ca, va)
		ob.restart()
		w.await(func() bool { f := ob.status().Following; return f.Complete })
		ob.holds(want)
		followed := w.site(ob.status().Following.Voter)
		followed.kill()
		others := w.others(followed, ob)
		more := w.changeMany(400, others...)
		w.await(func() bool { f := ob.status().Following; return f.Complete && f.Voter != followed.name })
		w.await(func() bool { return ob.has("key/00399", more["key/00399"]) })
		time.Sleep(5 * time.Second)
		ob.holds(more)
		followed.restart()
		ob.kill()
		last := w.changeMany(500, others...)
		ob.restart()
		w.await(func() bool { return ob.status().Following.Complete })
		ob.holds(last)
	})
}

// What the voters had come to with each other is where an observer goes on at the next
// one: it is not told all once more.
func TestObserverGoesOnWhereTheOtherWas(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		ca, ob := w.sites[0], w.sites[3]
		w.changeMany(300, ca)
		w.await(func() bool { return ob.status().Following.Complete && len(ob.store.Cursors()) == 3 })
		first := ob.status().Following.Voter
		for name, c := range ob.store.Cursors() {
			s := w.site(name)
			if c.Database != s.store.Database() || c.Seq > s.store.Last() {
				t.Errorf("%s: %+v, with %d saves in %x", name, c, s.store.Last(), s.store.Database())
			}
			if name != first && c.Seq == 0 {
				t.Errorf("nothing is known of how far %s had come with %s", first, name)
			}
		}
	})
}

// An observer whose disk was wiped gets its copy anew.
func TestObserverWithoutItsDatabase(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		ca, ob := w.sites[0], w.sites[3]
		want := w.changeMany(60, ca)
		w.await(func() bool { return ob.status().Following.Complete })
		ob.kill()
		for _, name := range []string{"gus.db", "gus.db-wal", "gus.db-shm"} {
			if err := os.Remove(filepath.Join(ob.data(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		ob.restart()
		w.await(func() bool { return ob.status().Following.Complete })
		ob.holds(want)
	})
}

// Cut off, an observer shows what it has, says how old that is, and takes no writes.
func TestObserverAlone(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		ca, ob := w.sites[0], w.sites[3]
		w.want(ca.set("k", "v"), "")
		w.await(func() bool { return ob.has("k", "v") && ob.status().Following.Complete })
		if age := ob.local("k").header[client.HeaderAge]; age != nil {
			t.Errorf("age %v", age)
		}
		w.cutOff(ob, true)
		time.Sleep(2 * time.Minute)
		w.want(ob.local("k"), "v")
		if age := ob.local("k").header[client.HeaderAge]; len(age) != 1 || len(age[0]) < len("110000") {
			t.Errorf("age %v", age)
		}
		w.fails(ob.ask(w.t.Context(), "PUT", kvPath+"k", "5s", "x"), client.ErrNoQuorum, "observer")
		if st := ob.status(); st.Quorum.OK || st.Following.Voter != "" || st.Following.Complete {
			t.Errorf("%+v %+v", st.Quorum, st.Following)
		}
		w.cutOff(ob, false)
		w.want(ca.set("k", "w"), "")
		w.await(func() bool { return ob.has("k", "w") })
		w.await(func() bool { return ob.local("k").header[client.HeaderAge] == nil })
	})
}

// A voter says no more to an observer than one word each few seconds where nothing changes,
// and an observer's replica is at rest.
func TestObserverAtRest(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		ca, ob := w.sites[0], w.sites[3]
		w.changeMany(100, ca)
		time.Sleep(time.Minute)
		var active int
		err := ob.loop.visit(w.t.Context(), func(r *register.Replica) { active = r.Status().Active })
		if err != nil || active != 0 {
			t.Errorf("%d active registers, %v", active, err)
		}
		before := ob.store.Last()
		time.Sleep(10 * time.Minute)
		if after := ob.store.Last(); after != before {
			t.Errorf("%d saves while nothing changed", after-before)
		}
	})
}

func (w *world) site(name string) *testSite {
	for _, s := range w.sites {
		if s.name == name {
			return s
		}
	}
	w.t.Fatalf("there is no site %q", name)
	return nil
}

// others are the voters but for one.
func (w *world) others(but ...*testSite) (all []*testSite) {
next:
	for _, s := range w.sites {
		for _, b := range but {
			if s == b {
				continue next
			}
		}
		all = append(all, s)
	}
	return all
}

// Many observers, in virtual time: each has each set within a few steps of the network.
func TestManyObservers(t *testing.T) {
	if testing.Short() {
		t.Skip("runs fifteen sites")
	}
	names := []string{"ca", "va", "ir"}
	for i := range 12 {
		names = append(names, fmt.Sprintf("ob%d", i))
	}
	inWorld(t, names, func(w *world) {
		ca := w.sites[0]
		for i := range 20 {
			value := strings.Repeat("x", i+1)
			w.want(ca.set("k", value), "")
			begin := time.Now()
			for _, ob := range w.sites[3:] {
				w.await(func() bool { return ob.has("k", value) })
			}
			// One way to a voter, which may hear of the set as late as its quorum does, another
			// to the observer, and a pace: not a figure of any machine, since time is virtual.
			if d := time.Since(begin); d > 200*time.Millisecond {
				t.Errorf("set %d took %v", i, d)
			}
		}
	})
}
