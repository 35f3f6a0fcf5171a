package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gus/agent/client"
	"gus/register"
)

// What a client is told is the same through a pipe and by HTTP.
func TestAPipeSaysWhatHTTPSays(t *testing.T) {
	d := newDoor(t)
	piped := client.NewPipelined(d.socket)
	defer piped.Close()
	type outcome struct {
		value, version, err string
		code                string
		newer, pending      bool
	}
	try := func(c *client.Client, do func(c *client.Client) (client.Result, error)) outcome {
		r, err := do(c)
		o := outcome{value: string(r.Value), newer: r.Newer, pending: r.Pending}
		if r.Version != "" {
			o.version = "some"
		}
		if err != nil {
			_, o.code = client.Code(err)
			o.err = err.Error()
		}
		return o
	}
	ctx := t.Context()
	large := bytes.Repeat([]byte("v"), client.MaxValue)
	for _, c := range []struct {
		name string
		do   func(c *client.Client) (client.Result, error)
	}{
		{"get what is not there", func(c *client.Client) (client.Result, error) { return c.Get(ctx, "none") }},
		{"look at what is not there", func(c *client.Client) (client.Result, error) { return c.GetLocal(ctx, "none") }},
		{"set", func(c *client.Client) (client.Result, error) { return c.Set(ctx, "k", []byte("v")) }},
		{"get", func(c *client.Client) (client.Result, error) { return c.Get(ctx, "k") }},
		{"look", func(c *client.Client) (client.Result, error) { return c.GetLocal(ctx, "k") }},
		{"set nothing", func(c *client.Client) (client.Result, error) { return c.Set(ctx, "empty", nil) }},
		{"get nothing", func(c *client.Client) (client.Result, error) { return c.Get(ctx, "empty") }},
		{"set the most that a pipe takes", func(c *client.Client) (client.Result, error) {
			return c.Set(ctx, "l", large[:client.MaxPipeValue])
		}},
		{"set a large value", func(c *client.Client) (client.Result, error) { return c.Set(ctx, "large", large) }},
		{"get a large value", func(c *client.Client) (client.Result, error) { return c.Get(ctx, "large") }},
		{"delete", func(c *client.Client) (client.Result, error) { return c.Delete(ctx, "k") }},
		{"get what was deleted", func(c *client.Client) (client.Result, error) { return c.Get(ctx, "k") }},
		{"set what is the system's", func(c *client.Client) (client.Result, error) { return c.Set(ctx, "_gus/x", nil) }},
		{"no key", func(c *client.Client) (client.Result, error) { return c.Get(ctx, "") }},
		{"a key that cannot be", func(c *client.Client) (client.Result, error) { return c.Set(ctx, "a\x00b", nil) }},
		{"a long key", func(c *client.Client) (client.Result, error) { return c.Get(ctx, strings.Repeat("k", 1025)) }},
		{"a very long key", func(c *client.Client) (client.Result, error) { return c.Get(ctx, strings.Repeat("k", 8000)) }},
	} {
		if got, want := try(piped, c.do), try(d.client, c.do); got != want {
			t.Errorf("%s: %.200v, and by HTTP %.200v", c.name, got, want)
		}
	}
}

