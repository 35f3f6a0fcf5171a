package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gus/agent/client"
)

// board stands for the cluster's keys: what sync states are written to.
type board struct {
	mu     sync.Mutex
	keys   map[string]string
	writes int
	err    error
}

func (b *board) set(_ context.Context, key string, value []byte, deleted bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.writes++
	if delete(b.keys, key); !deleted {
		b.keys[key] = string(value)
	}
	return nil
}

func (b *board) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// states returns what the keys tell, by key, and how many writes there were.
func (b *board) states(t *testing.T) (map[string]client.SyncState, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]client.SyncState{}
	for key, value := range b.keys {
		var s client.SyncState
		if err := json.Unmarshal([]byte(value), &s); err != nil {
			t.Error(err)
		}
		all[key] = s
	}
	return all, b.writes
}

// load returns what the keys tell of site-a.
func (b *board) load(context.Context) (all []client.SyncState, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, value := range b.keys {
		var s client.SyncState
		err = errors.Join(err, json.Unmarshal([]byte(value), &s))
		all = append(all, s)
	}
	return all, err
}

// withSyncs runs f with the sync states of site-a, in virtual time.
func withSyncs(t *testing.T, b *board, f func(t *testing.T, s *syncStatus)) {
	synctest.Test(t, func(t *testing.T) {
		s := newSyncStatus("site-a", slog.New(slog.DiscardHandler))
		s.set, s.load = b.set, b.load
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.run(ctx); err != nil {
				t.Error(err)
			}
		})
		f(t, s)
		cancel()
		wg.Wait()
	})
}

func state(dir, version string) client.SyncState {
	return client.SyncState{Prefix: "app/", Dir: dir, Version: version, Keys: 1, Checked: time.Now()}
}

