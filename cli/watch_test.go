package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gus/agent/client"
)

// lockedBuffer is a stream that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fakeAgent answers at a socket in place of an agent. Each request for a watch gets the
// next of answers, and the one after the last calls over and waits.
type fakeAgent struct {
	mu      sync.Mutex
	queries []string
	answers [][]string // lines; "410 TEXT" refuses
	over    context.CancelFunc
}

func startFake(t *testing.T, h http.Handler) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "gus.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return socket
}

func (f *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	n := len(f.queries)
	f.queries = append(f.queries, r.URL.RawQuery)
	f.mu.Unlock()
	if n >= len(f.answers) {
		f.over()
		<-r.Context().Done()
		return
	}
	for _, line := range f.answers[n] {
		if text, ok := strings.CutPrefix(line, "410 "); ok {
			w.WriteHeader(http.StatusGone)
			fmt.Fprintf(w, `{"code":"relist","message":%q}`, text)
			return
		}
		io.WriteString(w, line+"\n")
		w.(http.Flusher).Flush()
	}
}

// watched runs `gus watch` with args against an agent that gives those answers, and
// ends it when there are no more.
func watched(t *testing.T, answers [][]string, args ...string) (out, errs string, queries []string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &fakeAgent{answers: answers, over: cancel}
	var o, e lockedBuffer
	a := &app{in: strings.NewReader(""), out: &o, err: &e}
	err = a.run(ctx, slices.Concat([]string{"watch", "--socket", startFake(t, f)}, args))
	f.mu.Lock()
	defer f.mu.Unlock()
	return o.String(), e.String(), slices.Clone(f.queries), err
}

// The agent is stopped in the middle and comes back: the watch goes on after its last
// cursor and says each once.
func TestWatchGoesOnWhereItWas(t *testing.T) {
	out, errs, queries, err := watched(t, [][]string{
		{`{"event":"synced","cursor":"c0"}`, `{"event":"set","key":"a b","version":"7.1","size":3,"writer":"ca","cursor":"c1","more":true}`},
		{},
		{`{"event":"keepalive","cursor":"c2"}`, `{"event":"delete","key":"a","version":"8.2","writer":"va","cursor":"c3"}`},
		{`{"code":"stopping","message":"the agent is stopping"}`},
	}, "a", "--after", "mine")
	if err != nil {
		t.Error(err)
	}
	if want := "set a b 7.1 3 ca\ndelete a 8.2 va\n"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	if want := []string{"after=mine&prefix=a", "after=c1&prefix=a", "after=c1&prefix=a", "after=c3&prefix=a", "after=c3&prefix=a"}; !slices.Equal(queries, want) {
		t.Errorf("asked for %q, want %q", queries, want)
	}
	if n := strings.Count(errs, "waiting until it is back"); n != 2 || strings.Count(errs, "the agent is back") != 1 {
		t.Errorf("said on stderr:\n%s", errs)
	}
}

// A state that broke off in the middle is told again: there is nothing to go on after.
func TestWatchTellsTheStateAgain(t *testing.T) {
	set := `{"event":"set","key":"k","version":"7.1","size":1,"value":"dg==","writer":"ca","cursor":"too early"}`
	out, _, queries, err := watched(t, [][]string{
		{set},
		{set, `{"event":"synced","cursor":"c1"}`},
		{"410 the cursor is of another database"},
		{`{"event":"synced","cursor":"c9"}`},
	}, "--state", "--values")
	if err != nil || out != "set k 7.1 1 ca \"v\"\nset k 7.1 1 ca \"v\"\n" {
		t.Errorf("%v, printed %q", err, out)
	}
	want := []string{"prefix=&state=true&values=true", "prefix=&state=true&values=true", "after=c1&prefix=&values=true", "prefix=&state=true&values=true", "after=c9&prefix=&values=true"}
	if !slices.Equal(queries, want) {
		t.Errorf("asked for %q, want %q", queries, want)
	}
}

