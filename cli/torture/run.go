//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// windowTime is about what a short window takes. None is begun with less left.
const windowTime = 15 * time.Second

// run runs windows for as long as opts says, in dir, and returns what it saw of
// them; an error, where something is wrong with the agents. Say is told how it goes.
func run(opts options, dir string, say func(format string, args ...any)) (report, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := newWorld(opts, dir, cancel)
	if err == nil {
		w.deck = deck{rng: w.random(streamDeck, 0), kinds: opts.kinds}
		if w.small < 0 && slices.Contains(opts.kinds, "disk-full") {
			say("no fault disk-full: %v", w.noSmall)
			w.deck.kinds = slices.DeleteFunc(slices.Clone(opts.kinds), func(k string) bool { return k == "disk-full" })
		}
		err = w.runWindows(ctx, began, say)
	}
	for _, text := range slices.Sorted(maps.Keys(w.odd.seen)) {
		say("%d times an error that no sentinel stands for: %s", w.odd.seen[text], text)
	}
	return w.report, errors.Join(err, w.close())
}

func (w *world) runWindows(ctx context.Context, began time.Time, say func(string, ...any)) error {
	if len(w.deck.kinds) == 0 {
		return errors.New("no kind of fault is possible here")
	}
	_, states, err := w.heal(ctx)
	if err != nil {
		return fmt.Errorf("before the first fault: %w", err)
	}
	w.ledger.note(states)
	for w.opts.time-time.Since(began) > windowTime || w.window == 0 {
		w.window++
		if err := w.runWindow(ctx); err != nil {
			return err
		}
		say("window %d is over after %v: %d operations so far", w.window, time.Since(began).Round(time.Second), w.report.operations)
	}
	return w.lastListing(ctx)
}
