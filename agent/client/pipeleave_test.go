package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
)

// newestCall says whether the newest call of c's pipe waits to be written, and whether there are n calls.
func newestCall(c *Client, n int) (waits, there bool) {
	c.pipes.mu.Lock()
	p := c.pipes.current
	c.pipes.mu.Unlock()
	if p == nil {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.calls[p.lastID]
	return to != nil && to.at >= p.taken, len(p.calls) == n
}

// A client says that nothing changed of what it has not written: so it must not write it after that.
func TestWhatWasNotSentIsNotSentLater(t *testing.T) {
	reads := make(chan struct{})
	var mu sync.Mutex
	seen := map[string]bool{}
	a := piping(t, func(_ int, r PipeRequest, c net.Conn) bool {
		<-reads // a slow agent: what is sent waits in buffers, and then with the client
		if r.Kind != PipeSet {
			return true
		}
		mu.Lock()
		seen[string(r.Key)] = true
		mu.Unlock()
		return say(c, r.ID, Reply{Status: 200})
	})
	c := NewPipelined(a.socket)
	defer c.Close()
	var wg sync.WaitGroup
	n := 0
	set := func(ctx context.Context, key string, value []byte, result *error) (waits bool) {
		wg.Go(func() { _, *result = c.Set(ctx, key, value) })
		n++
		for there := false; !there; runtime.Gosched() {
			waits, there = newestCall(c, n)
		}
		return waits
	}
	big := make([]error, 40) // more than any buffer between takes
	for i := range big {
		set(t.Context(), fmt.Sprint("big", i), make([]byte, MaxPipeValue), &big[i])
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := make([]error, 20)
	waits := false
	for i := range late {
		waits = set(ctx, fmt.Sprint("late", i), []byte("value"), &late[i]) || waits
	}
	if !waits {
		t.Fatal("all was written, though nobody reads")
	}
	others := make([]error, 3) // whose requests move up
	for i := range others {
		set(t.Context(), fmt.Sprint("other", i), []byte("value"), &others[i])
	}
	cancel()
	for there := false; !there; runtime.Gosched() {
		_, there = newestCall(c, len(big)+len(others))
	}
	close(reads)
	wg.Wait()
	for i, err := range late {
		if !errors.Is(err, ErrNotSent) && !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("who left: %v", err)
		}
		if key := fmt.Sprint("late", i); errors.Is(err, ErrNotSent) && seen[key] {
			t.Errorf("%s: %v: and the agent has it", key, err)
		}
	}
	if err := errors.Join(append(big, others...)...); err != nil {
		t.Error(err)
	}
}
