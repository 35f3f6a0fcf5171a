package snapshot

import (
	"slices"
	"strings"

	"gus/register"
)

// change is what a part of the log says of one key.
type change struct {
	place   string
	seq     register.Seq      // of the last of records
	records []register.Record // a full one at most, and that the first; then marks
}

// changes are what a part of the log says, by place.
type changes map[string]*change

// place is where a key stands in the table of current records: its partition
// and then the key.
func (c codec) place(key string) string {
	return string([]byte{byte(c.partition(key))}) + key
}

// split is the opposite of place.
func split(place string) (part int64, key []byte) {
	return int64(place[0]), []byte(place[1:])
}

// add adds a record of the key at place. It keeps r.
func (c changes) add(place string, seq register.Seq, r register.Record) {
	ch, ok := c[place]
	if !ok {
		ch = &change{place: place}
		c[place] = ch
	}
	ch.seq = seq
	if !r.IsMark() {
		ch.records = ch.records[:0]
	}
	ch.records = append(ch.records, r)
}

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
