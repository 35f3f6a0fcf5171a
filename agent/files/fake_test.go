package files

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gus/agent/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a stand-in for an agent: keys in memory, behind a unix socket.
type site struct {
	t      testing.TB
	socket string
	server *http.Server

	mu       sync.Mutex
	keys     map[string]held
	hidden   map[string]bool // keys that the quorum has and the site does not know
	noQuorum bool
	age      time.Duration // of what it knows
	clock    int
	watches  map[*watcher]bool
}

type held struct {
	value   string
	version client.Version
	deleted bool
}

// watcher is a watch: what it has not told yet, folded by key.
type watcher struct {
	prefix string
	todo   map[string]bool
	wake   chan struct{}
}

// newSite starts a site with keys, given as key, value, key, value.
func newSite(t testing.TB, keys ...string) *site {
	s := &site{t: t, socket: filepath.Join(shortDir(t), "s"), keys: map[string]held{}, hidden: map[string]bool{}, watches: map[*watcher]bool{}}
	for i := 0; i < len(keys); i += 2 {
		s.set(keys[i], keys[i+1])
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// shortDir is a directory whose paths are short enough for a socket.
func shortDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "files")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (s *site) start() {
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{Handler: http.HandlerFunc(s.serve), BaseContext: func(net.Listener) context.Context { return ctx }}
	srv.RegisterOnShutdown(cancel)
	s.server = srv
	go srv.Serve(l)
}

// stop ends the agent; its keys stay.
func (s *site) stop() {
	if s.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		s.server.Close()
	}
	s.server = nil
}

func (s *site) client() *client.Client {
	c := client.New(s.socket)
	s.t.Cleanup(c.Close)
	return c
}

func (s *site) set(key, value string) { s.change(key, held{value: value}) }
func (s *site) delete(key string)     { s.change(key, held{deleted: true}) }

func (s *site) change(key string, h held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeLocked(key, h)
}

// together sets keys, given as key, value, key, value, in one batch.
func (s *site) together(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(keys); i += 2 {
		s.changeLocked(keys[i], held{value: keys[i+1]})
	}
}

