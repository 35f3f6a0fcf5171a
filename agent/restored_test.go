package agent

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// A voter that was alone was put back to an earlier image, and nobody can tell it: who has followed it
// gets all that it has by now, or is told to begin again.
func TestWhoFollowedAVoterThatWasPutBackMissesNothing(t *testing.T) {
	inWorld(t, []string{"ca", "ob"}, func(w *world) {
		ca, ob := w.sites[0], w.sites[1]
		w.want(ca.set("before", "x"), "")
		w.await(func() bool { return ob.has("before", "x") })
		time.Sleep(5 * time.Second)
		ca.kill()
		backup := filepath.Join(w.dir, "backup")
		w.copy(ca.data(), backup)
		ca.restart()
		for i := range 20 {
			w.want(ca.set("lost", fmt.Sprint(i)), "")
		}
		w.await(func() bool { return ob.has("lost", "19") })
		x := ca.watch("")
		w.await(x.synced)
		cursor := cursorOf(x.stop())
		time.Sleep(5 * time.Second)
		ca.kill()
		ob.kill()
		w.putBack(backup, ca)
		ca.restart()
		w.await(func() bool { return ca.status().Voting.OK })
		w.want(ca.set("after", "x"), "")
		for i := range 40 {
			w.want(ca.set("more", fmt.Sprint(i)), "")
		}
		x = ca.watch("after=" + cursor)
		time.Sleep(5 * time.Second)
		if got := final(x.stop()); x.status == 200 && x.failed == nil {
			if _, ok := got["after"]; !ok {
				t.Errorf("a watch after the cursor misses a key without a word")
			}
		}
		ob.restart()
		w.await(func() bool { return ob.has("more", "39") })
		time.Sleep(time.Minute)
		if r := ob.local("after"); r.err() != nil {
			t.Errorf("the observer, complete %v, misses a key: %v", ob.status().Following.Complete, r.err())
		}
	})
}

// While that voter has less than it had, an observer follows it all the same.
func TestAnObserverFollowsAVoterThatWasPutBack(t *testing.T) {
	inWorld(t, []string{"ca", "ob"}, func(w *world) {
		ca, ob := w.sites[0], w.sites[1]
		w.want(ca.set("before", "x"), "")
		w.await(func() bool { return ob.has("before", "x") })
		time.Sleep(5 * time.Second)
		ca.kill()
		backup := filepath.Join(w.dir, "backup")
		w.copy(ca.data(), backup)
		ca.restart()
		for i := range 40 {
			w.want(ca.set("lost", fmt.Sprint(i)), "")
		}
		w.await(func() bool { return ob.has("lost", "39") })
		time.Sleep(5 * time.Second)
		ca.kill()
		w.putBack(backup, ca)
		ca.restart()
		w.await(func() bool { return ca.status().Voting.OK })
		w.want(ca.set("after", "x"), "")
		time.Sleep(5 * time.Minute)
		if !ob.has("after", "x") {
			t.Errorf("for five minutes: %+v", ob.status().Following)
		}
	})
}
