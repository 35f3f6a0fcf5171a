package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"gus/agent/client"
)

// watcher is a client of a watch: what it was told, and whether it is slow.
type watcher struct {
	header http.Header
	status int
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	part   []byte
	events []client.Event
	failed *client.Error
	stuck  chan struct{} // while not nil, a write waits until it is closed
}

func (s *testSite) watch(query string) *watcher {
	ctx, cancel := context.WithCancel(s.w.t.Context())
	x := &watcher{header: http.Header{}, cancel: cancel, done: make(chan struct{})}
	api := s.api
	go func() {
		defer close(x.done)
		api.ServeHTTP(x, httptest.NewRequestWithContext(ctx, "GET", watchPath+"?"+query, nil))
	}()
	return x
}

func (x *watcher) Header() http.Header    { return x.header }
func (x *watcher) WriteHeader(status int) { x.status = status }
func (x *watcher) Flush()                 {}

func (x *watcher) Write(b []byte) (int, error) {
	x.mu.Lock()
	stuck := x.stuck
	x.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.part = append(x.part, b...)
	for {
		i := bytes.IndexByte(x.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		var line struct {
			client.Event
			client.Error
		}
		if err := json.Unmarshal(x.part[:i], &line); err != nil {
			return 0, err
		}
		if line.Code != "" {
			x.failed = &line.Error
		} else {
			x.events = append(x.events, line.Event)
		}
		x.part = x.part[i+1:]
	}
}

// got returns what it was told so far.
func (x *watcher) got() []client.Event {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.events)
}

func (x *watcher) stop() []client.Event {
	x.cancel()
	<-x.done
	return x.got()
}

func (x *watcher) hold() (release func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	stuck := make(chan struct{})
	x.stuck = stuck
	return func() {
		x.mu.Lock()
		x.stuck = nil
		x.mu.Unlock()
		close(stuck)
	}
}

func (x *watcher) synced() bool {
	return slices.ContainsFunc(x.got(), func(e client.Event) bool { return e.Type == client.EventSynced })
}

// final is the last that was told of each key; "" where it was deleted.
func final(events []client.Event) map[string]string {
	last := map[string]string{}
	for _, e := range events {
		switch e.Type {
		case client.EventSet:
			last[e.Key] = string(e.Value)
		case client.EventDelete:
			last[e.Key] = ""
		}
	}
	return last
}

// grows checks that versions of a key only grow.
func grows(t *testing.T, events []client.Event) {
	t.Helper()
	last := map[string]client.Version{}
	for _, e := range events {
		if e.Key == "" {
			continue
		}
		if before := last[e.Key]; before != "" && e.Version.Compare(before) < 0 {
			t.Errorf("%s has version %s after %s", e.Key, e.Version, before)
		}
		last[e.Key] = e.Version
	}
}

func cursorOf(events []client.Event) string {
	for _, e := range slices.Backward(events) {
		if e.Cursor != "" {
			return e.Cursor
		}
	}
	return ""
}

// A watch tells of each change, wherever it was made, at voters and observers.
func TestWatch(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		ca, va, ob := w.sites[0], w.sites[1], w.sites[3]
		w.want(ca.set("app/old", "1"), "")
		time.Sleep(5 * time.Second)
		var all []*watcher
		for _, s := range []*testSite{ca, va, ob} {
			x := s.watch("prefix=app/&values=true")
			all = append(all, x)
			w.await(x.synced)
		}
		w.want(ca.set("app/port", "8080"), "")
		w.want(va.set("other", "x"), "")
		w.want(ob.set("app/host", "www"), "")
		if r := va.ask(w.t.Context(), "DELETE", kvPath+"app/port", "5s", ""); r.err() != nil {
			t.Fatal(r.body)
		}
		want := map[string]string{"app/port": "", "app/host": "www"}
		for _, x := range all {
			w.await(func() bool {
				got := final(x.got())
				delete(got, "app/old") // which may come once more
				return maps.Equal(got, want)
			})
			grows(t, x.stop())
		}
		events := all[0].got()
		e := events[slices.IndexFunc(events, func(e client.Event) bool { return e.Key == "app/port" })]
		if e.Type != client.EventSet || e.Key != "app/port" || e.Size != 4 || e.Writer != "ca" || e.Version == "" || e.Cursor == "" || e.Time.Year() != 2000 {
			t.Errorf("%+v", e)
		}
	})
}

// A watch can begin with what is there, and resumes after its cursor, across a restart of the
// agent as well.
func TestWatchResumes(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		va := w.sites[1]
		for i, s := range []*testSite{w.sites[0], w.sites[3]} {
			want := w.changeMany(200+i*20, va)
			time.Sleep(5 * time.Second)
			x := s.watch("state=true&values=true")
			w.await(x.synced)
			live := maps.Clone(want)
			maps.DeleteFunc(live, func(_, v string) bool { return v == "" })
			got := final(x.stop())
			maps.DeleteFunc(got, func(_, v string) bool { return v == "" })
			if !maps.Equal(got, live) {
				t.Errorf("%s: the state has %d keys, want %d", s.name, len(got), len(live))
				for k, v := range live {
					if got[k] != v {
						t.Errorf("%s is %q, want %q", k, got[k], v)
					}
				}
			}
			cursor := cursorOf(x.got())
			more := w.changeMany(210+i*20, va)
			time.Sleep(5 * time.Second)
			x = s.watch("values=true&after=" + cursor)
			w.await(x.synced)
			if got := final(x.stop()); !maps.Equal(got, more) {
				t.Errorf("%s: %d keys after the cursor, want %d", s.name, len(got), len(more))
			}
			grows(t, x.got())
			cursor = cursorOf(x.got())
			s.kill()
			last := w.changeMany(220+i*20, va)
			s.restart()
			x = s.watch("values=true&after=" + cursor)
			w.await(func() bool { return maps.Equal(final(x.got()), last) })
			time.Sleep(time.Minute) // until the cursor is behind all that
			grows(t, x.stop())
			x = s.watch("values=true&after=" + cursorOf(x.got()))
			w.await(x.synced)
			if got := x.stop(); len(final(got)) > 0 {
				t.Errorf("%s: %d keys where nothing has changed", s.name, len(final(got)))
			}
		}
	})
}

