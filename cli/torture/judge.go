//go:build unix

package torture

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"gus/register"
	"gus/register/sim"
)

// sampled is how many keys of a window are judged by search as well.
const sampled = 200

// judge judges a window's history, that begins with what was carried over, and
// its local reads. These are under way all the time, which is too much for a search.
func judge(h, locals sim.History, rng *rand.Rand) error {
	if err := slices.Concat(h, locals).Check(); err != nil {
		return err
	}
	return sample(h, rng).Linearizable()
}

// sample returns the operations on some of the keys, and all listings.
func sample(h sim.History, rng *rand.Rand) sim.History {
	all := map[string]bool{}
	for _, o := range h {
		if o.Kind != sim.List {
			all[o.Key] = true
		}
	}
	keys := slices.Sorted(maps.Keys(all))
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	chosen := map[string]bool{}
	for _, k := range keys[:min(sampled, len(keys))] {
		chosen[k] = true
	}
	var some sim.History
	for _, o := range h {
		if o.Kind == sim.List || chosen[o.Key] {
			some = append(some, o)
		}
	}
	return some
}

// state is what all sites agreed a key to be at the end of a window.
type state struct {
	tag   register.Tag
	found bool
	value string
}

// carried is what a window hands on to the next.
type carried struct {
	states map[string]state       // of the keys that are used again
	open   map[string]sim.History // their writes of unknown outcome which nobody has seen: they may still take effect
}

// keys returns those that begin with prefix, in order.
func (c *carried) keys(prefix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.states)), func(k string) bool { return !strings.HasPrefix(k, prefix) })
}

// carry returns what to carry of keys, after the history h that ended in states.
func carry(h sim.History, states map[string]state, keys []string) *carried {
	c := &carried{states: map[string]state{}, open: map[string]sim.History{}}
	seen := map[string]bool{}
	for _, o := range h {
		if o.Kind == sim.Get && o.Fate == sim.Done {
			seen[o.Value] = true
		}
	}
	for _, k := range keys {
		c.states[k] = states[k]
	}
	for _, o := range h {
		_, ok := c.states[o.Key]
		if !ok || o.Fate != sim.Unknown || o.Kind != sim.Set && o.Kind != sim.Delete || o.Kind == sim.Set && seen[o.Value] {
			continue
		}
		c.open[o.Key] = append(c.open[o.Key], o)
	}
	return c
}

// begin returns the begin of the next window's history: each carried state as a
// write that is complete, before all else, and the open writes.
func (c *carried) begin(watch *stopwatch) sim.History {
	var h sim.History
	for _, k := range slices.Sorted(maps.Keys(c.states)) {
		s := c.states[k]
		if !s.tag.IsZero() {
			o := &sim.Operation{Voter: s.tag.Owner, Key: k, Kind: sim.Delete, Fate: sim.Done, Tag: s.tag, Call: watch.now(), Return: watch.now()}
			if s.found {
				o.Kind, o.Value = sim.Set, s.value
			}
			h = append(h, o)
		}
		h = append(h, c.open[k]...)
	}
	return h
}

// agreed returns the state of each key that the reads of several sites, at
// rest, showed; an error, where they showed different ones.
func agreed(reads sim.History) (map[string]state, error) {
	states := map[string]state{}
	by := map[string]*sim.Operation{}
	for _, o := range reads {
		s := state{o.Tag, o.Found, o.Value}
		if p := by[o.Key]; p != nil && states[o.Key] != s {
			return nil, fmt.Errorf("the sites do not agree at rest: %v; %v", p, o)
		}
		states[o.Key], by[o.Key] = s, o
	}
	return states, nil
}

// ledger has the last version of each key of the windows that are over.
type ledger map[string]state

// note takes in states, without their values.
func (l ledger) note(states map[string]state) {
	for k, s := range states {
		l[k] = state{tag: s.tag, found: s.found}
	}
}

// compare holds a listing of all keys against the ledger.
func (l ledger) compare(site string, entries []register.Entry) error {
	shown := map[string]register.Tag{}
	for _, e := range entries {
		shown[e.Key] = e.Tag
	}
	for _, k := range slices.Sorted(maps.Keys(l)) {
		tag, ok := shown[k]
		switch s := l[k]; {
		case s.found && !ok:
			return fmt.Errorf("the last listing at %s does not show the key %s, which had the version %v when its window ended", site, k, s.tag)
		case ok && !s.found:
			return fmt.Errorf("the last listing at %s shows the key %s with the version %v; it had no value, version %v, when its window ended", site, k, tag, s.tag)
		case ok && tag != s.tag:
			return fmt.Errorf("the last listing at %s shows the key %s with the version %v; it had %v when its window ended", site, k, tag, s.tag)
		}
		delete(shown, k)
	}
	for _, k := range slices.Sorted(maps.Keys(shown)) {
		return fmt.Errorf("the last listing at %s shows the key %s with the version %v, which no window used", site, k, shown[k])
	}
	return nil
}
