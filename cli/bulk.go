package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// What a command that does many operations has under way at once: enough for
// distant sites, and well below what an agent takes in.
const (
	maxFlight      = 256
	maxFlightBytes = 16 << 20 // of values
)

// window does operations, many at a time, and hands over what came of them in the
// order in which they were begun. One goroutine uses it.
type window[T any] struct {
	done  func(T) error // gets each result, in order; its first error ends all
	queue []flight[T]
	bytes int
	wg    sync.WaitGroup
}

// flight is an operation under way.
type flight[T any] struct {
	result chan T // gets one
	bytes  int
}

// begin starts an operation on a value of about so many bytes, once there is room
// for it.
func (w *window[T]) begin(bytes int, operation func() T) error {
	for len(w.queue) > 0 && (len(w.queue) >= maxFlight || w.bytes+bytes > maxFlightBytes) {
		if err := w.settle(); err != nil {
			return err
		}
	}
	f := flight[T]{make(chan T, 1), bytes}
	w.queue, w.bytes = append(w.queue, f), w.bytes+bytes
	w.wg.Go(func() { f.result <- operation() })
	return nil
}

// settle waits for the oldest operation and hands its result over.
func (w *window[T]) settle() error {
	f := w.queue[0]
	w.queue, w.bytes = w.queue[1:], w.bytes-f.bytes
	return w.done(<-f.result)
}

// finish hands over all that is still under way.
func (w *window[T]) finish() error {
	for len(w.queue) > 0 {
		if err := w.settle(); err != nil {
			return err
		}
	}
	return nil
}

// within calls f with a context that ends after d. Of a context that has ended
// already f gets to know, too.
func within[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}

// progress tells somebody who sits at a terminal how far a command is. Nil tells nobody.
type progress struct {
	out   io.Writer
	what  string // "keys written"
	of    int    // how many there will be; 0: nobody knows
	last  time.Time
	shown bool
}

// progressOf returns nil unless stderr is a terminal, and quiet, which has the output, is none.
func (a *app) progressOf(what string, of int, quiet any) *progress {
	if !isTerminal(a.err) || isTerminal(quiet) {
		return nil
	}
	return &progress{out: a.err, what: what, of: of, last: time.Now()}
}

// is tells that n are done, a few times a second.
func (p *progress) is(n int) {
	if p == nil || time.Since(p.last) < 200*time.Millisecond {
		return
	}
	p.last, p.shown = time.Now(), true
	if p.of > 0 {
		fmt.Fprintf(p.out, "\r%s of %s %s\x1b[K", thousands(n), thousands(p.of), p.what)
		return
	}
	fmt.Fprintf(p.out, "\r%s %s\x1b[K", thousands(n), p.what)
}

// end takes the line away.
func (p *progress) end() {
	if p != nil && p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
