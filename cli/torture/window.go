//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"gus/register/sim"
)

// fault is one that was done.
type fault struct {
	kind, text string
	victims    []int
	cuts       [][2]int
	start, end int64 // by the stopwatch
}

func (f *fault) String() string {
	return fmt.Sprintf("%s (%s) from %v to %v", f.kind, f.text,
		time.Duration(f.start).Round(time.Millisecond), time.Duration(f.end).Round(time.Millisecond))
}

// planned is a fault that is to begin at some time after its window did.
type planned struct {
	at   time.Duration
	kind string
	action
}

// deck deals kinds of faults so that each comes as often as any other.
type deck struct {
	rng   *rand.Rand
	kinds []string
	left  []string
}

func (d *deck) deal() *kind {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.kinds)
		d.rng.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	name := d.left[0]
	d.left = d.left[1:]
	return kindOf(name)
}

// plan chooses a window's faults: mostly one after the other, some at a time.
// Long runs have longer windows too, and in them faults that outlast the
// connections.
func (w *world) plan() []planned {
	r := w.random(streamPlan, uint64(w.window))
	length, long := 14*time.Second, false
	if w.opts.time >= 5*time.Minute && r.IntN(2) == 0 {
		length, long = 45*time.Second, true
	}
	var all []planned
	for at := time.Second; at < length; {
		lasts := 500*time.Millisecond + time.Duration(r.Int64N(int64(3500*time.Millisecond)))
		if long && r.IntN(3) == 0 {
			lasts = idle + time.Duration(r.Int64N(int64(5*time.Second)))
		}
		k := w.deck.deal()
		a := k.draw(w, r, lasts)
		all = append(all, planned{at, k.name, a})
		if r.IntN(4) == 0 {
			at += time.Duration(r.Int64N(int64(a.lasts)))
		} else {
			at += a.lasts + 500*time.Millisecond + time.Duration(r.Int64N(int64(time.Second)))
		}
	}
	return all
}

// torment does what is planned and returns what was done, when all of it has ended.
func (w *world) torment(ctx context.Context, plan []planned) []*fault {
	var mu sync.Mutex
	var done []*fault
	var wg sync.WaitGroup
	for _, p := range plan {
		wg.Go(func() {
			sleep(ctx, p.at)
			for _, i := range slices.Sorted(slices.Values(p.holds)) {
				w.sites[i].hands.Lock()
				defer w.sites[i].hands.Unlock()
			}
			if ctx.Err() != nil {
				return
			}
			f := &fault{kind: p.kind, text: p.text, victims: p.victims, cuts: p.cuts, start: w.watch.now()}
			mu.Lock()
			done = append(done, f)
			mu.Unlock()
			w.log.Info("begins", "fault", p.kind, "what", p.text, "at", time.Duration(f.start))
			lasts, cancel := context.WithTimeout(ctx, p.lasts)
			err := p.do(lasts)
			cancel()
			f.end = w.watch.now()
			w.log.Info("ends", "fault", p.kind, "what", p.text, "at", time.Duration(f.end))
			if err != nil {
				w.fail(fmt.Errorf("%v: %w", f, err))
			}
		})
	}
	wg.Wait()
	return done
}

// history is what happened in a window.
type history struct {
	faults     []*fault
	start, end int64 // of the load
	ops        sim.History
	served     [][]int64 // by site: when operations succeeded, in order, from start to end
}

// runWindow runs a window and judges it.
func (w *world) runWindow(ctx context.Context) error {
	w.log.Info("window", "number", w.window, "at", time.Duration(w.watch.now()))
	h := history{ops: w.carried.begin(&w.watch), start: w.watch.now()}
	l := w.startLoad(ctx)
	h.faults = w.torment(ctx, w.plan())
	l.awaitService(ctx, w.watch.now())
	h.end = w.watch.now()
	callers := l.stop()
	worked := merge(callers)
	w.report.note(w, &history{faults: h.faults, start: h.start, end: h.end, ops: worked})
	rest, states, err := w.heal(ctx)
	if failed := w.failure(); failed != nil {
		err = failed // and what healing met follows from that
	}
	h.ops = append(append(h.ops, worked...), rest...)
	number(h.ops)
	bad := judge(h.ops, locals(callers), w.random(streamJudge, uint64(w.window)))
	if err := errors.Join(err, bad, w.odd.bad); err != nil {
		return w.blame(h.faults, err)
	}
	w.ledger.note(states)
	w.carried = carry(h.ops, states, w.nextKeys())
	return nil
}

// blame adds what happened in the window to an error.
func (w *world) blame(faults []*fault, err error) error {
	var all []string
	for _, f := range faults {
		all = append(all, f.String())
	}
	return fmt.Errorf("window %d, until %v: %s\nfaults: %s", w.window, time.Duration(w.watch.now()),
		padding.ReplaceAllString(err.Error(), "x..."), strings.Join(all, "\n        "))
}

// padding is what fills values up (worker.value): nobody wants to read it.
var padding = regexp.MustCompile("x{9,}")

// keys returns all keys of the window.
func (w *world) keys() []string {
	keys := w.carried.keys("w")
	for i := range hot {
		keys = append(keys, hotKey(w.window, i))
	}
	for i := range cold {
		keys = append(keys, coldKey(w.window, i))
	}
	for _, s := range w.sites {
		keys = append(keys, probeKey(w.window, s))
	}
	return keys
}

// nextKeys returns those of the window that the next one uses again.
func (w *world) nextKeys() []string {
	var keys []string
	if hotPrefix(w.window) == hotPrefix(w.window+1) {
		for i := range hot {
			keys = append(keys, hotKey(w.window, i))
		}
	}
	for _, i := range w.random(streamJudge, 1<<32|uint64(w.window)).Perm(cold)[:kept] {
		keys = append(keys, coldKey(w.window, i))
	}
	return keys
}
