package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
	"gus/register"
	"gus/snapshot"
)

// verify has s compare itself with the others.
func (s *testSite) verify() (v client.Verification) {
	s.w.t.Helper()
	r := s.ask(s.w.t.Context(), "GET", verifyPath, "1m", "")
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || r.err() != nil {
		s.w.t.Fatalf("%d %q: %v", r.status, r.body, err)
	}
	return v
}

// disagreements are keys and peers, as status tells.
func (s *testSite) disagreements() (all []string) {
	for _, d := range s.status().Disagreements.Keys {
		all = append(all, d.Key+" "+d.Peer)
	}
	return all
}

// forge changes what a site holds of keys behind its back, while it is stopped.
func (s *testSite) forge(change func(r *register.Record), keys ...string) {
	s.kill()
	s.edit(func(store *snapshot.Store, save func(register.Record)) {
		for _, key := range keys {
			rec := recordOf(s.w.t, store, key)
			change(&rec)
			rec.Cur.Decided, rec.Readable = true, true
			save(rec)
		}
	})
	s.restart()
	s.w.await(func() bool { return s.w.connected(3) && s.caughtUp() })
}

// forgottenWrite makes of a record that of a write before the last one.
func forgottenWrite(r *register.Record) {
	r.Cur.Tag.TS -= 1000
	r.Cur.Value = []byte("before")
	r.Recs, r.Floor = nil, register.Tag{}
}

func TestADisagreementIsToldAndRepaired(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		want := w.changeMany(30, ca, va, ir)
		w.want(ca.set("app/port", "8080"), "")
		time.Sleep(3 * epochLength)
		for _, s := range w.sites {
			if v := s.verify(); len(v.Differ) > 0 || len(v.Compared) != 2 || len(v.NotCompared) > 0 || v.Keys != 31 || v.Site != s.name {
				t.Errorf("%s: %+v", s.name, v)
			}
		}
		ir.forge(forgottenWrite, "app/port")
		w.want(ir.local("app/port"), "before")

		// Who asks hears of it at once.
		v := ir.verify()
		if len(v.Differ) != 2 || v.Differ[0].Key != "app/port" || v.Differ[0].Peer != "ca" || v.Differ[1].Peer != "va" ||
			v.Differ[0].Version.Compare(v.Differ[0].PeerVersion) >= 0 {
			t.Errorf("%+v", v)
		}
		if v := va.verify(); len(v.Differ) != 1 || v.Differ[0].Peer != "ir" || v.Differ[0].PeerVersion.Compare(v.Differ[0].Version) >= 0 {
			t.Errorf("%+v", v)
		}

		// Who does not ask is told, and it is repaired.
		w.await(func() bool {
			for _, s := range w.sites {
				for _, d := range s.disagreements() {
					if s == ir && (d == "app/port ca" || d == "app/port va") || s != ir && d == "app/port ir" {
						return true
					}
					t.Errorf("%s: %s", s.name, d)
				}
			}
			return false
		})
		w.await(func() bool { return ir.local("app/port").body == "8080" })
		w.await(func() bool { return len(ir.disagreements())+len(ca.disagreements())+len(va.disagreements()) == 0 })
		if c := ir.codes(); len(c) > 0 {
			t.Errorf("warnings %v", c)
		}
		if v := ca.verify(); len(v.Differ) > 0 {
			t.Errorf("%+v", v)
		}
		ir.holds(want)
	})
}

// The same version with another value is beyond a read: that is said until
// somebody sets the key.
func TestOneVersionWithTwoValues(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		w.want(ca.set("k", "right"), "")
		time.Sleep(3 * epochLength)
		ir.forge(func(r *register.Record) { r.Cur.Value = []byte("wrong") }, "k")
		w.await(func() bool { return len(ca.disagreements()) == 1 })
		time.Sleep(10 * time.Minute)
		d := ca.status().Disagreements
		if d.Count != 1 || len(d.Keys) != 1 || d.Keys[0].Version != d.Keys[0].PeerVersion || d.Keys[0].Version == "" {
			t.Errorf("%+v", d)
		}
		i := slices.IndexFunc(ca.status().Warnings, func(w client.Warning) bool { return w.Code == "disagreement" })
		if i < 0 {
			t.Fatalf("%+v", ca.status().Warnings)
		}
		if got := ca.status().Warnings[i]; !strings.Contains(got.Text, "k (") || !strings.Contains(got.Text, " at ir") || !strings.Contains(got.Cure, "set again") {
			t.Errorf("%+v", got)
		}
		if v := ca.verify(); len(v.Differ) != 1 || v.Differ[0].Version != v.Differ[0].PeerVersion {
			t.Errorf("%+v", v)
		}
		w.want(ir.set("k", "new"), "")
		w.await(func() bool { return len(ca.disagreements())+len(ir.disagreements()) == 0 && len(ca.codes()) == 0 })
	})
}

