package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// piping is a stand-in for an agent that knows pipes: f gets each request of the nth pipe, and
// writes what it likes; the pipe is closed where f says so.
func piping(t *testing.T, f func(pipe int, r PipeRequest, c net.Conn) (keep bool)) *agent {
	var mu sync.Mutex
	pipes := 0
	return newAgent(t, testSocket(t), func(_ int, c net.Conn) bool {
		mu.Lock()
		pipes++
		n := pipes
		mu.Unlock()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+PipeUpgrade+"\r\n\r\n")
		in := bufio.NewReaderSize(c, MaxPipeRequest)
		for {
			head, err := in.Peek(4)
			if err != nil {
				return false
			}
			size, err := PipeRequestSize(head)
			if err != nil {
				t.Error(err)
				return false
			}
			b := make([]byte, size)
			if _, err := io.ReadFull(in, b); err != nil {
				return false
			}
			r, err := ParsePipeRequest(b)
			if err != nil {
				t.Error(err)
			}
			if !f(n, r, c) {
				return false
			}
		}
	})
}

func say(c net.Conn, id uint64, r Reply) bool {
	_, err := c.Write(AppendPipeReply(nil, id, &r))
	return err == nil
}

func TestRepliesComeBackAsTheyWere(t *testing.T) {
	for _, r := range []Reply{
		{Status: 200, Body: []byte{}},
		{Status: 507, RoundTrips: 2, Version: "7.1", Via: "site-b", Newer: true, Age: time.Hour, Body: []byte("body")},
		{Status: 200, RoundTrips: 65535, Pending: true, Body: make([]byte, MaxValue)},
	} {
		b := AppendPipeReply(nil, 1<<63, &r)
		n, err := frameSize(b, replyHead, maxPipeReply)
		if err != nil || n != len(b) {
			t.Fatalf("%d bytes of %d, %v", n, len(b), err)
		}
		id, got, err := parsePipeReply(b)
		if err != nil || id != 1<<63 || !reflect.DeepEqual(got, r) {
			t.Errorf("got %.300v, %v, want %.300v", got, err, r)
		}
	}
}

func TestAnOldAgentIsAskedByHTTP(t *testing.T) {
	a := newAgent(t, testSocket(t), func(n int, c net.Conn) bool {
		if n == 1 {
			fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			return true
		}
		return ok(c, "value")
	})
	c := NewPipelined(a.socket)
	defer c.Close()
	for range 2 {
		if r, err := c.Get(t.Context(), "k"); err != nil || string(r.Value) != "value" {
			t.Errorf("%q, %v", r.Value, err)
		}
	}
	if got, want := a.seen(), "GET "+PipePath+", GET /v1/kv/k, GET /v1/kv/k"; got != want {
		t.Errorf("the agent saw %s, want %s", got, want)
	}
}

// What the agent may have is not sent again, what only reads is.
func TestAPipeThatBreaks(t *testing.T) {
	a := piping(t, func(pipe int, r PipeRequest, c net.Conn) bool {
		return pipe > 1 && pipe != 3 && say(c, r.ID, Reply{Status: http.StatusOK, Version: "7.1"})
	})
	c := NewPipelined(a.socket)
	defer c.Close()
	if _, err := c.Set(t.Context(), "k", nil); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a set that was not answered: %v", err)
	}
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	c.Close()
	if _, err := c.Get(t.Context(), "k"); err == nil || !errors.Is(err, ErrNotRunning) {
		t.Errorf("a get on a new pipe that broke: %v", err)
	}
	if r, err := c.Get(t.Context(), "k"); err != nil || r.Version != "7.1" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRepliesThatCannotBeBreakAPipe(t *testing.T) {
	for _, b := range [][]byte{
		{0xff, 0xff, 0xff, 0xff},
		{0, 0, 0, 1, 0},
		append([]byte{0, 0, 0, replyHead - 4}, append(make([]byte, replyHead-4-2), 200, 200)...),
	} {
		a := piping(t, func(_ int, r PipeRequest, c net.Conn) bool {
			c.Write(b)
			return true
		})
		c := NewPipelined(a.socket)
		if _, err := c.Set(t.Context(), "k", nil); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("%x: %v", b, err)
		}
		c.Close()
	}
}

// Who leaves tells the agent, and leaves the others their replies, also where it has been
// reading for them.
func TestWhoLeavesAPipe(t *testing.T) {
	asked, dropped := make(chan string, 10), make(chan uint64, 10)
	ids := map[string]uint64{}
	release := make(chan struct{})
	var conn net.Conn
	a := piping(t, func(_ int, r PipeRequest, c net.Conn) bool {
		conn = c
		if r.Kind == PipeDrop {
			dropped <- r.ID
			return true
		}
		ids[string(r.Key)] = r.ID
		asked <- string(r.Key)
		return true
	})
	c := NewPipelined(a.socket)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.Set(ctx, "leaves", nil); !errors.Is(err, ErrUnknownOutcome) || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("who leaves: %v", err)
		}
		close(release)
	})
	<-asked
	wg.Go(func() {
		if r, err := c.Get(t.Context(), "stays"); err != nil || string(r.Value) != "value" {
			t.Errorf("who stays: %q, %v", r.Value, err)
		}
	})
	<-asked
	cancel()
	<-release
	if id := <-dropped; id != ids["leaves"] {
		t.Errorf("request %d is dropped, want %d", id, ids["leaves"])
	}
	say(conn, ids["leaves"], Reply{Status: http.StatusOK}) // nobody waits for it
	say(conn, ids["stays"], Reply{Status: http.StatusOK, Body: []byte("value")})
	wg.Wait()
	c.Close()
}

func TestAnAgentThatSaysNothingThroughAPipe(t *testing.T) {
	a := piping(t, func(int, PipeRequest, net.Conn) bool { return true })
	c := NewPipelined(a.socket)
	defer c.Close()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-grace+20*time.Millisecond))
	defer cancel()
	if _, err := c.Set(ctx, "k", nil); err == nil {
		t.Error("a set that nobody answered succeeded")
	}
	if _, err := c.Get(ctx, "k"); err == nil {
		t.Error("a get that nobody answered succeeded")
	}
}

func FuzzPipeReply(f *testing.F) {
	f.Add(AppendPipeReply(nil, 7, &Reply{Status: 200, Version: "7.1", Via: "b", Body: []byte("v")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		if n, err := frameSize(b, replyHead, maxPipeReply); err == nil && n <= len(b) {
			_, _, _ = parsePipeReply(b[:n])
		}
	})
}