// Of a thousand changes in a second the last one is told, in few writes; of times alone, none.
func TestSyncStatesAreToldSeldom(t *testing.T) {
	b := &board{keys: map[string]string{}}
	withSyncs(t, b, func(t *testing.T, s *syncStatus) {
		key := client.SyncKeys + "site-a/" + state("/etc/app", "").Name()
		for n := range 1000 {
			if err := s.note(state("/etc/app", fmt.Sprint(n)), false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		got, writes := b.states(t)
		if got[key].Version != "999" || writes > 3 {
			t.Errorf("%d writes, and then %+v", writes, got)
		}
		for range 100 {
			if err := s.note(state("/etc/app", "999"), false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if _, n := b.states(t); n != writes {
			t.Errorf("%d writes of nothing new", n-writes)
		}
	})
}

// Without a quorum nothing is told, and the last state once there is one.
func TestSyncStatesWithoutAQuorum(t *testing.T) {
	b := &board{keys: map[string]string{}, err: client.ErrNoQuorum}
	withSyncs(t, b, func(t *testing.T, s *syncStatus) {
		for n := range 10 {
			if err := s.note(state("/etc/app", fmt.Sprint(n)), true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		b.fail(nil)
		time.Sleep(2 * time.Minute)
		for _, got := range []client.SyncState{s.states()[0]} {
			if got.Version != "9" {
				t.Errorf("%+v", got)
			}
		}
		if got, writes := b.states(t); len(got) != 1 || writes != 1 {
			t.Errorf("%d writes, and then %+v", writes, got)
		}
	})
}

// A job that falls silent is taken for stopped, and forgotten a day later; one of the agent stays as long as it
// is to run; one that looks once stays as it was.
func TestSyncJobsThatAreGone(t *testing.T) {
	b := &board{keys: map[string]string{}}
	before := state("/before", "7")
	value, _ := json.Marshal(before)
	b.keys[client.SyncKeys+"site-a/"+before.Name()] = string(value)
	withSyncs(t, b, func(t *testing.T, s *syncStatus) {
		seldom := state("/once", "1")
		seldom.Once = true
		for _, err := range []error{s.note(state("/own", "1"), true), s.note(state("/beside", "1"), false), s.note(seldom, false)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		stopped := func() string {
			got, _ := b.states(t)
			var all []string
			for _, dir := range []string{"/before", "/beside", "/once", "/own"} {
				switch s, ok := got[client.SyncKeys+"site-a/"+state(dir, "").Name()]; {
				case !ok:
					all = append(all, "-")
				case s.Stopped:
					all = append(all, "stopped")
				default:
					all = append(all, "runs")
				}
			}
			return strings.Join(all, " ")
		}
		time.Sleep(time.Minute)
		if got := stopped(); got != "runs runs runs runs" {
			t.Error(got)
		}
		time.Sleep(2 * time.Minute)
		if got := stopped(); got != "stopped stopped runs runs" {
			t.Error(got)
		}
		if err := s.note(state("/beside", "1"), false); err != nil { // it was only slow
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := stopped(); got != "stopped runs runs runs" {
			t.Error(got)
		}
		time.Sleep(25 * time.Hour)
		if got := stopped(); got != "- - - runs" {
			t.Error(got)
		}
		s.forget(state("/own", "").Name())
		time.Sleep(time.Minute)
		if got := stopped(); got != "- - - -" || len(s.states()) != 0 {
			t.Error(got)
		}
	})
}

// What a job says of itself is bounded and checked.
func TestPutSync(t *testing.T) {
	s := newSyncStatus("site-a", slog.New(slog.DiscardHandler))
	api := &api{sync: s.put}
	put := func(name, body string) (int, string) {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(http.MethodPut, syncPath+name, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	ok := state("/etc/app", "0123456789abcdef")
	body, _ := json.Marshal(ok)
	if code, said := put(ok.Name(), string(body)); code != http.StatusOK || len(s.states()) != 1 {
		t.Errorf("%d %s", code, said)
	}
	for _, c := range []struct{ name, body, says string }{
		{"other", string(body), "is named " + ok.Name()},
		{ok.Name(), "no json", "the state of a job"},
		{ok.Name(), `{"dir":"/x","error":"` + strings.Repeat("x", 20<<10) + `"}`, "too large"},
		{ok.Name(), `{"dir":"/x","error":"\u001b[31m"}`, "control character"},
		{ok.Name(), `{"dir":"/x","version":"01234567890123456"}`, "too long"},
		{ok.Name(), `{"prefix":"x/"}`, "missing"},
		{ok.Name(), `{"dir":"/x","keys":-1}`, "below 0"},
	} {
		if code, said := put(c.name, c.body); code != http.StatusBadRequest || !strings.Contains(said, c.says) {
			t.Errorf("%.60s: %d %s, want %q", c.body, code, said, c.says)
		}
	}
	for n := range 2 * maxSyncJobs {
		next := state(fmt.Sprintf("/dir/%d", n), "")
		body, _ := json.Marshal(next)
		if code, said := put(next.Name(), string(body)); n >= maxSyncJobs && (code != http.StatusTooManyRequests || !strings.Contains(said, "100 jobs")) {
			t.Fatalf("%d %s", code, said)
		}
	}
	if n := len(s.states()); n != maxSyncJobs {
		t.Errorf("%d jobs", n)
	}
}

// A job that is started anew, as by a reload, or with the agent, has changed no file yet: when one was changed last stays known.
func TestWhenFilesWereChangedStaysKnown(t *testing.T) {
	b := &board{keys: map[string]string{}}
	changed := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	key := client.SyncKeys + "site-a/" + state("/etc/app", "").Name()
	tell := func(s *syncStatus, version string, at time.Time) {
		t.Helper()
		st := state("/etc/app", version)
		st.Changed = at
		if err := s.note(st, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got, _ := b.states(t); got[key].Version != version || !got[key].Changed.Equal(changed) {
			t.Errorf("%+v", got)
		}
	}
	withSyncs(t, b, func(t *testing.T, s *syncStatus) {
		tell(s, "1", changed)
		tell(s, "", time.Time{})
		tell(s, "1", time.Time{})
		changed = changed.Add(time.Hour)
		tell(s, "2", changed)
	})
	withSyncs(t, b, func(t *testing.T, s *syncStatus) { tell(s, "3", time.Time{}) })
}
