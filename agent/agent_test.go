package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gus/agent/client"
)

var three = []string{"ca", "va", "ir"}

func TestASetAtOneSiteIsReadAtAnother(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		set := ca.set("app/port", "8080")
		if set.err() != nil || set.body != "" {
			t.Fatalf("set: %d %q", set.status, set.body)
		}
		for _, s := range []*testSite{ca, va, ir} {
			got := s.get("app/port")
			w.want(got, "8080")
			for _, h := range []string{client.HeaderVersion, client.HeaderRoundTrips} {
				if len(got.header[h]) != 1 || got.header[h][0] != set.header[h][0] {
					t.Errorf("%s: get says %v, set %v", h, got.header[h], set.header[h])
				}
			}
		}
		if r := va.ask(w.t.Context(), "DELETE", kvPath+"app/port", "5s", ""); r.err() != nil {
			t.Errorf("delete: %q", r.body)
		}
		w.fails(ir.get("app/port"), client.ErrNotFound, "app/port")
		if r := va.ask(w.t.Context(), "DELETE", kvPath+"never/there", "5s", ""); r.err() != nil {
			t.Errorf("to delete what is not there: %q", r.body)
		}
	})
}

func TestWhatWasAcknowledgedSurvivesKills(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		w.want(ca.set("a", "1"), "")
		w.await(func() bool { return ir.local("a").body == "1" })
		ir.kill()
		w.want(ca.set("b", "2"), "") // by the two that are left
		w.want(va.get("a"), "1")
		ir.restart()
		w.await(func() bool { return w.connected(3) })
		w.want(ir.get("a"), "1")
		w.want(ir.get("b"), "2")
		w.want(ir.local("b"), "2")
		for _, s := range w.sites {
			s.kill()
		}
		for _, s := range w.sites {
			s.restart()
		}
		w.await(func() bool { return w.connected(3) })
		w.want(va.get("a"), "1")
		w.want(ir.get("b"), "2")
	})
}

func TestASiteThatIsCutOffSaysThatNothingChanged(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		w.want(ca.set("k", "before"), "")
		w.want(ir.get("k"), "before")
		w.cutOff(ir, true)
		w.await(func() bool { return ir.status().Quorum.Reached == 1 })

		q := ir.status().Quorum
		if q.OK || q.Since.IsZero() || len(q.Missing) != 2 {
			t.Errorf("status: %+v", q)
		}
		w.fails(ir.set("k", "lost"), client.ErrNoQuorum, "nothing changed", "ca (since ", "va (since ", "2 of 3")
		w.fails(ir.get("k"), client.ErrNoQuorum, "ca (since ", "va (since ")
		w.want(ir.local("k"), "before")
		w.want(ca.set("k", "meanwhile"), "") // the others go on
		w.want(va.get("k"), "meanwhile")

		w.cutOff(ir, false)
		w.await(func() bool { return w.connected(3) })
		w.want(ir.get("k"), "meanwhile")
		w.want(ca.get("k"), "meanwhile")
		if q := ir.status().Quorum; !q.OK || !q.Since.IsZero() {
			t.Errorf("status after it healed: %+v", q)
		}
	})
}

func TestASetThatWasSentHasAnUnknownOutcome(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		w.cutOff(ir, true) // and nobody has noticed yet
		r := ir.set("k", "perhaps")
		w.fails(r, client.ErrUnknownOutcome, "may still take effect")
		w.fails(ca.get("k"), client.ErrNotFound)
		w.cutOff(ir, false)
		w.await(func() bool { return ca.get("k").err() == nil })
		w.want(ca.get("k"), "perhaps") // it has taken effect: nobody may say that nothing changed
	})
}

func TestASetWaitsForAQuorumUntilItsDeadline(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		w.cutOff(ir, true)
		w.await(func() bool { return ir.status().Quorum.Reached == 1 })
		done := make(chan reply, 1)
		go func() { done <- ir.ask(w.t.Context(), "PUT", kvPath+"k", "10m", "patient") }()
		gone, leave := context.WithCancel(w.t.Context())
		go func() { done <- ir.ask(gone, "PUT", kvPath+"left", "10m", "impatient") }()
		synctest.Wait()
		if n := ir.status().Waiting; n != 2 {
			t.Errorf("%d sets wait, want 2", n)
		}
		leave() // that client is gone: its set must not happen
		<-done
		time.Sleep(time.Minute)
		w.cutOff(ir, false)
		w.want(<-done, "")
		w.want(ca.get("k"), "patient")
		w.fails(ca.get("left"), client.ErrNotFound)
	})
}

func TestEachRequestIsAnsweredWhenTheAgentStops(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ir := w.sites[2]
		w.cutOff(ir, true)
		done := map[string]chan reply{"sent": make(chan reply, 1), "waits": make(chan reply, 1), "read": make(chan reply, 1)}
		ask := func(name, method string) {
			go func() { done[name] <- ir.ask(w.t.Context(), method, kvPath+name, "10m", "") }()
			synctest.Wait()
		}
		ask("sent", "PUT")
		w.await(func() bool { return ir.status().Quorum.Reached == 1 })
		ask("waits", "PUT")
		ask("read", "GET")
		ir.kill()
		w.fails(<-done["sent"], client.ErrUnknownOutcome)
		w.fails(<-done["waits"], client.ErrStopping, "nothing changed")
		w.fails(<-done["read"], client.ErrStopping)
	})
}

func TestASiteAloneNeedsNobody(t *testing.T) {
	inWorld(t, []string{"solo"}, func(w *world) {
		s := w.sites[0]
		r := s.set("k", "v")
		w.want(r, "")
		if n := r.header[client.HeaderRoundTrips]; n[0] != "0" {
			t.Errorf("%s round trips", n)
		}
		w.want(s.get("k"), "v")
		s.kill()
		s.restart()
		w.want(s.get("k"), "v")
	})
}
