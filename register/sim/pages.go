package sim

import (
	"cmp"
	"fmt"
	"slices"

	"gus/register"
)

// A page is judged as many reads: of each key that it covers, all from its
// begin to its end. What it shows is a read of that version; what it does not
// show, a read of some deletion or of "absent". So byKey gives them, and from
// there on listings have no rules of their own.

// reads returns what the List o, which is Done, says of key as a Get, or nil
// where it says nothing.
func (o *Operation) reads(key string) *Operation {
	if !o.Page.covers(key) {
		return nil
	}
	g := &Operation{ID: o.ID, Voter: o.Voter, Key: key, Kind: Get, Fate: Done, Call: o.Call, Return: o.Return, page: true}
	i, found := slices.BinarySearchFunc(o.Page.Entries, key, func(e register.Entry, key string) int { return cmp.Compare(e.Key, key) })
	if found {
		e := o.Page.Entries[i]
		g.Found, g.Tag, g.size = true, e.Tag, e.Size
	}
	return g
}

// checkPages holds each page against what it was asked for: existing keys, in
// order, once each, and no more than it covers.
func (h History) checkPages() error {
	written := map[string]bool{}
	for _, o := range h {
		written[o.Key] = written[o.Key] || o.Kind == Set
	}
	for _, o := range h {
		if o.Kind != List || o.Fate != Done {
			continue
		}
		p := o.Page
		if p.Next != "" && p.Next <= p.After {
			return fmt.Errorf("a page that does not get on: %v", o)
		}
		last := ""
		for _, e := range p.Entries {
			switch {
			case e.Key <= last:
				return fmt.Errorf("a page out of order: %v", o)
			case !p.covers(e.Key):
				return fmt.Errorf("a page shows the key %s, which is beyond it: %v", e.Key, o)
			case e.Deleted || e.Tag.IsZero() || !written[e.Key]:
				return fmt.Errorf("a page shows the key %s, which nobody wrote: %v", e.Key, o)
			}
			last = e.Key
		}
	}
	return nil
}

// placeAbsences gives each read of a page that did not find the key the lowest
// version that it can have seen: of all choices this one asks least of later
// reads. Where it can have seen a deletion that nobody else saw, it says
// nothing.
func (ops History) placeAbsences() error {
	deletions, hidden := ops.deletions()
	var newest register.Tag // of what was complete before
	for _, m := range ops.moments() {
		o := m.op
		if m.at != o.Call {
			newest = later(newest, o.Tag)
			continue
		}
		if !o.page || o.Found {
			continue
		}
		i, exact := slices.BinarySearchFunc(deletions, newest, func(d deletion, t register.Tag) int { return compareTags(d.tag, t) })
		if !exact && hidden < o.Return {
			o.Fate = Unknown
			continue
		}
		for i < len(deletions) && deletions[i].call > o.Return {
			i++
		}
		if i == len(deletions) {
			return fmt.Errorf("a key is not shown: %v; version %v was complete before, and no deletion above it", o, newest)
		}
		o.Tag = deletions[i].tag
	}
	return nil
}

// deletion is a version without a value, and when the first one who can have
// written it began.
type deletion struct {
	tag  register.Tag
	call int64
}

// deletions returns the versions that are known to have no value, in order;
// and when the first deletion began that may have a version nobody has seen
// (the end of time, if there is none).
func (ops History) deletions() (known []deletion, hidden int64) {
	calls := map[register.Tag]int64{{}: 0}
	unseen := map[register.Voter]History{} // deletions of unknown outcome
	for _, o := range ops {
		switch {
		case o.Kind != Delete || o.Fate == Never:
		case o.Fate == Done:
			if c, ok := calls[o.Tag]; !ok || o.Call < c {
				calls[o.Tag] = o.Call
			}
		default:
			unseen[o.Voter] = append(unseen[o.Voter], o)
		}
	}
	seen := map[register.Voter]int{}
	for _, o := range ops {
		if o.Kind != Get || o.Fate != Done || o.page || o.Found {
			continue
		}
		if _, ok := calls[o.Tag]; !ok && len(unseen[o.Tag.Owner]) > 0 {
			calls[o.Tag] = unseen[o.Tag.Owner][0].Call
			seen[o.Tag.Owner]++
		}
	}
	hidden = endOfTime
	for v, of := range unseen {
		if len(of) > seen[v] {
			hidden = min(hidden, of[0].Call)
		}
	}
	for t, c := range calls {
		known = append(known, deletion{t, c})
	}
	slices.SortFunc(known, func(a, b deletion) int { return compareTags(a.tag, b.tag) })
	return known, hidden
}

// checkShown holds the versions that pages show against what is known of them
// otherwise: a read of the same one, or who can have written it.
func (ops History) checkShown() error {
	read, written := map[register.Tag]*Operation{}, map[register.Tag]History{}
	unknown := map[register.Voter]History{}
	for _, o := range ops {
		switch {
		case o.Fate == Done && o.Kind == Get && !o.page:
			read[o.Tag] = o
		case o.Fate == Done && o.writes():
			written[o.Tag] = append(written[o.Tag], o)
		case o.Fate != Never && o.Kind == Set:
			unknown[o.Voter] = append(unknown[o.Voter], o)
		}
	}
	for _, o := range ops {
		if !o.page || !o.Found {
			continue
		}
		writers := append(written[o.Tag][:len(written[o.Tag]):len(written[o.Tag])], unknown[o.Tag.Owner]...)
		fits := func(w *Operation) bool { return w.Kind == Set && len(w.Value) == o.size && wrote(w, o) }
		switch g := read[o.Tag]; {
		case g != nil && (!g.Found || len(g.Value) != o.size):
			return fmt.Errorf("one version, two values: %v, of %d bytes, %v", o, o.size, g)
		case !slices.ContainsFunc(writers, fits):
			return fmt.Errorf("nobody can have written what was shown: %v, of %d bytes", o, o.size)
		}
	}
	return nil
}

// recall fills in the values of what pages showed, as far as others read the
// same versions.
func (ops History) recall() {
	values := map[register.Tag]string{}
	for _, o := range ops {
		if o.Kind == Get && o.Fate == Done && !o.page && o.Found {
			values[o.Tag] = o.Value
		}
	}
	for _, o := range ops {
		if v, ok := values[o.Tag]; o.page && o.Found && ok {
			o.page, o.Value = false, v
		}
	}
}

func later(a, b register.Tag) register.Tag {
	if a.Less(b) {
		return b
	}
	return a
}

func compareTags(a, b register.Tag) int {
	return cmp.Or(cmp.Compare(a.TS, b.TS), cmp.Compare(a.Owner, b.Owner))
}
