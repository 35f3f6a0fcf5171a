package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/agent/client"
	"gus/quic"
	"gus/register"
)

// copy makes to a copy of the data directory from, as a backup is one.
func (w *world) copy(from, to string) {
	w.t.Helper()
	err := os.CopyFS(to, os.DirFS(from))
	err = errors.Join(err, filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() { // CopyFS opens what was closed to others
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	}))
	if err != nil {
		w.t.Fatal(err)
	}
}

// forgot checks that err ends an agent that has forgotten what it promised, in
// one line with the words.
func (w *world) forgot(err error, words ...string) {
	w.t.Helper()
	if !errors.Is(err, ErrForgotten) || strings.Contains(err.Error(), "\n") {
		w.t.Fatalf("it ended with %v, want one line of ErrForgotten", err)
	}
	for _, word := range append(words, "must not vote", "the others go on without it") {
		if !strings.Contains(err.Error(), word) {
			w.t.Errorf("%q does not say %q", err, word)
		}
	}
}

// refused opens the site's directory, which must be refused.
func (s *testSite) refused() error {
	s.w.t.Helper()
	n, err := s.open()
	if err == nil {
		s.w.t.Error(n.close())
		s.w.t.Fatalf("the directory of %s is not refused", s.name)
	}
	if err := s.net.Close(); err != nil {
		s.w.t.Error(err)
	}
	return err
}

func TestARestoredCopyDoesNotVote(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		w.want(ir.set("k", "old"), "")
		ir.kill()
		backup := filepath.Join(w.dir, "backup")
		w.copy(ir.data(), backup)
		ir.restart()
		w.await(func() bool { return w.connected(3) })
		w.want(ir.set("k", "new"), "")
		ir.kill()
		w.putBack(backup, ir)
		ir.restart()
		w.forgot(ir.ended(), ir.data(), "it knows of start 1 and record ", "they have heard of start 2 and record ", "leave this agent stopped")
		w.want(ca.get("k"), "new")
		w.want(va.set("k", "newer"), "")
		w.want(ca.get("k"), "newer")

		w.cutOff(ir, true) // it need not ask again
		w.forgot(ir.refused(), ir.data(), "as an earlier start found: they had heard of start 2 and record ")
	})
}

// Somebody else has run from a copy of the directory, and was heard: this process
// learns of it while it votes.
func TestASiteThatHearsOfItsDoubleStops(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		w.want(ir.set("k", "v"), "")
		double := register.Progress{Voter: 3, Boot: 7, Saved: 1000}
		ir.deliver(w.t.Context(), 1, quic.Batch{Header: quic.Header{Boot: 1, Progress: []register.Progress{double}}})
		w.forgot(ir.ended(), "this process is start 1", "start 7 and record 1000", "a copy", "stop that one")
		w.want(ca.set("k", "w"), "")
		w.forgot(ir.refused(), "start 7 and record 1000")
	})
}

// putBack replaces the data of s, which does not run, by what was copied before.
func (w *world) putBack(backup string, s *testSite) {
	if err := os.RemoveAll(s.data()); err != nil {
		w.t.Fatal(err)
	}
	w.copy(backup, s.data())
}

// double is another process with a copy of the directory of s, as it is now.
func (w *world) double(s *testSite) *testSite {
	d := &testSite{w: w, name: s.name, addr: address(9), seeds: s.seeds, disk: filepath.Join(w.dir, "double")}
	if err := os.MkdirAll(d.disk, 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.copy(s.data(), d.data())
	w.sites = append(w.sites, d)
	return d
}

// A copy that somebody starts while its site runs on is refused, and the site goes
// on as if nothing had been.
func TestACopyTakesNothingFromItsSite(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		double := w.double(ir)
		w.want(ir.set("k", "v"), "")
		time.Sleep(20 * time.Second) // both others have heard of that
		double.start()
		w.forgot(double.ended(), "they have heard of start 1 and record ")
		time.Sleep(time.Minute)
		w.sites = w.sites[:3]
		w.sites[1].kill()
		w.await(func() bool { return w.connected(2) })
		w.want(ca.set("k", "w"), "")
		w.want(ir.get("k"), "w")
	})
}

func TestASiteAsksBeforeItVotes(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		w.want(ca.set("k", "v"), "")
		w.want(ir.get("k"), "v")
		w.await(func() bool { return ir.local("k").body == "v" })
		time.Sleep(5 * time.Second) // that it is settled is saved by a tick

		// All are there and answer.
		ir.kill()
		ir.restart()
		w.await(func() bool { return w.connected(3) })
		if ir.loop.answered != register.SetOf(1, 2) {
			t.Errorf("it votes, and %b answered", ir.loop.answered)
		}

		// One is missing: that one is waited for, and then done without.
		ir.kill()
		va.kill()
		ir.restart()
		w.await(func() bool { return slices.Equal(ir.status().Voting.Awaits, []string{"va"}) })
		w.fails(ir.ask(w.t.Context(), "GET", kvPath+"k", "1s", ""), client.ErrNoQuorum, "has not voted since its start at 2000-", "it waits for va to say", "nothing changed")
		w.want(ir.local("k"), "v")
		w.await(func() bool { return ir.status().Voting.OK })
		w.want(ir.set("k", "w"), "")
		if ir.loop.answered != register.SetOf(1) {
			t.Errorf("it votes, and %b answered", ir.loop.answered)
		}

		// Alone it never votes; what it is asked for waits.
		ir.kill()
		ca.kill()
		ir.restart()
		time.Sleep(time.Hour)
		if v := ir.status().Voting; v.OK || !slices.Equal(v.Awaits, []string{"ca", "va"}) || !v.Since.Equal(ir.started) {
			t.Errorf("alone: %+v, started %v", v, ir.started)
		}
		if !slices.Contains(ir.codes(), "not_voting") {
			t.Errorf("alone it warns of %v", ir.codes())
		}
		w.fails(ir.get("k"), client.ErrNoQuorum, "it waits for ca, va to say", "nothing changed")
		w.fails(ir.set("k", "x"), client.ErrNoQuorum, "it waits for ca, va to say", "nothing changed")
		w.want(ir.local("k"), "w")
		patient := make(chan reply, 2)
		go func() { patient <- ir.ask(w.t.Context(), "PUT", kvPath+"patient", "10m", "set") }()
		go func() { patient <- ir.ask(w.t.Context(), "DELETE", kvPath+"gone", "10m", "") }()
		synctest.Wait()
		ca.restart()
		w.want(<-patient, "")
		w.want(<-patient, "")
		w.want(ca.get("patient"), "set")
		w.want(ca.get("k"), "w")
		if slices.Contains(ir.codes(), "not_voting") {
			t.Errorf("it votes and warns of %v", ir.codes())
		}
	})
}

func TestAllComeBackInAnyOrder(t *testing.T) {
	inWorld(t, three, func(w *world) {
		w.want(w.sites[0].set("k", "v"), "")
		for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			for _, s := range w.sites {
				s.kill()
			}
			for _, i := range order {
				w.sites[i].restart()
				time.Sleep(7 * time.Second)
			}
			w.await(func() bool { return w.connected(3) })
			for _, s := range w.sites {
				w.want(s.get("k"), "v")
			}
			w.want(w.sites[order[2]].set("k", "v"), "")
		}
	})
}
