package agent

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
)

// A watch that begins with the state tells no older version after it, also while the loop has not
// heard of the save that the state waited for.
func TestTheStateOfAWatchIsNotTakenBack(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca := w.sites[0]
		disk := ca.slow()
		time.Sleep(3 * epochLength)
		step := func(m register.Message) {
			if err := ca.loop.visit(w.t.Context(), func(r *register.Replica) {
				if err := r.Step(2, m); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Error(err)
			}
		}
		write := func(ts uint64, decided bool) register.Write {
			return register.Write{Tag: register.Tag{TS: ts << 16, Owner: 2}, Value: []byte("v"), Decided: decided}
		}
		// One is saved, and comes to be known as settled without a save.
		step(&register.MsgForward{Key: "k", Round: register.Round{Boot: 1, Count: 1 << 30}, Write: write(1<<20, false)})
		synctest.Wait()
		step(&register.MsgCatchup{Key: "k", Held: true, Write: write(1<<20, true)})
		synctest.Wait()
		disk.shut.Store(true)
		step(&register.MsgCatchup{Key: "k", Held: true, Write: write(1<<21, true)})
		synctest.Wait()
		x := ca.watch("state=true")
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		disk.release()
		time.Sleep(5 * time.Second)
		grows(t, x.stop())
	})
}

// A page of news of other keys does not mean that all is told.
func TestOtherKeysDoNotSyncAWatch(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca := w.sites[0]
		time.Sleep(3 * epochLength)
		w.want(ca.set("first", "x"), "")
		time.Sleep(5 * time.Second)
		x := newTail(ca.loop, ca.store, "mine/", ca.store.Last())
		defer x.close()
		for more := true; more; {
			var err error
			if _, more, err = x.next(w.t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range maxTail + 10 {
			w.want(ca.set(fmt.Sprintf("other/%d", i), "x"), "")
		}
		w.want(ca.set("mine/k", "x"), "")
		time.Sleep(time.Second)
		told := false
		for more := true; more; {
			events, again, err := x.next(w.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				told = told || strings.HasPrefix(e.Key, "mine/")
			}
			more = again
		}
		if !told {
			t.Error("there is no more, it says, and there is")
		}
	})
}