// More keys than are looked at in one epoch differ: all are found in the end.
func TestManyDisagreements(t *testing.T) {
	if testing.Short() {
		t.Skip("compares many keys")
	}
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		want := w.changeMany(600, ca)
		var keys []string
		for key, value := range want {
			if value != "" {
				keys = append(keys, key)
			}
		}
		time.Sleep(3 * epochLength)
		ir.forge(forgottenWrite, keys...)
		if v := ir.verify(); len(v.Differ) != 2*len(keys) {
			t.Errorf("%d differences, want %d", len(v.Differ), 2*len(keys))
		}
		w.await(func() bool { return ir.status().Disagreements.Count > maxToldKeys })
		if d := ir.status().Disagreements; len(d.Keys) != maxToldKeys {
			t.Errorf("%d keys are named", len(d.Keys))
		}
		w.await(func() bool {
			return len(ir.verify().Differ) == 0 && ir.status().Disagreements.Count == 0 && ca.status().Disagreements.Count == 0
		})
		ir.holds(want)
	})
}

// A site that is behind disagrees with nobody, however long that takes.
func TestASiteThatIsBehindRaisesNoAlarm(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		ir.kill()
		w.changeMany(60, ca, va)
		// It may pull from nobody for a while.
		ir.restart()
		ir.catchup.pulls <- struct{}{}
		w.await(func() bool { return w.connected(3) })
		for range 60 {
			for _, s := range w.sites {
				if d := s.disagreements(); len(d) > 0 {
					t.Fatalf("%s: %v", s.name, d)
				}
			}
			time.Sleep(time.Second)
		}
		if m := ir.member("ca"); m.Catchup.Behind == 0 || m.Catchup.Since.IsZero() || m.Catchup.Taken != 0 {
			t.Errorf("%+v", m.Catchup)
		}
		if v := ca.verify(); len(v.Differ) != 60 { // who asks is told
			t.Errorf("%d keys differ", len(v.Differ))
		}
		<-ir.catchup.pulls
		w.await(func() bool { return ir.caughtUp() && len(ca.verify().Differ) == 0 })
	})
}

func TestVerifyNamesWhoCannotBeCompared(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		w.want(ca.set("k", "v"), "")
		ir.kill()
		w.await(func() bool { return ca.status().Quorum.Reached == 2 })
		v := ca.verify()
		if !slices.Equal(v.Compared, []string{"va"}) || len(v.NotCompared) != 1 || v.NotCompared[0].Site != "ir" || v.NotCompared[0].Why == "" {
			t.Errorf("%+v", v)
		}
		w.fails(ca.ask(t.Context(), "GET", verifyPath, "soon", ""), client.ErrRefused, client.HeaderTimeout)
	})
}

// While clients write all the time, nothing that is on its way is an alarm.
func TestWritesInProgressAreNoDisagreement(t *testing.T) {
	inWorld(t, three, func(w *world) {
		end := time.Now().Add(4 * epochLength)
		done := make(chan bool)
		for i, s := range w.sites {
			go func() {
				for n := 0; time.Now().Before(end); n++ {
					w.want(s.set(fmt.Sprintf("k%d", (n*3+i)%40), fmt.Sprint(n)), "")
					time.Sleep(50 * time.Millisecond)
				}
				done <- true
			}()
		}
		for time.Now().Before(end) {
			if v := w.sites[0].verify(); len(v.Differ) > 0 {
				t.Errorf("%+v", v)
			}
			for _, s := range w.sites {
				if d := s.disagreements(); len(d) > 0 {
					t.Errorf("%s: %v", s.name, d)
				}
			}
			time.Sleep(3 * time.Second)
		}
		for range w.sites {
			<-done
		}
	})
}
