package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
	"gus/snapshot"
)

// What comes at the moment at which an idle watch is about to show that it is alive is told
// like all else.
func TestAnIdleWatchDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, out := newFeed(), new(bytes.Buffer)
		ctx, cancel := context.WithCancel(t.Context())
		l := &loop{feed: f, desk: newDesk()}
		x := &watching{
			watches: &watches{node: &node{store: new(snapshot.Store), loop: l, catchup: new(catchup)}},
			tail:    &tail{loop: l, listening: true},
			enc:     json.NewEncoder(out), flush: func() error { return nil },
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = x.run(ctx) })
		time.Sleep(watchAlive - 1)
		f.mu.Lock()
		time.Sleep(time.Nanosecond) // it is time for a sign of life, and the loop is just publishing
		for range 1000 {
			runtime.Gosched()
		}
		f.add(&event{News: register.News{Key: "k", Write: register.Write{Tag: register.Tag{TS: 1 << 40, Owner: 1}}}})
		f.upto = 1
		f.turns = append(f.turns, turn{f.end(), 1, 1})
		f.mu.Unlock()
		f.more.rise()
		time.Sleep(watchAlive / 2)
		cancel()
		wg.Wait()
		if !strings.Contains(out.String(), `"key":"k"`) {
			t.Errorf("the set of k is not told, and the cursor is behind it: %s", out)
		}
	})
}

// A voter does not tell how far it has come with another one before it has told all that it
// has from there: also what it merely came to know as settled.
func TestCursorsWaitForWhatIsSettledWithoutASave(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca := w.sites[0]
		time.Sleep(3 * epochLength)
		tag := register.Tag{TS: 1 << 40, Owner: 2}
		step := func(m register.Message) {
			if err := ca.loop.visit(w.t.Context(), func(r *register.Replica) {
				if err := r.Step(2, m); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Error(err)
			}
		}
		// ca holds a write that is not settled there, and saved.
		step(&register.MsgForward{Key: "k", Round: register.Round{Boot: 1, Count: 1 << 30}, Write: register.Write{Tag: tag, Value: []byte("v")}})
		time.Sleep(time.Millisecond)
		told := false
		x := &telling{catchup: ca.catchup, tail: newTail(ca.loop, ca.store, "", 0)}
		defer x.close()
		take := func() (more bool) {
			events, more, err := x.tail.next(w.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				told = told || e.Key == "k"
			}
			return more
		}
		for take() {
		}
		if told || x.cursor != ca.store.Last() {
			t.Fatalf("told %v, up to %d of %d", told, x.cursor, ca.store.Last())
		}
		// Between that and the part that is to be sent, a pull shows that it is settled, and ends.
		step(&register.MsgCatchup{Key: "k", Held: true, Write: register.Write{Tag: tag, Value: []byte("v"), Decided: true}})
		at := snapshot.Cursor{Database: w.sites[1].store.Database(), Seq: 1 << 20}
		ca.store.SetCursor("va", at)
		cursors, err := x.others(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cursors {
			if c.Voter == "va" && c.Seq == at.Seq && !told {
				t.Error("the cursor into va is told, and not what ca has from there")
			}
		}
	})
}

// Nor does it after a start, before it knows again as settled what it had from there.
func TestCursorsWaitForWhatIsSettledAgain(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va := w.sites[0], w.sites[1]
		time.Sleep(3 * epochLength)
		write := register.Write{Tag: register.Tag{TS: 1 << 40, Owner: 2}, Value: []byte("v")}
		step := func(m register.Message) {
			if err := ca.loop.visit(w.t.Context(), func(r *register.Replica) {
				if err := r.Step(2, m); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Error(err)
			}
		}
		at := snapshot.Cursor{Database: va.store.Database(), Seq: 1 << 20}
		step(&register.MsgForward{Key: "k", Round: register.Round{Boot: 1, Count: 1 << 30}, Write: write})
		synctest.Wait()
		write.Decided = true
		step(&register.MsgCatchup{Key: "k", Held: true, Write: write})
		ca.store.SetCursor("va", at)
		ca.kill()
		w.cutOff(va, true)
		w.cutOff(w.sites[2], true)
		ca.restart()
		told := false
		x := &telling{catchup: ca.catchup, tail: newTail(ca.loop, ca.store, "", 0)}
		defer x.close()
		for more := true; more; {
			events, again, err := x.tail.next(w.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				told = told || e.Key == "k"
			}
			more = again
		}
		t.Log("cursors", ca.store.Cursors(), "told", told)
		cursors, err := x.others(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cursors {
			if c.Voter == "va" && c.Seq == at.Seq && !told {
				t.Error("the cursor into va is told, and not what ca has from there")
			}
		}
	})
}
