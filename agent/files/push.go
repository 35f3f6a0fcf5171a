package files

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gus/agent/client"
)

// maxShown is the size in bytes up to which values are kept for a difference to be shown.
const maxShown = 64 << 10

// Push says which files are to be keys: each regular file NAME below Dir becomes the
// key PREFIX NAME.
type Push struct {
	// Dir is the directory, and Prefix that of the keys: empty, or ending with a slash.
	Dir, Prefix string
	// Delete removes the keys below Prefix that no file stands for.
	Delete bool
	// DryRun compares and changes nothing.
	DryRun bool
	// Ask is the timeout of each question to the agent. 0: 5 s.
	Ask time.Duration
	// Confirm is asked, when all is compared and before the first change, whether so many keys may be removed.
	// Nil: they may.
	Confirm func(keys int) error
	// Change is told of each key that is changed, or by a DryRun would be. One
	// goroutine at a time calls it. Nil: nobody is told.
	Change func(Change)
}

// Summary is what a Push came to.
type Summary struct {
	Added   int      `json:"added"`
	Changed int      `json:"changed"`
	Deleted int      `json:"deleted"`
	Same    int      `json:"same"`
	Skipped []string `json:"skipped,omitempty"` // names of files that were left out
}

// Validate says what is wrong with p, if anything.
func (p Push) Validate() error {
	if p.Dir == "" {
		return errors.New("keys need a directory with files")
	}
	return checkPrefix(p.Prefix)
}

// Run reads and checks all files first, then compares them with the keys, and then
// writes what differs, several at a time. What it returns was done, also with an error; it
// may be run again. What is written meanwhile by others may be lost: there is no
// compare-and-set.
func (p Push) Run(ctx context.Context, c *client.Client) (Summary, error) {
	if err := p.Validate(); err != nil {
		return Summary{}, err
	}
	p.Ask = cmp.Or(p.Ask, askTimeout)
	if p.Change == nil {
		p.Change = func(Change) {}
	}
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return Summary{}, err
	}
	defer root.Close()
	x := &push{Push: p, c: c, root: root}
	names, err := x.scan()
	if err != nil {
		return x.Summary, err
	}
	if len(names) == 0 && p.Delete {
		return x.Summary, fmt.Errorf("%s has no files, so nothing is deleted: to remove all keys of a prefix there is `gus delete --prefix`", p.Dir)
	}
	changes, err := x.compare(ctx, names)
	if err != nil || p.DryRun {
		for _, ch := range changes {
			x.count(ch)
		}
		return x.Summary, err
	}
	return x.Summary, x.write(ctx, changes)
}

// push is a Push under way.
type push struct {
	Push
	Summary
	c    *client.Client
	root *os.Root
	mu   sync.Mutex // of Summary and Change
}

// count notes a change.
func (x *push) count(ch Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch ch.Op {
	case Add:
		x.Added++
	case Modify:
		x.Changed++
	case Remove:
		x.Deleted++
	}
	x.Change(ch)
}

// compare finds what is to be changed: first what is to be set, then what is to go, each in order.
func (x *push) compare(ctx context.Context, names []string) ([]Change, error) {
	there := map[string]client.Entry{}
	for e, err := range x.c.List(ctx, client.Listing{Prefix: x.Prefix, Timeout: x.Ask}) {
		if err != nil {
			return nil, fmt.Errorf("compare with the keys there are, before the first change: %w", err)
		}
		if !strings.HasPrefix(e.Key, systemKeys) {
			there[e.Key] = e
		}
	}
	found := make([]*Change, len(names))
	err := each(ctx, len(names), func(ctx context.Context, i int) (err error) {
		e, ok := there[x.Prefix+names[i]]
		found[i], err = x.compareOne(ctx, names[i], e, ok)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("compare with the keys there are, before the first change: %w", err)
	}
	var changes []Change
	for i, ch := range found {
		if delete(there, x.Prefix+names[i]); ch == nil {
			x.Same++
		} else {
			changes = append(changes, *ch)
		}
	}
	if x.Delete {
		for _, key := range slices.Sorted(maps.Keys(there)) {
			changes = append(changes, Change{Op: Remove, Key: key})
		}
	}
	return changes, nil
}

// compareOne returns nil where the key of name, of which e tells if there is one, is as the file.
func (x *push) compareOne(ctx context.Context, name string, e client.Entry, there bool) (*Change, error) {
	value, err := x.read(name)
	if err != nil {
		return nil, err
	}
	ch := &Change{Op: Add, Key: x.Prefix + name, File: name, Size: len(value)}
	show := x.DryRun && len(value) <= maxShown && e.Size <= maxShown
	if there {
		ch.Op = Modify
	}
	if there && (e.Size == len(value) || show) {
		ctx, cancel := context.WithTimeout(ctx, x.Ask)
		defer cancel()
		r, err := x.c.Get(ctx, ch.Key)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return nil, err
		}
		if err == nil && bytes.Equal(r.Value, value) {
			return nil, nil
		}
		ch.Old = r.Value
	}
	if ch.New = value; !show {
		ch.Old, ch.New = nil, nil
	}
	return ch, nil
}

// write does what changes say: it sets first, and when all that is done, it removes.
func (x *push) write(ctx context.Context, changes []Change) error {
	first := slices.IndexFunc(changes, func(ch Change) bool { return ch.Op == Remove })
	if first < 0 {
		first = len(changes)
	}
	if n := len(changes) - first; n > 0 && x.Confirm != nil {
		if err := x.Confirm(n); err != nil {
			return err
		}
	}
	for _, part := range [][]Change{changes[:first], changes[first:]} {
		err := each(ctx, len(part), func(ctx context.Context, i int) error { return x.writeOne(ctx, part[i]) })
		if err != nil {
			return fmt.Errorf("%w (%d of %d changes were made; run it again for the rest)", err, x.Added+x.Changed+x.Deleted, len(changes))
		}
	}
	return nil
}

func (x *push) writeOne(ctx context.Context, ch Change) error {
	ctx, cancel := context.WithTimeout(ctx, x.Ask)
	defer cancel()
	if ch.Op == Remove {
		if _, err := x.c.Delete(ctx, ch.Key); err != nil {
			return fmt.Errorf("delete %s: %w", ch.Key, err)
		}
		x.count(ch)
		return nil
	}
	value, err := x.read(ch.File)
	if err != nil {
		return err
	}
	if _, err := x.c.Set(ctx, ch.Key, value); err != nil {
		return fmt.Errorf("set %s: %w", ch.Key, err)
	}
	x.count(ch)
	return nil
}

// each calls f for 0 to n-1, several at a time, until one fails, and returns the
// errors, an unknown outcome first.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	var mu sync.Mutex
	var failed error
	next := 0
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && failed == nil
	}
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := f(ctx, i); err != nil {
					mu.Lock()
					if failed == nil || errors.Is(err, client.ErrUnknownOutcome) {
						failed = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}
