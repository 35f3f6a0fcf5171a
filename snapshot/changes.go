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
	first := &ch.records[0]
	if first.IsMark() {
		for i := range ch.records {
			if mark := &ch.records[i]; isSettled(*mark) {
				ch.marked = mark.Mark
			}
		}
		return
	}
	if first.Cur.Tag != tag && isSettled(*first) { // with its marks
		settled := first.Cur
		ch.settled = &settled
	}
}

// isSettled says whether the write of a record, or the one that a mark means, will never be
// another.
func isSettled(r register.Record) bool { return r.Cur.Decided || r.Readable }

// inOrder returns the changes by place.
func (c changes) inOrder() []*change {
	list := c.byPartition()
	for p := (&pass{changes: list}); p.ordered < len(list); {
		p.order(p.ordered)
	}
	return list
}

// byPartition returns the changes partition by partition. Within one they are not in order yet.
func (c changes) byPartition() []*change {
	var next [register.Partitions]int
	for place := range c {
		next[place[0]]++
	}
	begin := 0
	for i, n := range next {
		next[i], begin = begin, begin+n
	}
	list := make([]*change, len(c))
	for place, ch := range c {
		list[next[place[0]]] = ch
		next[place[0]]++
	}
	return list
}

// order puts the changes of the partition that begins at i in order, unless they are. One after
// the other as their turns come: a save that waits does not wait for all.
func (p *pass) order(i int) {
	if i < p.ordered {
		return
	}
	part := p.changes[i:]
	n := slices.IndexFunc(part, func(c *change) bool { return c.place[0] != part[0].place[0] })
	if n < 0 {
		n = len(part)
	}
	slices.SortFunc(part[:n], func(a, b *change) int { return strings.Compare(a.place, b.place) })
	p.ordered = i + n
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
