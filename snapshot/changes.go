package snapshot

import (
	"slices"
	"strings"

	"gus/register"
)

// change is what a part of the log says of one key.
type change struct {
	*spot
	records []register.Record // a full one, with the marks on it; or marks alone
	one     [1]register.Record

	// What was settled and then replaced: a write, or else the tag of one that stands in the
	// older record, which marks have settled.
	settled *register.Write
	marked  register.Tag
}

// spot is what outlives a change: where it is, and the last save that has made it.
// But for its place it is the writer's.
type spot struct {
	place string
	seq   register.Seq
	full  bool // there was more than marks
}

// changes are what a part of the log says, by place.
type changes map[string]*change

// placeOf is where a key stands in the table of current records.
func placeOf(key string) string { return place(int64(register.Partition(key)), key) }

// place is the partition, one byte, and then the key: ordered as the table is.
func place[K string | []byte](part int64, key K) string {
	return string([]byte{byte(part)}) + string(key)
}

// split is the opposite of place.
func split(place string) (part int64, key []byte) {
	return int64(place[0]), append([]byte{}, place[1:]...) // not nil: that would be NULL
}

// add adds a record of the key at place, and returns its spot. It keeps r.
func (c changes) add(place string, r register.Record) *spot {
	ch, ok := c[place]
	if !ok {
		ch = &change{spot: &spot{place: place}}
		ch.records = ch.one[:0]
		c[place] = ch
	}
	switch {
	case !r.IsMark():
		ch.replaced(r.Cur.Tag)
		ch.records = append(ch.records[:0], r)
	case len(ch.records) == 1 && !ch.records[0].IsMark():
		ch.records[0] = register.Fold(ch.records[0], r) // its fields, and nothing that they point to
	default:
		ch.records = append(ch.records, r)
	}
	return ch.spot
}

// replaced takes note of what is settled of the records so far, which one of that tag
// replaces.
func (ch *change) replaced(tag register.Tag) {
	if len(ch.records) == 0 {
		return
	}
	first := ch.records[0]
	if first.IsMark() {
		for _, mark := range ch.records {
			if isSettled(mark) {
				ch.marked = mark.Mark
			}
		}
		return
	}
	if first.Cur.Tag == tag {
		return
	}
	if isSettled(first) { // with its marks
		ch.settled = &first.Cur
	}
}

// isSettled says whether the write of a record, or the one that a mark means, will never be
// another.
func isSettled(r register.Record) bool { return r.Cur.Decided || r.Readable }

// inOrder returns the changes by place.
func (c changes) inOrder() []*change {
	list := make([]*change, 0, len(c))
	for _, ch := range c {
		list = append(list, ch)
	}
	slices.SortFunc(list, func(a, b *change) int { return strings.Compare(a.place, b.place) })
	return list
}

// foldOver returns what the change leaves behind of the older record, if there
// is one. The records of a change are still the replica's to read, so it must
// not write to what they point to, as register.Fold does.
func (ch *change) foldOver(older register.Record) register.Record {
	r := older
	for _, newer := range ch.records {
		r = register.Fold(r, newer)
		if !newer.IsMark() {
			r.Recs = slices.Clone(r.Recs)
		}
	}
	return r
}
