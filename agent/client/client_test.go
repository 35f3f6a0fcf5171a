package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent is a stand-in for an agent: f answers the nth request of all, on the
// connection that it came by; the connection is closed where f says so.
type agent struct {
	t        *testing.T
	socket   string
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	requests []string
}

func newAgent(t *testing.T, socket string, f func(n int, c net.Conn) (keep bool)) *agent {
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, socket: socket, listener: l}
	a.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			a.wg.Go(func() { a.serve(c, f) })
		}
	})
	t.Cleanup(a.stop)
	return a
}

func (a *agent) stop() {
	a.listener.Close()
	a.wg.Wait()
}

func (a *agent) serve(c net.Conn, f func(n int, c net.Conn) bool) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		a.mu.Lock()
		a.requests = append(a.requests, r.Method+" "+r.URL.RequestURI())
		n := len(a.requests)
		a.mu.Unlock()
		r.Body.Close()
		if !f(n, c) {
			return
		}
	}
}

func (a *agent) seen() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.requests, ", ")
}

func ok(c net.Conn, body string) bool {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nGus-Version: 7.1\r\nGus-Round-Trips: 1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return true
}

func testSocket(t *testing.T) string { return filepath.Join(t.TempDir(), "s") }

// Each error that an agent can report is the same error on this side.
func TestErrorsCrossTheSocket(t *testing.T) {
	var reported error
	a := newAgent(t, testSocket(t), func(_ int, c net.Conn) bool {
		status, code := Code(reported)
		body, _ := json.Marshal(Error{code, reported.Error()})
		fmt.Fprintf(c, "HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
		return true
	})
	c := New(a.socket)
	defer c.Close()
	for _, want := range []error{
		ErrNotFound, ErrNoQuorum, ErrNotSent, ErrNotSaved, ErrUnknownOutcome, ErrRefused, ErrTooLarge, ErrStopping,
	} {
		reported = fmt.Errorf("%w: with details", want)
		_, err := c.Set(t.Context(), "k", nil)
		if !errors.Is(err, want) || err.Error() != reported.Error() {
			t.Errorf("%v comes across as %v", reported, err)
		}
		for _, other := range codes {
			if other.err != want && errors.Is(err, other.err) {
				t.Errorf("%v is %v as well", err, other.err)
			}
		}
	}
	reported = errors.New("something else")
	var e *Error
	if _, err := c.Get(t.Context(), "k"); !errors.As(err, &e) || e.Code != codeFailed || e.Message != "something else" {
		t.Errorf("%v comes across as %v", reported, err)
	}
}

func TestWithoutAnAgent(t *testing.T) {
	socket := testSocket(t)
	c := New(socket)
	if _, err := c.Set(t.Context(), "k", nil); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), socket) {
		t.Errorf("no socket: %v", err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if _, err := c.Get(t.Context(), "k"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a socket that nobody listens at: %v", err)
	}
}

func TestASetThatGotNoAnswerIsNeverSentAgain(t *testing.T) {
	a := newAgent(t, testSocket(t), func(n int, c net.Conn) bool {
		return n == 1 && ok(c, "")
	})
	c := New(a.socket)
	defer c.Close()
	if _, err := c.Set(t.Context(), "first", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), "second", nil); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a set whose connection broke: %v", err)
	}
	if _, err := c.Delete(t.Context(), "third"); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a delete whose connection broke: %v", err)
	}
	if want := "PUT /v1/kv/first, PUT /v1/kv/second, DELETE /v1/kv/third"; a.seen() != want {
		t.Errorf("the agent saw %s, want %s", a.seen(), want)
	}
}

