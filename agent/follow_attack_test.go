package agent

import (
	"fmt"
	"testing"
	"time"

	"gus/register"
	"gus/snapshot"
)

// What comes at the moment at which an idle watch is about to show that it is alive is told
// like all else.
func TestAnIdleWatchDropsNothing(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca := w.sites[0]
		w.want(ca.set("key/first", "x"), "")
		time.Sleep(5 * time.Second)
		x := ca.watch("values=true")
		w.await(x.synced)
		const n = 60
		begin := time.Now()
		for i := range n {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * watchAlive)))
			w.want(ca.set(fmt.Sprintf("key/%02d", i), "x"), "")
		}
		time.Sleep(5 * time.Second)
		got := final(x.stop())
		for i := range n {
			if k := fmt.Sprintf("key/%02d", i); got[k] != "x" {
				t.Errorf("%s is missing", k)
			}
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
		for _, c := range x.others() {
			if c.Voter == "va" && c.Seq == at.Seq && !told {
				t.Error("the cursor into va is told, and not what ca has from there")
			}
		}
	})
}
