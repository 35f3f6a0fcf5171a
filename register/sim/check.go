package sim

import (
	"cmp"
	"fmt"
	"slices"

	"gus/register"
)

// Check judges a history of any length by its versions, key by key, in about
// linear time:
//
//   - an operation that begins after another has ended has a version not below
//     that one's, and strictly above it if it writes;
//   - a version has one value, and a value one version: a write is seen under
//     one tag only, the one that its result gives where there is a result;
//   - what is read was written before, at the voter that owns the version, by
//     a write that nobody was told never happened;
//   - writes of one version were coalesced: at one voter, all at once;
//   - a page of keys has all this for each key that it covers.
//
// Any history with these properties is linearizable, in the order of its
// versions. It returns nil, or what is wrong first.
func (h History) Check() error {
	if err := h.checkPages(); err != nil {
		return err
	}
	for _, ops := range h.byKey() {
		if err := ops.placeAbsences(); err != nil {
			return err
		}
		if err := checkOrder(ops); err != nil {
			return err
		}
		if err := checkWrites(ops); err != nil {
			return err
		}
		if err := checkReads(ops); err != nil {
			return err
		}
		if err := ops.checkShown(); err != nil {
			return err
		}
	}
	return nil
}

// byKey returns the operations of each key, in their order, with what pages
// say of it.
func (h History) byKey() []History {
	var keys []string
	byKey := map[string]History{}
	for _, o := range h {
		if o.Kind != List && byKey[o.Key] == nil {
			keys = append(keys, o.Key)
			byKey[o.Key] = History{}
		}
	}
	for _, o := range h {
		switch {
		case o.Kind != List:
			byKey[o.Key] = append(byKey[o.Key], o)
		case o.Fate == Done:
			for _, k := range keys {
				if g := o.reads(k); g != nil {
					byKey[k] = append(byKey[k], g)
				}
			}
		}
	}
	out := make([]History, len(keys))
	for i, k := range keys {
		out[i] = byKey[k]
	}
	return out
}

// moment is the begin or the end of an operation that is Done.
type moment struct {
	at int64
	op *Operation
}

// moments returns those of ops, in order.
func (ops History) moments() []moment {
	var moments []moment
	for _, o := range ops {
		if o.Fate == Done {
			moments = append(moments, moment{o.Call, o}, moment{o.Return, o})
		}
	}
	slices.SortFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return moments
}

// checkOrder holds versions against real time.
func checkOrder(ops History) error {
	var newest *Operation // of the complete ones, by version
	before := map[*Operation]*Operation{}
	for _, m := range ops.moments() {
		o := m.op
		if m.at == o.Call {
			before[o] = newest
			continue
		}
		if b := before[o]; b != nil && (o.Tag.Less(b.Tag) || o.Kind != Get && o.Tag == b.Tag) {
			return fmt.Errorf("out of order: %v; it began after the end of %v", o, b)
		}
		if newest == nil || newest.Tag.Less(o.Tag) {
			newest = o
		}
	}
	return nil
}

// checkWrites holds the versions of complete writes against each other.
func checkWrites(ops History) error {
	byTag := map[register.Tag]*Operation{}
	for _, o := range ops {
		if o.Fate != Done || o.Kind == Get {
			continue
		}
		if o.Tag.Owner != o.Voter {
			return fmt.Errorf("a version of another voter's: %v", o)
		}
		if p := byTag[o.Tag]; p != nil && (p.Return < o.Call || o.Return < p.Call) {
			return fmt.Errorf("two writes of one version, not at one time: %v, %v", p, o)
		}
		byTag[o.Tag] = o
	}
	return nil
}

// checkReads holds what was read against what was written.
func checkReads(ops History) error {
	values := map[string]*Operation{} // who wrote a value that is its own
	var same History                  // writes of no value, or of the empty one
	for _, o := range ops {
		switch {
		case o.Kind == Get || o.Fate == Never:
		case o.Value == "":
			same = append(same, o)
		default:
			values[o.Value] = o
		}
	}
	reads := map[register.Tag]*Operation{}
	shown := map[string]*Operation{}
	for _, o := range ops {
		if o.Kind != Get || o.Fate != Done || o.page {
			continue
		}
		if p := reads[o.Tag]; p != nil && (p.Found != o.Found || p.Value != o.Value) {
			return fmt.Errorf("one version, two values: %v, %v", p, o)
		}
		reads[o.Tag] = o
		if o.Value == "" {
			if !writtenBy(same, o) {
				return fmt.Errorf("nobody can have written what was read: %v", o)
			}
			continue
		}
		if p := shown[o.Value]; p != nil && p.Tag != o.Tag {
			return fmt.Errorf("a write is seen under two versions: %v, %v", p, o)
		}
		shown[o.Value] = o
		if w := values[o.Value]; w == nil || !wrote(w, o) {
			return fmt.Errorf("nobody can have written what was read: %v, written by %v", o, w)
		}
	}
	return nil
}

// wrote says whether read can have returned the value that w wrote.
func wrote(w, read *Operation) bool {
	return w.Voter == read.Tag.Owner && w.Call < read.Return && (w.Fate != Done || w.Tag == read.Tag)
}

func writtenBy(same History, read *Operation) bool {
	if read.Tag.IsZero() {
		return !read.Found
	}
	for _, w := range same {
		if (w.Kind == Set) == read.Found && wrote(w, read) {
			return true
		}
	}
	return false
}