func TestAGetIsAskedAgainOnANewConnection(t *testing.T) {
	a := newAgent(t, testSocket(t), func(n int, c net.Conn) bool {
		return n != 2 && ok(c, "value")
	})
	c := New(a.socket)
	defer c.Close()
	for range 2 { // the second time its connection breaks
		r, err := c.Get(t.Context(), "k")
		if err != nil || string(r.Value) != "value" || r.Version != "7.1" || r.RoundTrips != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if want := "GET /v1/kv/k, GET /v1/kv/k, GET /v1/kv/k"; a.seen() != want {
		t.Errorf("the agent saw %s, want %s", a.seen(), want)
	}
}

// A connection that the agent closed while it was idle is not used: a set sent
// into it would have an unknown outcome for no good reason.
func TestAnAgentThatWasRestarted(t *testing.T) {
	socket := testSocket(t)
	a := newAgent(t, socket, func(_ int, c net.Conn) bool { ok(c, ""); return false })
	c := New(socket)
	defer c.Close()
	if _, err := c.Set(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	a.stop()
	b := newAgent(t, socket, func(_ int, c net.Conn) bool { return ok(c, "") })
	if _, err := c.Set(t.Context(), "k", nil); err != nil {
		t.Errorf("a set after the restart: %v", err)
	}
	if b.seen() != "PUT /v1/kv/k" {
		t.Errorf("the second agent saw %q", b.seen())
	}
}

func TestConnectionsAreKept(t *testing.T) {
	conns := map[net.Conn]bool{}
	a := newAgent(t, testSocket(t), func(_ int, c net.Conn) bool { conns[c] = true; return ok(c, "") })
	c := New(a.socket)
	defer c.Close()
	for range 10 {
		if _, err := c.Set(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(conns) != 1 {
		t.Errorf("10 sets took %d connections", len(conns))
	}
}

func TestALeftClientAndALateAgent(t *testing.T) {
	asked := make(chan bool, 2)
	release := make(chan bool)
	a := newAgent(t, testSocket(t), func(_ int, c net.Conn) bool { asked <- true; <-release; return false })
	defer close(release)
	c := New(a.socket)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { _, err := c.Set(ctx, "k", nil); done <- err }()
	go func() { _, err := c.Get(ctx, "k"); done <- err }()
	<-asked
	<-asked
	cancel()
	for range 2 {
		err := <-done
		if !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotSent) {
			t.Errorf("a client that left: %v", err)
		}
	}
}

func TestTooLargeIsKnownBeforeItIsSent(t *testing.T) {
	_, err := New("/nowhere").Set(t.Context(), "k", make([]byte, MaxValue+1))
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "1048577 bytes") {
		t.Error(err)
	}
}

// A listing is read page by page, and stops to ask where its reader stops.
func TestAListingIsReadPageByPage(t *testing.T) {
	pages := []string{
		`{"entries":[{"key":"a","version":"1.1"},{"key":"b","version":"1.1"}],"next":"b&c"}`,
		`{"entries":[],"next":"d"}`,
		`{"entries":[{"key":"e","version":"2.1","size":7,"writer":"site-a"}]}`,
	}
	a := newAgent(t, testSocket(t), func(n int, c net.Conn) bool { return ok(c, pages[(n-1)%len(pages)]) })
	c := New(a.socket)
	defer c.Close()
	var got []string
	for e, err := range c.List(t.Context(), Listing{Prefix: "x/ y"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Key)
	}
	if strings.Join(got, " ") != "a b e" {
		t.Errorf("%q", got)
	}
	want := "GET /v1/kv?after=&prefix=x%2F+y, GET /v1/kv?after=b%26c&prefix=x%2F+y, GET /v1/kv?after=d&prefix=x%2F+y"
	if a.seen() != want {
		t.Errorf("the agent saw %s\nwant %s", a.seen(), want)
	}
	for range c.List(t.Context(), Listing{Local: true}) {
		break
	}
	if !strings.HasSuffix(a.seen(), "GET /v1/kv?after=&local=true&prefix=") {
		t.Errorf("the agent saw %s", a.seen())
	}
}

func TestAListingThatFails(t *testing.T) {
	body := ""
	a := newAgent(t, testSocket(t), func(_ int, c net.Conn) bool { return ok(c, body) })
	c := New(a.socket)
	defer c.Close()
	for _, c := range []struct{ body, says string }{
		{"no JSON", "read a page of keys"},
		{`{"entries":[],"next":"a"}`, `after "a"`},
		{strings.Repeat(" ", maxBody+1), "more than"},
	} {
		body = c.body
		errs := 0
		for _, err := range New(a.socket).List(t.Context(), Listing{After: "m"}) {
			if errs++; err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%.20q: %v, want something with %q", c.body, err, c.says)
			}
		}
		if errs != 1 {
			t.Errorf("%.20q: %d errors", c.body, errs)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range c.List(ctx, Listing{}) {
		if err == nil {
			t.Error("a listing for a client that left")
		}
	}
}

func TestAskingForAToken(t *testing.T) {
	a := newAgent(t, testSocket(t), func(_ int, c net.Conn) bool {
		return ok(c, `{"token":"gus1-x","lifetime_seconds":90}`)
	})
	c := New(a.socket)
	defer c.Close()
	for _, life := range []time.Duration{0, 90 * time.Second} {
		if got, err := c.Token(t.Context(), life); err != nil || got != (Token{"gus1-x", 90}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if want := "POST /v1/token, POST /v1/token?ttl=1m30s"; a.seen() != want {
		t.Errorf("the agent saw %s, want %s", a.seen(), want)
	}
}

func TestVersionsCompare(t *testing.T) {
	for _, c := range []struct {
		v, w Version
		want int
	}{
		{"", "", 0}, {"", "1.1", -1}, {"1.1", "1.1", 0}, {"1.1", "1.2", -1}, {"2.1", "1.2", 1},
		{"10.1", "9.1", 1}, {"121922961932189696.3", "121922961932189697.1", -1},
	} {
		if got := c.v.Compare(c.w); got != c.want {
			t.Errorf("%q against %q: %d, want %d", c.v, c.w, got, c.want)
		}
	}
}

func TestWhatCanBeAVersion(t *testing.T) {
	for v, want := range map[Version]bool{
		"": false, ".": false, "1": false, "1.": false, ".1": false, "1.1.1": false, "a.1": false, "1.256": false,
		"1.1": true, "18446744073709551615.63": true,
	} {
		if got := v.Valid(); got != want {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
	}
}

func TestDurationsAreMilliseconds(t *testing.T) {
	b, err := json.Marshal(Duration(72*time.Millisecond + 345*time.Microsecond))
	if err != nil || string(b) != "72.345" {
		t.Errorf("%s, %v", b, err)
	}
	var d Duration
	if err := json.Unmarshal([]byte("0.5"), &d); err != nil || d != Duration(500*time.Microsecond) {
		t.Errorf("%v, %v", d, err)
	}
}

// API.md lists each code with its status.
func TestTheDocumentHasTheTable(t *testing.T) {
	b, err := os.ReadFile("../API.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range codes {
		if row := fmt.Sprintf("| %d | `%s` |", c.status, c.code); !strings.Contains(string(b), row) {
			t.Errorf("API.md has no row %s", row)
		}
	}
}

// An agent that takes a request and never answers, because it was stopped, is named by all
// that ask it.
func TestAnAgentThatDoesNotAnswer(t *testing.T) {
	release := make(chan bool)
	a := newAgent(t, testSocket(t), func(int, net.Conn) bool { <-release; return false })
	defer close(release)
	c := New(a.socket)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, until := c.Watch(ctx, Watching{})
	_, get := c.Get(ctx, "k")
	_, watch := c.Watch(t.Context(), Watching{Timeout: 10 * time.Millisecond})
	for what, err := range map[string]error{"a watch": watch, "one with a deadline": until, "a get": get} {
		if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "the agent at "+a.socket+" does not answer: context deadline exceeded") {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := c.Set(ctx, "k", nil)
	if !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), a.socket) {
		t.Errorf("a set: %v", err)
	}
}
