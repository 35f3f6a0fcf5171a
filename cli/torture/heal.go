//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gus/agent/client"
	"gus/register"
	"gus/register/sim"
)

// heal waits until the cluster, left alone, is at rest, and lets all sites read
// all keys of the window. It returns these operations, and what the keys came
// to; an error, where it does not heal or the sites do not agree.
func (w *world) heal(ctx context.Context) (sim.History, map[string]state, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var callers []*caller
	for _, s := range w.sites {
		c := w.caller(s)
		callers = append(callers, &c)
	}
	if err := w.everywhere(func(i int, s *site) error { return probe(ctx, callers[i], probeKey(w.window, s)) }); err != nil {
		return merge(callers), nil, err
	}
	if err := w.rest(ctx); err != nil {
		return merge(callers), nil, err
	}
	w.report.heal = max(w.report.heal, time.Since(began))
	readers, err := w.readAll(ctx, w.keys())
	ops := merge(append(callers, readers...))
	number(ops)
	if err != nil {
		return ops, nil, err
	}
	states, err := agreed(merge(readers))
	if err == nil {
		err = w.rest(ctx) // reads had to repair nothing
	}
	if err == nil && w.opts.agree {
		err = w.await(ctx, func() error {
			return w.everywhere(func(_ int, s *site) error { return errors.Join(agree(ctx, s, states), compare(ctx, s)) })
		})
		w.report.caughtUp = max(w.report.caughtUp, time.Since(began))
	}
	return ops, states, err
}

// everywhere does f at all sites at a time.
func (w *world) everywhere(f func(i int, s *site) error) error {
	errs := make([]error, len(w.sites))
	var wg sync.WaitGroup
	for i, s := range w.sites {
		wg.Go(func() { errs[i] = f(i, s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// await tries f until it succeeds or ctx ends.
func (w *world) await(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		sleep(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("not healed, %v after the last fault: %w", deadline, err)
		}
	}
}

// probe sets and gets a key until both have succeeded.
func probe(ctx context.Context, c *caller, key string) error {
	var err error
	for n := 0; ; n++ {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		var o *sim.Operation
		if _, err = c.set(try, key, fmt.Sprintf("probe %d of %s", n, key)); err == nil {
			o, err = c.get(try, key)
		}
		cancel()
		if err == nil || o != nil && o.Fate == sim.Done {
			return nil
		}
		sleep(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("not healed, %v after the last fault: voter %d answers no sets and gets: %w", deadline, c.site, err)
		}
	}
}

// rest waits until no site has anything left to do.
func (w *world) rest(ctx context.Context) error {
	return w.await(ctx, func() error {
		return w.everywhere(func(_ int, s *site) error {
			st, err := s.client.Status(ctx)
			if err != nil {
				return fmt.Errorf("ask site %s: %w", s.name, err)
			}
			return atRest(st)
		})
	})
}

// atRest says what a site that is left alone still has to do.
func atRest(st client.Status) error {
	switch {
	case st.Quorum.Reached != st.Quorum.Voters:
		return fmt.Errorf("site %s reaches %d of %d voters", st.Site, st.Quorum.Reached, st.Quorum.Voters)
	case !st.Voting.OK:
		return fmt.Errorf("site %s does not vote yet: it awaits %v", st.Site, st.Voting.Awaits)
	case st.SaveError != "":
		return fmt.Errorf("site %s cannot save: %s", st.Site, st.SaveError)
	case st.Writes+st.Reads+st.Waiting > 0:
		return fmt.Errorf("site %s has %d writes and %d reads under way, and %d writes wait", st.Site, st.Writes, st.Reads, st.Waiting)
	case st.Disagreements.Count > 0:
		return fmt.Errorf("site %s disagrees with others on %d keys: %+v", st.Site, st.Disagreements.Count, st.Disagreements.Keys)
	case st.Unsettled > 0:
		return fmt.Errorf("site %s has %d keys not settled", st.Site, st.Unsettled)
	}
	return nil
}

// readers is how many keys a site reads at a time when all are read.
const readers = 8

// readAll lets all sites get all keys, each until it succeeds.
func (w *world) readAll(ctx context.Context, keys []string) ([]*caller, error) {
	all := make([]*caller, len(w.sites)*readers)
	err := w.everywhere(func(i int, s *site) error {
		errs := make([]error, readers)
		var wg sync.WaitGroup
		for j := range readers {
			c := w.caller(s)
			all[i*readers+j] = &c
			wg.Go(func() {
				for k := j; k < len(keys) && errs[j] == nil; k += readers {
					errs[j] = w.read(ctx, &c, keys[k])
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	return all, err
}

// read gets a key until that succeeds. Of attempts that fail nothing is kept:
// they say nothing.
func (w *world) read(ctx context.Context, c *caller, key string) error {
	return w.await(ctx, func() error {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		o, err := c.get(try, key)
		if o.Fate == sim.Done {
			return nil
		}
		c.ops = c.ops[:len(c.ops)-1]
		return fmt.Errorf("get %s at voter %d: %w", key, c.site, err)
	})
}

// agree says where what a site knows without asking differs from what all sites
// agreed the keys to be.
func agree(ctx context.Context, s *site, states map[string]state) error {
	for key, want := range states {
		r, err := s.client.GetLocal(ctx, key)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return fmt.Errorf("get --local %s at %s: %w", key, s.name, err)
		}
		tag, bad := tagOf(r.Version)
		if got := (state{tag, err == nil, string(r.Value)}); bad != nil || got != want {
			return fmt.Errorf("site %s has %v of %s (found: %v), all agree on %v (found: %v)", s.name, tag, key, got.found, want.tag, want.found)
		}
	}
	entries, err := listed(s.client.List(ctx, client.Listing{Local: true}))
	if err != nil {
		return fmt.Errorf("list --local at %s: %w", s.name, err)
	}
	shown := map[string]register.Tag{}
	for _, e := range entries {
		shown[e.Key] = e.Tag
	}
	for key, want := range states {
		if tag, ok := shown[key]; ok != want.found || ok && tag != want.tag {
			return fmt.Errorf("list --local at %s shows %v of %s (found: %v), all agree on %v (found: %v)", s.name, tag, key, ok, want.tag, want.found)
		}
	}
	return nil
}

// compare lets s compare all that it holds with the other sites, keys of windows
// long past included.
func compare(ctx context.Context, s *site) error {
	v, err := s.client.Verify(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("verify at %s: %w", s.name, err)
	case len(v.NotCompared) > 0:
		return fmt.Errorf("verify at %s: not compared: %+v", s.name, v.NotCompared)
	case len(v.Differ) > 0:
		return fmt.Errorf("verify at %s: it differs in %d keys, the first: %+v", s.name, len(v.Differ)+v.More, v.Differ[0])
	}
	return nil
}

// lastListing lists all keys at all sites and holds them against the ledger.
func (w *world) lastListing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return w.everywhere(func(_ int, s *site) error {
		var entries []register.Entry
		err := w.await(ctx, func() (err error) {
			entries, err = listed(s.client.List(ctx, client.Listing{}))
			return err
		})
		if err != nil {
			return fmt.Errorf("list all keys at %s: %w", s.name, err)
		}
		return w.ledger.compare(s.name, entries)
	})
}
