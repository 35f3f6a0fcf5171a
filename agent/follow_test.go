package agent

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
)

// slowDisk has the ends of a site's saves held up while it is shut.
type slowDisk struct {
	shut atomic.Bool
	open chan struct{}
}

func (s *testSite) slow() *slowDisk {
	d := &slowDisk{open: make(chan struct{})}
	s.kill()
	s.saving = func() {
		if d.shut.Load() {
			<-d.open
		}
	}
	s.restart()
	s.w.await(func() bool { return s.w.connected(3) && s.caughtUp() })
	return d
}

func (d *slowDisk) release() { d.shut.Store(false); close(d.open) }

// takesIn has the site learn a settled write, as it does when it catches up.
func (s *testSite) takesIn(key string) {
	s.w.t.Helper()
	err := s.loop.visit(s.w.t.Context(), func(r *register.Replica) {
		m := &register.MsgCatchup{Key: key, Held: true, Write: register.Write{Tag: register.Tag{TS: 1 << 40, Owner: 2}, Value: []byte("v"), Decided: true}}
		if err := r.Step(2, m); err != nil {
			s.w.t.Error(err)
		}
	})
	if err != nil {
		s.w.t.Error(err)
	}
}

func (s *testSite) follows(name string) *follower {
	for _, p := range s.catchup.peers {
		if p.name == name {
			return p
		}
	}
	return nil
}

// mute drops UPDATE-VIEW, as a full queue does.
type mute struct{ transport }

func (m mute) Send(to register.Set, msg register.Message) {
	if msg.Kind() != register.KindUpdateView {
		m.transport.Send(to, msg)
	}
}

// What the disk has and the loop has not been told of yet is shown to nobody, and so
// it must not be passed over either.
func TestASaveThatTheLoopHasNotHeardOfIsNotPassedOver(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		disk := ca.slow()
		time.Sleep(3 * epochLength)
		disk.shut.Store(true)
		ca.takesIn("k")
		synctest.Wait()
		ir.follows("ca").hear(ca.store.Last())
		time.Sleep(2 * epochLength) // it pulls
		// Nobody else tells ir: what is said of it now finds a full queue.
		_ = ca.loop.visit(w.t.Context(), func(*register.Replica) { ca.loop.transport = mute{ca.loop.transport} })
		disk.release()
		for range 100 {
			time.Sleep(time.Second)
			for _, s := range w.sites {
				if d := s.disagreements(); len(d) > 0 {
					t.Fatalf("a false alarm at %s: %v", s.name, d)
				}
			}
		}
		w.want(ir.local("k"), "v")
	})
}

// What was shown as settled and is left out, as something newer has come, is passed over only once that
// is durable: a crash would leave what was shown, and nobody would come back for it.
func TestAWriteThatWasShownAndIsLeftOutIsNotPassedOver(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca := w.sites[0]
		disk := ca.slow()
		time.Sleep(3 * epochLength)
		ca.takesIn("k")
		time.Sleep(time.Second)
		x := &served{catchup: ca.catchup}
		must(t, x.begin(w.t.Context(), pullAsk{Version: streamVersion}))
		defer x.stop()
		_, err := x.page(w.t.Context())
		must(t, err)
		i := slices.Index(x.keys, "k")
		if i < 0 {
			t.Fatalf("k is not shown: %q", x.keys)
		}
		disk.shut.Store(true)
		must(t, ca.loop.visit(w.t.Context(), func(r *register.Replica) {
			newer := register.Write{Tag: register.Tag{TS: 1 << 41, Owner: 2}, Value: []byte("newer")}
			must(t, r.Step(2, &register.MsgForward{Key: "k", Round: register.Round{Boot: 1, Count: 1 << 30}, Write: newer}))
		}))
		if err := x.sendWrites(w.t.Context(), []uint16{uint16(i)}); !errors.Is(err, errLeftOut) {
			t.Errorf("it goes on, with %v", err)
		}
		x.held = false
		time.AfterFunc(saveWait/2, disk.release)
		if err := x.sendWrites(w.t.Context(), []uint16{uint16(i)}); err != nil {
			t.Errorf("what has come instead is durable, and it ends with %v", err)
		}
	})
}

// A cursor says that all up to it is durable here.
func TestACursorWaitsForWhatWasKnownAndNotSaved(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		disk := ir.slow()
		time.Sleep(3 * epochLength)
		disk.shut.Store(true)
		ir.takesIn("other") // its save does not end
		synctest.Wait()
		w.want(ca.set("k", "v"), "")
		time.Sleep(2 * time.Second)
		number := ca.store.Last()
		time.Sleep(3 * epochLength)
		var shown register.Shown
		_ = ir.loop.visit(w.t.Context(), func(r *register.Replica) { shown = r.Show([]string{"k"})[0] })
		if got := ir.store.Cursors()["ca"].Seq; got >= number-1 && !shown.Settled() {
			t.Errorf("the cursor is %d of %d, and what is below it is not durable: %+v", got, number, shown)
		}
		disk.release()
		w.await(func() bool { return ir.caughtUp() })
	})
}

// The directory was put back to before several starts, and nobody has anything to
// say: it must hear nevertheless that it has forgotten.
func TestAMuchOlderCopyHearsOfIt(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ir := w.sites[2]
		w.want(ir.set("k", "old"), "")
		ir.kill()
		backup := filepath.Join(w.dir, "backup")
		w.copy(ir.data(), backup)
		for range 3 {
			ir.restart()
			w.await(func() bool { return w.connected(3) })
			w.want(ir.set("k", "new"), "")
			ir.kill()
		}
		w.putBack(backup, ir)
		ir.restart()
		select {
		case err := <-ir.done:
			ir.done <- err
			w.forgot(ir.ended(), "they have heard of start 4")
		case <-time.After(10 * time.Minute):
			t.Errorf("voting after ten minutes: %+v", ir.status().Voting)
		}
	})
}

// An alarm on a key that is then set again and again ends.
func TestAnAlarmOnABusyKeyEnds(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		w.want(ca.set("k", "right"), "")
		time.Sleep(3 * epochLength)
		ir.forge(func(r *register.Record) { r.Cur.Value = []byte("wrong") }, "k")
		w.await(func() bool { return len(ca.disagreements()) == 1 })
		cleared := map[string]bool{}
		for i := 0; i < 3*60*10 && len(cleared) < 2; i++ {
			w.want(ca.set("k", fmt.Sprint(i)), "")
			time.Sleep(10 * time.Millisecond)
			for _, s := range []*testSite{ca, ir} {
				if i%10 == 0 && len(s.disagreements()) == 0 {
					cleared[s.name] = true
				}
			}
		}
		if len(cleared) < 2 {
			t.Errorf("only cleared at %v: ca %v, ir %v", cleared, ca.disagreements(), ir.disagreements())
		}
	})
}
