package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
	"gus/membership"
)

var threeAndOne = []string{"ca", "va", "ir", "ob"}

// via is the voter to which a request was passed on.
func via(r reply) string { return strings.Join(r.header[client.HeaderVia], " ") }

// What an observer's clients do through it is as if they did it at a voter, with one round
// trip more; and it is at the observer by itself soon after.
func TestAnObserverReadsAndWrites(t *testing.T) {
	inWorld(t, threeAndOne, func(w *world) {
		ca, ob := w.sites[0], w.sites[3]
		r := ob.set("app/port", "8080")
		w.want(r, "")
		if via(r) == "" || r.header[client.HeaderRoundTrips][0] != "2" {
			t.Errorf("passed on to %q: %v", via(r), r.header)
		}
		for _, s := range w.sites {
			w.want(s.get("app/port"), "8080")
		}
		w.await(func() bool { return ob.local("app/port").body == "8080" })
		if r := ob.local("app/port"); via(r) != "" || r.header[client.HeaderRoundTrips][0] != "0" {
			t.Errorf("a local read: %v", r.header)
		}
		w.want(ca.set("app/port", "8081"), "")
		w.want(ob.get("app/port"), "8081") // at once, whatever its copy says
		r = ob.ask(w.t.Context(), "GET", listPath+"?prefix=app/", "5s", "")
		if r.err() != nil || !strings.Contains(r.body, `"key":"app/port"`) || !strings.Contains(r.body, `"size":4`) {
			t.Errorf("list: %+v", r)
		}
		w.want(ob.ask(w.t.Context(), "DELETE", kvPath+"app/port", "5s", ""), "")
		w.fails(ca.get("app/port"), client.ErrNotFound)
		w.fails(ob.get("app/port"), client.ErrNotFound)
		w.fails(ob.set("_gus/x", "v"), client.ErrRefused, "system's")
		if r := ob.ask(w.t.Context(), "POST", tokenPath, "5s", ""); r.status != 500 || !strings.Contains(r.body, "tokens are made by voters") {
			t.Errorf("a token: %+v", r)
		}
	})
}

// A voter is killed: what the observer's clients do goes through the others, and of the
// writes that the dead one was given the outcome is unknown. None is written twice.
func TestAnObserverWhoseVoterDies(t *testing.T) {
	inWorld(t, threeAndOne, func(w *world) {
		ob := w.sites[3]
		for round := range 3 {
			key, value := fmt.Sprint("k", round), fmt.Sprint("v", round)
			r := ob.set(key, "before")
			w.want(r, "")
			dead := w.sites[slices.Index(threeAndOne, via(r))]
			dead.kill()
			if r := ob.set(key, "lost"); r.err() != nil {
				w.fails(r, client.ErrUnknownOutcome, dead.name+" was given it")
			}
			r = ob.set(key, value)
			w.want(r, "")
			if via(r) == dead.name {
				t.Errorf("a dead voter has written %s", key)
			}
			w.want(ob.get(key), value)
			dead.restart()
			w.await(func() bool { return w.connected(3) })
			for _, s := range w.sites {
				w.want(s.get(key), value)
			}
		}
	})
}

// A voter dies without a word while nothing is asked: a few seconds later, long before the transport misses it, the
// observer asks others first, and no write is given to it.
func TestAnObserverWhoseVoterIsSilent(t *testing.T) {
	inWorld(t, threeAndOne, func(w *world) {
		ob := w.sites[3]
		w.await(func() bool { f := ob.status().Following; return f != nil && f.Complete })
		time.Sleep(10 * time.Second)
		followed := ob.status().Following.Voter
		dead := w.sites[slices.Index(threeAndOne, followed)]
		w.cutOff(dead, true)
		for wait, key := range []string{"a", "b", "c"} { // followed still, given up, and another one followed
			time.Sleep(4 * time.Second)
			if wait == 0 && ob.status().Quorum.Reached != 3 {
				t.Error("it is missed already")
			}
			if r := ob.set(key, "v"); r.err() != nil || via(r) == followed {
				t.Errorf("%s is dead, and %s was set via %q: %v", followed, key, via(r), r.err())
			}
		}
		w.cutOff(dead, false)
		w.await(func() bool { return w.connected(3) })
		w.want(dead.get("c"), "v")
	})
}

// Without a quorum, and without any voter, an observer's clients hear what is missing, and
// that nothing changed.
func TestAnObserverWithoutAQuorum(t *testing.T) {
	inWorld(t, threeAndOne, func(w *world) {
		ca, va, ir, ob := w.sites[0], w.sites[1], w.sites[2], w.sites[3]
		w.want(ob.set("k", "v"), "")
		w.await(func() bool { return ob.local("k").body == "v" })
		ca.kill()
		va.kill()
		time.Sleep(30 * time.Second)
		w.fails(ob.set("k", "w"), client.ErrNoQuorum, "ir answered: ", "a write needs 2 of 3 voters and reaches 1: nothing changed", "ca")
		w.fails(ob.get("k"), client.ErrNoQuorum, "ir answered: ")
		w.cutOff(ob, true)
		time.Sleep(30 * time.Second)
		w.fails(ob.set("k", "w"), client.ErrNoQuorum, "none of the voters (ca, va, ir) is in reach: nothing changed")
		w.fails(ob.ask(w.t.Context(), "GET", listPath, "1s", ""), client.ErrNoQuorum, "none of the voters")
		w.want(ob.local("k"), "v")
		w.cutOff(ob, false)
		ca.restart()
		w.await(func() bool { return ir.status().Quorum.OK })
		w.await(func() bool { return ob.get("k").err() == nil })
		w.want(ob.get("k"), "v")
	})
}

// Voters show an observer as one, it shows them, and its name is nobody else's.
func TestAnObserverAmongTheMembers(t *testing.T) {
	inEmptyWorld(t, []string{"site-a", "site-b", "site-c"}, func(w *world) {
		w.found()
		a, token := w.sites[0], w.sites[0].token()
		ob := &testSite{w: w, name: "kiosk", addr: address(50)}
		conn := w.plug(ob)
		_, err := membership.Join(w.t.Context(), membership.Joining{Data: ob.data(), Name: ob.name, Token: token, Observer: true, Conn: conn, Lookup: w.lookup})
		if err := errors.Join(err, conn.Close(), ob.net.Close()); err != nil {
			t.Fatal(err)
		}
		ob.start()
		defer ob.kill()
		is := func(state client.State) func() bool {
			return func() bool {
				return slices.ContainsFunc(a.status().Members, func(m client.Member) bool {
					return m.Name == "kiosk" && m.State == state && m.Role == "observer" && m.Version != ""
				})
			}
		}
		w.await(is(client.StateUp))
		w.await(func() bool {
			up := 0
			for _, m := range ob.status().Members {
				if m.State == client.StateUp && m.Address != "" && m.Role == map[bool]string{true: "observer", false: "voter"}[m.Self] {
					up++
				}
			}
			return up == 4
		})
		w.want(ob.set("k", "v"), "")
		ob.kill()
		w.await(is(client.StateDown))
		for _, warning := range a.status().Warnings {
			if strings.Contains(warning.Text, "kiosk") {
				t.Errorf("a warns: %+v", warning)
			}
		}
		if q := a.status().Quorum; q.Voters != 3 || q.Reached != 3 || !q.OK {
			t.Errorf("an observer counts: %+v", q)
		}
	})
}