func TestManyAtOnceShareAPipe(t *testing.T) {
	d := newDoor(t)
	piped := client.NewPipelined(d.socket)
	var wg sync.WaitGroup
	for w := range 200 {
		wg.Go(func() {
			for i := range 20 {
				key, value := fmt.Sprintf("%d/%d", w, i%3), fmt.Sprint(w, i)
				ctx, cancel := context.WithCancel(t.Context())
				if _, err := piped.Set(ctx, key, []byte(value)); err != nil {
					t.Errorf("set %s: %v", key, err)
				}
				if w%10 == 0 { // who leaves takes nobody along
					go cancel()
					if _, err := piped.Get(ctx, key); err != nil && !strings.Contains(err.Error(), "interrupted") {
						t.Errorf("get %s: %v", key, err)
					}
				} else if r, err := piped.Get(ctx, key); err != nil || string(r.Value) != value {
					t.Errorf("get %s: %q, %v, want %q", key, r.Value, err, value)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	piped.Close()
	d.stop()
	if _, err := piped.Get(t.Context(), "k"); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("without an agent: %v", err)
	}
}

// pipe makes a pipe and sends what is no request, or should not be one.
func (d *door) pipe(send []byte) (said []byte) {
	d.t.Helper()
	c, err := net.Dial("unix", d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	// With the request: what comes early is read as what comes late.
	go func() {
		c.Write(append([]byte("GET "+client.PipePath+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "+client.PipeUpgrade+"\r\n\r\n"), send...))
		c.(*net.UnixConn).CloseWrite()
	}()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	said, err = io.ReadAll(c)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		d.t.Fatalf("the agent does not close the pipe after %x: %v", send, err)
	}
	const head = "HTTP/1.1 101 Switching Protocols\r\n"
	if len(said) > 0 && !bytes.HasPrefix(said, []byte(head)) {
		d.t.Fatalf("the agent said %q", said)
	}
	_, said, _ = bytes.Cut(said, []byte("\r\n\r\n"))
	return said
}

func TestHostilePipes(t *testing.T) {
	d := newDoor(t)
	get := func(id uint64) []byte {
		return client.AppendPipeRequest(nil, client.PipeRequest{ID: id, Kind: client.PipeGet, Timeout: time.Second, Key: []byte("k")})
	}
	with := func(at int, v ...byte) []byte {
		b := get(1)
		copy(b[at:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"too long":               binary.BigEndian.AppendUint32(nil, 1<<31),
		"a little too long":      binary.BigEndian.AppendUint32(nil, client.MaxPipeRequest-3),
		"too short":              {0, 0, 0, 5, 1, 2, 3, 4, 5},
		"an unknown kind":        with(12, 77),
		"no timeout":             with(13, 0, 0, 0, 0, 0, 0, 0, 0),
		"a key beyond the frame": with(21, 0xff, 0xff),
		"a get with a value":     with(21, 0, 0),
	} {
		if said := d.pipe(b); len(said) > 0 {
			t.Errorf("%s: the agent said %x", name, said)
		}
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		b := get(1)
		for range 3 {
			b = append(b, get(r.Uint64N(3))...)
		}
		for range 1 + r.IntN(4) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		d.pipe(b)
	}
	if _, err := d.client.Set(t.Context(), "k", nil); err != nil {
		t.Errorf("after all that: %v", err)
	}
	resp, body := d.raw("GET " + client.PipePath + " HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a pipe that nobody asks for: %d %s", resp.StatusCode, body)
	}
}

// lane is a client's end of a pipe of a loop in a bubble.
type lane struct {
	net.Conn
	t *testing.T
}

func (l lane) ask(r client.PipeRequest) {
	if r.Timeout == 0 && r.Kind != client.PipeDrop {
		r.Timeout = 5 * time.Second
	}
	if _, err := l.Write(client.AppendPipeRequest(nil, r)); err != nil {
		l.t.Error(err)
	}
}

// hear returns the id and the rest of the next reply.
func (l lane) hear() (uint64, string) {
	var head [4]byte
	if _, err := io.ReadFull(l, head[:]); err != nil {
		l.t.Error(err)
		return 0, ""
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(l, b); err != nil {
		l.t.Error(err)
	}
	return binary.BigEndian.Uint64(b), string(b[8:])
}

// inLane runs f with a pipe to a voter that reaches no other: all that needs a quorum waits.
func inLane(t *testing.T, f func(t *testing.T, l *loop, a *api, c lane, ended <-chan struct{})) {
	inLoopOf(t, []string{"a", "b", "c"}, nobody{}, func(t *testing.T, l *loop, _ *failing, _ <-chan error) {
		a := &api{desk: l.desk, age: func() time.Duration { return 0 }, ending: make(chan struct{})}
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() {
			newPipe(a, theirs, nil).serve()
			theirs.Close()
			close(ended)
		}()
		f(t, l, a, lane{ours, t}, ended)
		ours.Close()
		<-ended
		if n, size := l.desk.count.Load(), l.desk.bytes.Load(); n != 0 || size != 0 {
			t.Errorf("%d requests of %d bytes are admitted after the end", n, size)
		}
	})
}

func TestRequestsOfAPipeEndInTime(t *testing.T) {
	inLane(t, func(t *testing.T, l *loop, a *api, c lane, ended <-chan struct{}) {
		began := time.Now()
		c.ask(client.PipeRequest{ID: 1, Kind: client.PipeSet, Key: []byte("k"), Value: []byte("v"), Timeout: 3 * time.Second})
		c.ask(client.PipeRequest{ID: 2, Kind: client.PipeGet, Key: []byte("k"), Timeout: time.Second})
		c.ask(client.PipeRequest{ID: 3, Kind: client.PipeGet, Key: []byte("k"), Timeout: time.Hour})
		c.ask(client.PipeRequest{ID: 4, Kind: client.PipeLocal, Key: []byte("k")})
		if id, said := c.hear(); id != 4 || !strings.Contains(said, "not_found") {
			t.Errorf("%d: %q", id, said)
		}
		if id, said := c.hear(); id != 2 || !strings.Contains(said, "no_quorum") || time.Since(began) != time.Second {
			t.Errorf("%d after %v: %q", id, time.Since(began), said)
		}
		c.ask(client.PipeRequest{ID: 3, Kind: client.PipeDrop})
		if id, said := c.hear(); id != 3 || time.Since(began) != time.Second {
			t.Errorf("%d after %v: %q", id, time.Since(began), said)
		}
		c.ask(client.PipeRequest{ID: 3, Kind: client.PipeDrop}) // there is none any more
		if id, said := c.hear(); id != 1 || !strings.Contains(said, "no_quorum") || time.Since(began) != 3*time.Second {
			t.Errorf("%d after %v: %q", id, time.Since(began), said)
		}
	})
}

func TestAClientThatGoesTakesItsRequestsAlong(t *testing.T) {
	inLane(t, func(t *testing.T, l *loop, a *api, c lane, ended <-chan struct{}) {
		for id := range uint64(100) {
			c.ask(client.PipeRequest{ID: id, Kind: client.PipeSet, Key: []byte("k"), Timeout: time.Hour})
		}
		began := time.Now()
		c.Close()
		<-ended
		if time.Since(began) > time.Minute {
			t.Errorf("they went after %v", time.Since(began))
		}
	})
}

func TestTheSameNumberTwiceEndsAPipe(t *testing.T) {
	inLane(t, func(t *testing.T, l *loop, a *api, c lane, ended <-chan struct{}) {
		c.ask(client.PipeRequest{ID: 1, Kind: client.PipeGet, Key: []byte("k")})
		c.ask(client.PipeRequest{ID: 1, Kind: client.PipeGet, Key: []byte("k")})
		io.Copy(io.Discard, c)
		<-ended
	})
}

func TestAnAgentThatStopsAnswersWhatIsInItsPipes(t *testing.T) {
	inLane(t, func(t *testing.T, l *loop, a *api, c lane, ended <-chan struct{}) {
		c.ask(client.PipeRequest{ID: 1, Kind: client.PipeSet, Key: []byte("k"), Timeout: time.Hour})
		synctest.Wait()
		close(a.ending)
		if id, said := c.hear(); id != 1 || said == "" {
			t.Errorf("%d: %q", id, said)
		}
		<-ended
	})
}

// More than may be under way are read once there is room.
func TestAPipeHasABound(t *testing.T) {
	inLane(t, func(t *testing.T, l *loop, a *api, c lane, ended <-chan struct{}) {
		const n = client.MaxPipeRequests + 10
		go func() {
			for id := range uint64(n) {
				c.ask(client.PipeRequest{ID: id, Kind: client.PipeGet, Key: []byte("k"), Timeout: time.Second})
			}
		}()
		synctest.Wait()
		if got := l.desk.count.Load(); got > client.MaxPipeRequests {
			t.Errorf("%d are under way", got)
		}
		for range n {
			if _, said := c.hear(); !strings.Contains(said, "no_quorum") {
				t.Errorf("said %q", said)
			}
		}
	})
}

// An observer's requests go to a voter, and an answer says to which.
func TestAPipeOfAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		a := &api{desk: d, age: func() time.Duration { return 0 }, ending: make(chan struct{}), ask: func(ctx context.Context, q question) answer {
			if q.key == "slow" {
				<-ctx.Done()
				return answer{err: ctx.Err()}
			}
			return answer{via: "site-b", result: register.Result{Found: true, Value: []byte("there")}}
		}}
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() {
			newPipe(a, theirs, nil).serve()
			close(ended)
		}()
		c := lane{ours, t}
		c.ask(client.PipeRequest{ID: 1, Kind: client.PipeGet, Key: []byte("slow")})
		c.ask(client.PipeRequest{ID: 2, Kind: client.PipeGet, Key: []byte("k")})
		if id, said := c.hear(); id != 2 || !strings.HasSuffix(said, "site-bthere") {
			t.Errorf("%d: %q", id, said)
		}
		c.ask(client.PipeRequest{ID: 1, Kind: client.PipeDrop})
		if id, _ := c.hear(); id != 1 {
			t.Errorf("%d was dropped", id)
		}
		c.ask(client.PipeRequest{ID: 3, Kind: client.PipeGet, Key: []byte("slow")})
		ours.Close()
		<-ended
	})
}

func FuzzPipeRequest(f *testing.F) {
	f.Add(client.AppendPipeRequest(nil, client.PipeRequest{ID: 7, Kind: client.PipeSet, Timeout: time.Second, Key: []byte("k"), Value: []byte("v")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		n, err := client.PipeRequestSize(b)
		if err != nil || n > len(b) {
			return
		}
		r, err := client.ParsePipeRequest(b[:n])
		if err == nil && r.Timeout < time.Hour && !bytes.Equal(client.AppendPipeRequest(nil, r), b[:n]) {
			t.Errorf("%x is read as %+v", b[:n], r)
		}
	})
}