// A watch goes on where no quorum is in reach, and says how old what it shows is.
func TestWatchSaysHowOldItIs(t *testing.T) {
	inWorld(t, withObserver, func(w *world) {
		for _, s := range []*testSite{w.sites[0], w.sites[3]} {
			w.cutOff(s, true)
			time.Sleep(time.Minute)
			x := s.watch("state=true")
			w.await(x.synced)
			time.Sleep(time.Minute)
			w.cutOff(s, false)
			again := func(e client.Event) bool { return e.Type == client.EventAlive && e.Age == 0 }
			w.await(func() bool { return slices.ContainsFunc(x.got(), again) })
			events := x.stop()
			if first, last := events[0], events[len(events)-1]; first.Age == 0 || last.Age != 0 || last.Type != client.EventAlive {
				t.Errorf("%s: %+v, and at the end %+v", s.name, first, last)
			}
		}
	})
}

// A cursor of another site is refused with what to do; so is what is none.
func TestWatchRefuses(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va := w.sites[0], w.sites[1]
		x := ca.watch("")
		w.await(x.synced)
		cursor := cursorOf(x.stop())
		for query, want := range map[string]error{
			"after=" + cursor:                 client.ErrRelist,
			"after=17":                        client.ErrRefused,
			"after=xyz-17":                    client.ErrRefused,
			"state=true&after=" + cursor:      client.ErrRelist,
			"state=yes":                       client.ErrRefused,
			"prefx=a":                         client.ErrRefused,
			"prefix=%00":                      client.ErrRefused,
			"after=" + cursor + "00000000000": client.ErrRelist,
		} {
			x := va.watch(query)
			<-x.done
			r := reply{status: x.status, body: string(x.part)}
			if x.failed != nil {
				b, _ := json.Marshal(x.failed)
				r.body = string(b)
			}
			w.fails(r, want)
		}
		r := va.watch("after=" + cursor)
		<-r.done
		if !errors.Is(r.failed, client.ErrRelist) {
			t.Errorf("%v", r.failed)
		}
	})
}

// Who reads slowly gets the last of each key in the end, and costs no memory meanwhile.
func TestSlowWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("sets more than a feed holds")
	}
	inWorld(t, three, func(w *world) {
		ca, va := w.sites[0], w.sites[1]
		x := va.watch("values=true")
		w.await(x.synced)
		release := x.hold()
		var want map[string]string
		for range 40 {
			want = w.changeMany(200, ca) // more than a feed holds
		}
		f := va.loop.feed
		f.mu.Lock()
		if n := len(f.events); n > maxFeed {
			t.Errorf("the feed holds %d events", n)
		}
		f.mu.Unlock()
		release()
		w.await(func() bool { return maps.Equal(final(x.got()), want) })
		grows(t, x.stop())
	})
}

// Where nothing happens a line comes all the same, with a cursor that goes on.
func TestWatchIsAlive(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca := w.sites[0]
		x := ca.watch("prefix=none/")
		w.await(x.synced)
		for i := range 100 {
			w.want(ca.set("k", fmt.Sprint(i)), "")
		}
		time.Sleep(time.Minute)
		var alive []client.Event
		for _, e := range x.stop() {
			if e.Type == client.EventAlive {
				alive = append(alive, e)
			}
		}
		if len(alive) < 3 || alive[0].Cursor == "" || alive[len(alive)-1].Cursor == x.got()[0].Cursor {
			t.Errorf("%+v", alive)
		}
	})
}

// A voter that has just started says that it may lack something until it has pulled what the
// others hold.
func TestAVoterIsOldUntilItHasPulled(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		w.want(ca.set("k", "1"), "")
		ir.kill()
		w.want(ca.set("k", "2"), "")
		w.cutOff(ca, true)
		w.cutOff(va, true)
		ir.restart()
		time.Sleep(time.Minute)
		if age := ir.local("k").header[client.HeaderAge]; len(age) != 1 {
			t.Errorf("age %v", age)
		}
		x := ir.watch("state=true&values=true")
		w.await(x.synced)
		if e := x.got()[len(x.got())-1]; e.Age == 0 {
			t.Errorf("%+v", e)
		}
		w.cutOff(ca, false)
		w.cutOff(va, false)
		whole := func(e client.Event) bool { return e.Type == client.EventAlive && e.Age == 0 }
		w.await(func() bool { return slices.ContainsFunc(x.got(), whole) })
		events := x.stop()
		if i := slices.IndexFunc(events, whole); final(events[:i])["k"] != "2" {
			t.Errorf("it says that it is whole before it is: %+v", events)
		}
	})
}