func (s *site) changeLocked(key string, h held) {
	s.clock++
	h.version = client.Version(fmt.Sprintf("%d.1", s.clock))
	s.keys[key] = h
	for w := range s.watches {
		if strings.HasPrefix(key, w.prefix) {
			w.todo[key] = true
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// putBack has the site know keys, given as key, value, key, value, at the versions that its first
// changes had, and no others.
func (s *site) putBack(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = 0
	clear(s.keys)
	for i := 0; i < len(keys); i += 2 {
		s.changeLocked(keys[i], held{value: keys[i+1]})
	}
}

// hide has the site not know a key that the others have.
func (s *site) hide(key string, hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[key] = hidden
}

func (s *site) quorum(ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noQuorum = !ok
}

// old has the site know that it does not hear of all changes, and tell its watches when it does.
func (s *site) old(age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.age = age
	for w := range s.watches {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	local := q.Get("local") == "true"
	key, isKey := strings.CutPrefix(r.URL.Path, "/v1/kv/")
	switch {
	case r.URL.Path == "/v1/watch":
		s.watch(w, r)
	case r.URL.Path == "/v1/status":
		json.NewEncoder(w).Encode(client.Status{Site: "site-a"})
	case r.URL.Path == "/v1/kv":
		s.list(w, q.Get("prefix"), q.Get("after"), local)
	case isKey && r.Method == http.MethodGet:
		s.get(w, key, local)
	case isKey:
		value, _ := io.ReadAll(r.Body)
		s.change(key, held{value: string(value), deleted: r.Method == http.MethodDelete})
	}
}

func (s *site) fail(w http.ResponseWriter, err error) {
	status, code := client.Code(err)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(client.Error{Code: code, Message: err.Error()})
}

func (s *site) get(w http.ResponseWriter, key string, local bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.keys[key]
	switch {
	case s.noQuorum && !local:
		s.fail(w, client.ErrNoQuorum)
	case !ok || h.deleted || s.hidden[key] && local:
		w.Header().Set(client.HeaderVersion, string(h.version))
		s.fail(w, client.ErrNotFound)
	default:
		w.Header().Set(client.HeaderVersion, string(h.version))
		io.WriteString(w, h.value)
	}
}

func (s *site) list(w http.ResponseWriter, prefix, after string, local bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noQuorum && !local {
		s.fail(w, client.ErrNoQuorum)
		return
	}
	p := client.Page{Entries: []client.Entry{}}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		h := s.keys[key]
		if !strings.HasPrefix(key, prefix) || key <= after || h.deleted || s.hidden[key] && local {
			continue
		}
		if len(p.Entries) == 1000 {
			p.Next = p.Entries[999].Key
			break
		}
		p.Entries = append(p.Entries, client.Entry{Key: key, Version: h.version, Size: len(h.value)})
	}
	json.NewEncoder(w).Encode(p)
}

func (s *site) watch(w http.ResponseWriter, r *http.Request) {
	x := &watcher{prefix: r.URL.Query().Get("prefix"), todo: map[string]bool{}, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.watches[x] = true
	if r.URL.Query().Get("state") == "true" {
		for key, h := range s.keys {
			if strings.HasPrefix(key, x.prefix) && !h.deleted && !s.hidden[key] {
				x.todo[key] = true
			}
		}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, x)
		s.mu.Unlock()
	}()
	enc := json.NewEncoder(w)
	var told client.Duration
	for synced := false; ; synced = true {
		s.mu.Lock()
		var events []client.Event
		for _, key := range slices.Sorted(maps.Keys(x.todo)) {
			h := s.keys[key]
			e := client.Event{Type: client.EventSet, Key: key, Version: h.version, Size: len(h.value), More: true}
			if h.deleted {
				e = client.Event{Type: client.EventDelete, Key: key, Version: h.version, More: true}
			}
			events = append(events, e)
		}
		clear(x.todo)
		age := client.Duration(s.age)
		s.mu.Unlock()
		if !synced {
			events = append(events, client.Event{Type: client.EventSynced, Age: age})
		} else if age != told {
			events = append(events, client.Event{Type: client.EventAlive, Age: age})
		}
		told = age
		for i, e := range events {
			e.More = e.More && i+1 < len(events)
			enc.Encode(e)
		}
		w.(http.Flusher).Flush()
		select {
		case <-x.wake:
		case <-r.Context().Done():
			return
		}
	}
}

// running is a Pull that runs until the test ends, or stop is called.
type running struct {
	t    *testing.T
	stop func()
	mu   sync.Mutex
	last State
	err  error
}

// quick makes p as impatient as a test is.
func quick(p Pull) Pull {
	p.pace = pace{
		settle: 2 * time.Millisecond, settleMost: 20 * time.Millisecond,
		again: 5 * time.Millisecond, againMost: 20 * time.Millisecond,
		exec: 5 * time.Millisecond, execMost: 20 * time.Millisecond,
	}
	return p
}

func start(t *testing.T, s *site, p Pull) *running {
	r := &running{t: t}
	p = quick(p)
	if p.Log == nil {
		p.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	p.Report = func(st State) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last = st
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.err = p.Run(ctx, s.client()) })
	r.stop = func() {
		cancel()
		wg.Wait()
		if r.err != nil {
			t.Errorf("run: %v", r.err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

func (r *running) state() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// await waits until the state is as f wants it.
func (r *running) await(what string, f func(State) bool) State {
	r.t.Helper()
	eventually(r.t, func() string {
		if st := r.state(); !f(st) {
			return fmt.Sprintf("%s: the state is %+v", what, st)
		}
		return ""
	})
	return r.state()
}

// eventually waits until f returns no complaint, for a minute.
func eventually(t *testing.T, f func() string) {
	t.Helper()
	var said string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if said = f(); said == "" {
			return
		}
	}
	t.Fatal("for a minute: ", said)
}

// holds waits until the files below dir are these, as name, content, name, content.
// Hidden files of this package do not count.
func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	wanted := map[string]string{}
	for i := 0; i < len(want); i += 2 {
		wanted[want[i]] = want[i+1]
	}
	eventually(t, func() string {
		if got := filesOf(t, dir); !maps.Equal(got, wanted) {
			return fmt.Sprintf("the files are %.500q, want %.500q", got, wanted)
		}
		return ""
	})
}

// filesOf returns what the files below dir hold.
func filesOf(t *testing.T, dir string) map[string]string {
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		case strings.HasPrefix(d.Name(), ownPrefix) && d.IsDir():
			return filepath.SkipDir
		case d.Type().IsRegular() && !strings.HasPrefix(d.Name(), ownPrefix):
			b, err := os.ReadFile(name)
			if os.IsNotExist(err) {
				return nil
			}
			rel, _ := filepath.Rel(dir, name)
			got[filepath.ToSlash(rel)] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// lines returns what a command has noted, a line a run.
func lines(t *testing.T, path string) []string {
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}
