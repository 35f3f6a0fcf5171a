package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gus/agent/client"
)

// outcomeOfKey is what became of one of many keys.
type outcomeOfKey struct {
	number int // of its line in the file, or among the keys
	key    string
	same   bool // it had the value already
	err    error
}

// tally counts outcomes of many writes.
type tally struct {
	what       string // "written"
	unit       string // what a number is of: "line"
	begun      int
	done, same int
	unknown    []int // the numbers of those that may have taken effect
	unchanged  []int // of those that failed and surely have not
	first      *outcomeOfKey
}

func (t *tally) add(o outcomeOfKey) {
	switch {
	case o.err == nil && o.same:
		t.same++
		return
	case o.err == nil:
		t.done++
		return
	case errors.Is(o.err, client.ErrUnknownOutcome):
		t.unknown = append(t.unknown, o.number)
	default:
		t.unchanged = append(t.unchanged, o.number)
	}
	// What the first one failed with explains more than that the rest was given up.
	if t.first == nil || t.first.number > o.number {
		t.first = &o
	}
}

func (t *tally) failed() bool { return t.first != nil }

// verdict is the error of a run that is not whole: what failed first, and which
// of all were not written, or may have been.
func (t *tally) verdict(all int, ctx context.Context) error {
	if !t.failed() && t.begun == all {
		return nil
	}
	if !t.failed() {
		return fmt.Errorf("interrupted: %s: %w", t.said(all), context.Cause(ctx))
	}
	err := fmt.Errorf("%s %d, %s: %w; %s", t.unit, t.first.number, printable(t.first.key), t.first.err, t.said(all))
	if len(t.unknown) > 0 && !errors.Is(err, client.ErrUnknownOutcome) {
		return unknownToo{err}
	}
	return err
}

// ended is the verdict where what is to be written was found meanwhile, which has ended with err.
func (t *tally) ended(all int, err error, ctx context.Context) error {
	switch {
	case err == nil || t.failed():
		return t.verdict(all, ctx)
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %s: %w", t.said(all), context.Cause(ctx))
	}
	return fmt.Errorf("%w; %s", err, t.said(all))
}

// said tells how many have which outcome.
func (t *tally) said(all int) string {
	parts := []string{fmt.Sprintf("%s %s", thousands(t.done), t.what)}
	if t.same > 0 {
		parts = append(parts, thousands(t.same)+" the same already")
	}
	if len(t.unknown) > 0 {
		parts = append(parts, fmt.Sprintf("%s unknown (%s)", thousands(len(t.unknown)), t.numbers(t.unknown)))
	}
	if len(t.unchanged) > 0 {
		parts = append(parts, fmt.Sprintf("%s failed (%s)", thousands(len(t.unchanged)), t.numbers(t.unchanged)))
	}
	if left := all - t.begun; left > 0 {
		parts = append(parts, fmt.Sprintf("the last %s not tried", thousands(left)))
	}
	return strings.Join(parts, ", ") + ": it may be run again"
}

// unknownToo is an error of a run in which the outcome of some other write is unknown.
type unknownToo struct{ error }

func (u unknownToo) Is(target error) bool { return target == client.ErrUnknownOutcome }

func (u unknownToo) Unwrap() error { return u.error }

// numbers prints a few numbers, in order.
func (t *tally) numbers(ns []int) string {
	const most = 8
	ns = slices.Sorted(slices.Values(ns))
	var s []string
	for _, n := range ns[:min(len(ns), most)] {
		s = append(s, fmt.Sprint(n))
	}
	if more := len(ns) - most; more > 0 {
		s = append(s, fmt.Sprintf("and %s more", thousands(more)))
	}
	return t.unit + " " + strings.Join(s, ", ")
}