func TestWatchAfterACursorOfNoUse(t *testing.T) {
	_, _, queries, err := watched(t, [][]string{{"410 re-list: the cursor is of another database: watch with the state first"}}, "--after", "old")
	said := fmt.Sprint(err)
	if exitCode(err) != exitFailed || !strings.Contains(said, "watch without --after") || strings.Contains(said, "watch with the state") || len(queries) != 1 {
		t.Errorf("%v after %q", err, queries)
	}
}

func TestWatchAsJSON(t *testing.T) {
	lines := []string{
		`{"event":"set","key":"k","version":"7.1","size":1,"value":"dg==","time":"2026-11-30T17:23:22.117Z","writer":"ca","cursor":"c1"}`,
		`{"event":"keepalive","cursor":"c2"}`,
	}
	out, _, _, err := watched(t, [][]string{lines}, "--json", "--values")
	if want := strings.Join(lines, "\n") + "\n"; err != nil || out != want {
		t.Errorf("%v, printed %s want %s", err, out, want)
	}
}

func TestWatchNeedsAnAgentToBeginWith(t *testing.T) {
	a := &app{out: io.Discard, err: io.Discard}
	err := a.run(t.Context(), []string{"watch", "--socket", filepath.Join(t.TempDir(), "nobody.sock")})
	if exitCode(err) != exitNotRunning {
		t.Error(err)
	}
}

// A command is run for each key, with its value, and a key that means something
// to a shell means nothing. All that was heard is run before the watch ends with an error.
func TestWatchRunsACommand(t *testing.T) {
	out, errs, queries, err := watched(t, [][]string{
		{
			`{"event":"set","key":"$(reboot) 'x","version":"7.1","value":"b25l","cursor":"c1"}`,
			`{"event":"delete","key":"k","version":"8.1","cursor":"c2"}`,
		},
		{"410 re-list"},
	}, "p", "--after", "c0", "--", "sh", "-c", `echo "$1 $GUS_KEY $GUS_EVENT $GUS_VERSION $GUS_CURSOR [$(cat)]"; exit 3`, "-", "--json")
	if !errors.Is(err, client.ErrRelist) {
		t.Error(err)
	}
	if want := "--json $(reboot) 'x set 7.1 c1 [one]\n--json k delete 8.1 c2 []\n"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	for _, want := range []string{"gus: watch: sh for $(reboot) 'x: exit status 3\n", "gus: watch: sh for k: exit status 3\n"} {
		if !strings.Contains(errs, want) {
			t.Errorf("said on stderr:\n%s", errs)
		}
	}
	if queries[0] != "after=c0&prefix=p&values=true" {
		t.Errorf("asked for %q", queries)
	}
}

