//go:build unix

package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gus/agent/client"
	"gus/register"
	"gus/register/sim"
)

// stopwatch tells the time of one run in nanoseconds, each reading once: the
// judges want all moments of a history to differ.
type stopwatch struct {
	began time.Time
	last  atomic.Int64
}

func (s *stopwatch) now() int64 {
	for {
		last := s.last.Load()
		t := max(int64(time.Since(s.began)), last+1)
		if s.last.CompareAndSwap(last, t) {
			return t
		}
	}
}

// caller runs operations at one site and notes what became of them. One
// goroutine uses it.
type caller struct {
	watch  *stopwatch
	site   register.Voter
	client *client.Client
	ops    sim.History // in the order of their calls; Return is set of all, when the client heard of it
	locals sim.History // local reads
	begun  int64       // when local reads are taken to have begun
	odd    *oddities
}

// get reads a key. The operation is Done where there was an answer, be it that
// there is no such key.
func (c *caller) get(ctx context.Context, key string) (*sim.Operation, error) {
	o := &sim.Operation{Kind: sim.Get, Key: key}
	c.begin(o)
	r, err := c.client.Get(ctx, key)
	c.end(o, r, err)
	return o, err
}

func (c *caller) set(ctx context.Context, key, value string) (*sim.Operation, error) {
	o := &sim.Operation{Kind: sim.Set, Key: key, Value: value}
	c.begin(o)
	r, err := c.client.Set(ctx, key, []byte(value))
	c.end(o, r, err)
	return o, err
}

func (c *caller) delete(ctx context.Context, key string) (*sim.Operation, error) {
	o := &sim.Operation{Kind: sim.Delete, Key: key}
	c.begin(o)
	r, err := c.client.Delete(ctx, key)
	c.end(o, r, err)
	return o, err
}

// list lists all keys with a prefix. It is judged as one page, however many the
// agent made of it: each key was read between the begin and the end.
func (c *caller) list(ctx context.Context, prefix string, timeout time.Duration) (*sim.Operation, error) {
	o := &sim.Operation{Kind: sim.List, Page: &sim.Page{Prefix: prefix}}
	c.begin(o)
	entries, err := listed(c.client.List(ctx, client.Listing{Prefix: prefix, Timeout: timeout}))
	o.Page.Entries = entries
	c.end(o, client.Result{}, err)
	return o, err
}

// listed takes a listing in.
func listed(entries func(func(client.Entry, error) bool)) ([]register.Entry, error) {
	var all []register.Entry
	for e, err := range entries {
		if err != nil {
			return nil, err
		}
		tag, err := tagOf(e.Version)
		if err != nil {
			return nil, err
		}
		all = append(all, register.Entry{Key: strings.Clone(e.Key), Tag: tag, Size: e.Size, Aside: e.Newer})
	}
	return all, nil
}

// local reads what the site knows of a key without asking. It may be as old as
// the window, but not so new that a later read elsewhere may show less: what
// is shown is settled. For the judge it is a read that began with the window.
func (c *caller) local(ctx context.Context, key string) error {
	o := &sim.Operation{Voter: c.site, Kind: sim.Get, Key: key, Call: c.begun}
	r, err := c.client.GetLocal(ctx, key)
	c.end(o, r, err)
	if o.Fate == sim.Done {
		c.locals = append(c.locals, o)
		return nil
	}
	return err
}

func (c *caller) begin(o *sim.Operation) {
	o.Voter = c.site
	c.ops = append(c.ops, o)
	o.Call = c.watch.now()
}

// end notes what the client heard.
func (c *caller) end(o *sim.Operation, r client.Result, err error) {
	o.Return = c.watch.now()
	o.RoundTrips = r.RoundTrips
	o.Fate = fateOf(o, err)
	if o.Fate != sim.Done {
		c.odd.note(err)
		return
	}
	tag, bad := tagOf(r.Version)
	if bad != nil {
		c.odd.fail(fmt.Errorf("%v: %w", o, bad))
	}
	o.Tag = tag
	if o.Kind == sim.Get && err == nil {
		o.Value, o.Found = string(r.Value), true
	}
}

// fateOf holds the agent to its word: of a write only ErrUnknownOutcome leaves
// open whether it took effect. What a failed read would have shown is unknown.
func fateOf(o *sim.Operation, err error) sim.Fate {
	switch {
	case err == nil, o.Kind == sim.Get && errors.Is(err, client.ErrNotFound):
		return sim.Done
	case o.Kind == sim.Get, o.Kind == sim.List, errors.Is(err, client.ErrUnknownOutcome):
		return sim.Unknown
	}
	return sim.Never
}

// tagOf reads a version; an empty one is that of a key never written.
func tagOf(v client.Version) (register.Tag, error) {
	if v == "" {
		return register.Tag{}, nil
	}
	return register.ParseTag(string(v))
}

// locals returns the local reads of all callers.
func locals(callers []*caller) (all sim.History) {
	for _, c := range callers {
		all = append(all, c.locals...)
	}
	return all
}

// merge returns the operations of all callers in the order of their calls.
func merge(callers []*caller) sim.History {
	var all sim.History
	for _, c := range callers {
		all = append(all, c.ops...)
	}
	slices.SortFunc(all, func(a, b *sim.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return all
}

// number gives the operations of a history their numbers in it.
func number(h sim.History) {
	for i, o := range h {
		o.ID = register.Op(i + 1)
	}
}

// oddities are errors that no sentinel stands for: nobody promised them.
type oddities struct {
	mu   sync.Mutex
	seen map[string]int // the first few kinds
	bad  error          // an answer that cannot be
}

// maxOddities bounds the texts that are kept.
const maxOddities = 20

// expected are what operations may fail with while there are faults.
var expected = []error{
	client.ErrNoQuorum, client.ErrNotSent, client.ErrNotSaved, client.ErrUnknownOutcome,
	client.ErrNotRunning, client.ErrStopping, context.DeadlineExceeded,
}

func (o *oddities) note(err error) {
	if slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.seen[err.Error()]; ok || len(o.seen) < maxOddities {
		o.seen[err.Error()]++
	}
}

func (o *oddities) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bad = cmp.Or(o.bad, err)
}
