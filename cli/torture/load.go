//go:build unix

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gus/agent/client"
	"gus/register/sim"
)

const (
	clients = 6   // at each site
	hot     = 4   // keys that all clients fight for
	warm    = 20  // windows that use the same hot keys
	cold    = 300 // keys of a window
	kept    = 20  // cold keys of a window that the next one goes on with
)

// hotShare is the share of operations on hot keys.
const hotShare = 0.25

// think is the mean time between two operations of a client.
const think = 12 * time.Millisecond

func hotPrefix(window int) string { return fmt.Sprintf("h%d/", window/warm) }
func hotKey(window, i int) string { return fmt.Sprintf("%s%d", hotPrefix(window), i) }

// coldPrefix begins a window's own keys.
func coldPrefix(window int) string        { return fmt.Sprintf("w%d/", window) }
func coldKey(window, i int) string        { return fmt.Sprintf("%s%03d", coldPrefix(window), i) }
func probeKey(window int, s *site) string { return coldPrefix(window) + "probe-" + s.name }

// worker is a client with a random taste.
type worker struct {
	caller
	name   string // no other's, in no window
	window int
	old    []string // cold keys of windows before
	rng    *rand.Rand
	count  int
	served *atomic.Int64 // when an operation at its site last succeeded
}

// work runs operations until ctx ends. The last one is waited for.
func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		pause := time.Duration(w.rng.ExpFloat64() * float64(think))
		if err := w.one(); err != nil {
			pause += 100 * time.Millisecond // an agent that is not there answers at once
		} else if n := len(w.ops); n > 0 {
			w.served.Store(w.ops[n-1].Return)
		}
		sleep(ctx, pause)
	}
}

// one runs one operation. Clients have little patience, so that many outcomes
// are unknown, and some are patient.
func (w *worker) one() error {
	timeout := []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second}[w.rng.IntN(3)]
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var err error
	switch dice := w.rng.Float64(); {
	case dice < 0.42:
		w.count++
		_, err = w.set(ctx, w.key(), w.value())
	case dice < 0.86:
		var o *sim.Operation
		if o, err = w.get(ctx, w.key()); o.Fate == sim.Done {
			err = nil // no such key
		}
	case dice < 0.93:
		_, err = w.delete(ctx, w.key())
	case dice < 0.97:
		err = w.local(ctx, coldKey(w.window, w.rng.IntN(cold)))
	default:
		_, err = w.list(ctx, w.prefix(), timeout)
	}
	return err
}

func (w *worker) key() string {
	switch dice := w.rng.Float64(); {
	case dice < hotShare:
		return hotKey(w.window, w.rng.IntN(hot))
	case dice < hotShare+0.05 && len(w.old) > 0:
		return w.old[w.rng.IntN(len(w.old))]
	}
	return coldKey(w.window, w.rng.IntN(cold))
}

// prefix returns one that begins no keys but those of this window's history.
func (w *worker) prefix() string {
	switch w.rng.IntN(8) {
	case 0:
		return coldPrefix(w.window)
	case 1, 2:
		return hotPrefix(w.window)
	}
	return coldKey(w.window, w.rng.IntN(cold))[:len(coldPrefix(w.window))+2]
}

// value returns one that nobody else writes: mostly small, now and then of many
// packets, seldom as large as can be.
func (w *worker) value() string {
	size := w.rng.IntN(200)
	switch dice := w.rng.IntN(2000); {
	case dice == 0:
		size = client.MaxValue
	case dice <= 10:
		size = w.rng.IntN(64 << 10)
	}
	v := fmt.Sprintf("%s.%d.%s", w.name, w.count, strings.Repeat("x", size))
	return v[:min(len(v), client.MaxValue)]
}

// load is the clients of a window, at work until stop.
type load struct {
	workers []*worker
	served  []*atomic.Int64 // by site
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// startLoad lets clients work at all sites.
func (w *world) startLoad(ctx context.Context) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel}
	begun := w.watch.now()
	for i, s := range w.sites {
		served := new(atomic.Int64)
		l.served = append(l.served, served)
		for j := range clients {
			worker := &worker{
				caller: w.caller(s), window: w.window, old: w.carried.keys("w"),
				name:   fmt.Sprintf("%d%s%d", w.window, s.name, j),
				rng:    w.random(streamLoad, uint64(w.window)<<16|uint64(i)<<8|uint64(j)),
				served: served,
			}
			worker.begun = begun
			l.workers = append(l.workers, worker)
			l.wg.Go(func() { worker.work(ctx) })
		}
	}
	return l
}

// maxReturn is how long the load goes on after the last fault for sites that
// do not serve again yet.
const maxReturn = 20 * time.Second

// awaitService waits until each site has served since a moment, but not for ever:
// whether it heals is asked later.
func (l *load) awaitService(ctx context.Context, since int64) {
	ctx, cancel := context.WithTimeout(ctx, maxReturn)
	defer cancel()
	for _, served := range l.served {
		for ctx.Err() == nil && served.Load() <= since {
			sleep(ctx, 10*time.Millisecond)
		}
	}
}

// stop lets each client end its operation, and returns their callers.
func (l *load) stop() []*caller {
	l.cancel()
	l.wg.Wait()
	var all []*caller
	for _, w := range l.workers {
		all = append(all, &w.caller)
	}
	return all
}

// sleep lets d pass, or ctx end.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