// A watch that is stopped stops what it runs, and all that this has started, and waits for it.
func TestWatchStopsItsCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &fakeAgent{answers: [][]string{{`{"event":"set","key":"k","version":"7.1","cursor":"c1"}`}}, over: func() {}}
	var out lockedBuffer
	a := &app{out: writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "running") {
			cancel()
		}
		return out.Write(p)
	}), err: io.Discard}
	err := a.run(ctx, []string{"watch", "--socket", startFake(t, f), "--", "sh", "-c", `
		trap 'echo told; exit 1' TERM
		(trap 'echo its child, too; exit 1' TERM; echo running; while :; do sleep 0.1; done) &
		wait`})
	if err != nil {
		t.Error(err)
	}
	if s := out.String(); !strings.Contains(s, "told\n") || !strings.Contains(s, "its child, too\n") {
		t.Errorf("printed %q", s)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWatchUsage(t *testing.T) {
	for _, args := range []string{"a b", "a --", "a --json -- true", "-- /there/is/no/such/command", "--state --after c"} {
		a := &app{out: io.Discard, err: io.Discard}
		if err := a.run(t.Context(), append([]string{"watch", "--socket", "nowhere"}, strings.Fields(args)...)); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// While something runs, what comes is folded, and comes then, in order.
func TestRunnerFolds(t *testing.T) {
	set := func(key string, version int) client.Event {
		return client.Event{Type: client.EventSet, Key: key, Version: client.Version(fmt.Sprint(version))}
	}
	events, ended := make(chan client.Event), make(chan error)
	began, goOn := make(chan string), make(chan error)
	var failures []string
	r := runner{
		run: func(e client.Event) error {
			began <- e.Key + string(e.Version)
			return <-goOn
		},
		failed: func(e client.Event, err error) { failures = append(failures, e.Key+string(e.Version)+" "+err.Error()) },
	}
	done := make(chan error)
	go func() { done <- r.loop(t.Context(), events, ended) }()
	want := func(s string) {
		t.Helper()
		if got := <-began; got != s {
			t.Errorf("%s runs, want %s", got, s)
		}
	}
	events <- set("a", 1)
	want("a1")
	for i := range 1000 {
		events <- set("a", i)
	}
	events <- set("b", 1)
	events <- set("a", 1001)
	goOn <- errors.New("out of order")
	want("b1")
	events <- set("b", 2)
	goOn <- nil
	want("a1001")
	goOn <- nil
	want("b2")
	ended <- client.ErrRelist // what was heard before that is run
	goOn <- nil
	if err := <-done; !errors.Is(err, client.ErrRelist) {
		t.Error(err)
	}
	if !slices.Equal(failures, []string{"a1 out of order"}) {
		t.Errorf("failures: %q", failures)
	}
}

// Where only the last event of a batch has a cursor, and keepalives have one, a run
// has one for which all has been run.
func TestRunnersCursors(t *testing.T) {
	set := func(key, cursor string) client.Event {
		return client.Event{Type: client.EventSet, Key: key, Cursor: cursor, More: cursor == ""}
	}
	events, ended := make(chan client.Event), make(chan error)
	var ran []string
	r := runner{base: "c0", run: func(e client.Event) error { ran = append(ran, e.Key+" "+e.Cursor); return nil }}
	done := make(chan error)
	go func() { done <- r.loop(t.Context(), events, ended) }()
	for _, e := range []client.Event{
		set("a", ""), set("b", ""), set("a", "c1"), // a batch: b is run before a, which was folded
		set("c", ""), set("d", ""), {Type: client.EventSynced, Cursor: "c2"}, set("e", "c3"),
	} {
		events <- e
	}
	ended <- nil
	if err := <-done; err != nil {
		t.Error(err)
	}
	if want := []string{"b c0", "a c1", "c c1", "d c2", "e c3"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
}

// A runner that cannot follow stops to read, so that it holds no more than its bound.
func TestRunnerIsBounded(t *testing.T) {
	events, ended := make(chan client.Event), make(chan error)
	block, began := make(chan struct{}), make(chan string, 2*maxPending+2)
	r := runner{run: func(e client.Event) error { began <- e.Key; <-block; return nil }}
	done := make(chan error)
	go func() { done <- r.loop(t.Context(), events, ended) }()
	for i := range maxPending + 1 {
		events <- client.Event{Type: client.EventSet, Key: fmt.Sprint(i)}
		if i == 0 {
			<-began
		}
	}
	select {
	case events <- client.Event{Type: client.EventSet, Key: "one more"}:
		t.Error("it reads on")
	case ended <- nil: // the loop is there, and takes this alone
	}
	close(block)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(began); n != maxPending {
		t.Errorf("ran for %d more keys, want %d", n, maxPending)
	}
}

// An agent that was stopped and does not answer is an error at the beginning, as it is for a
// get, and waited for later on.
func TestWatchOfAnAgentThatDoesNotAnswer(t *testing.T) {
	for timeout, begun := range map[string]bool{"10ms": false, "2s": true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var asked atomic.Int64
		silent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := asked.Add(1)
			if begun && n == 1 {
				io.WriteString(w, `{"event":"synced","cursor":"c1"}`+"\n")
				return
			}
			if n == 3 {
				cancel()
			}
			<-r.Context().Done()
		})
		var errs lockedBuffer
		a := &app{out: io.Discard, err: &errs}
		socket := startFake(t, silent)
		err := a.run(ctx, []string{"watch", "--timeout", timeout, "--socket", socket})
		want := "the agent at " + socket + " does not answer: context deadline exceeded"
		if !begun && (exitCode(err) != exitNoQuorum || !strings.Contains(err.Error(), want)) {
			t.Error(err)
		}
		if begun && (err != nil || asked.Load() != 3) {
			t.Errorf("asked %d times: %v", asked.Load(), err)
		}
	}
}
