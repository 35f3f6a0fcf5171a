package register

import (
	"slices"
	"strings"
)

// loaded is the registers made of a store's records. A store has the most of
// them in the order of their keys, partition by partition: such a one needs no
// look whether it is there already, and no sorting.
type loaded struct {
	runs [Partitions][]*register // the last one is above all of the partition, those of rest included
	rest []*register             // what came in another order
}

func newLoaded(keys int) *loaded {
	l := &loaded{}
	for p := range l.runs {
		l.runs[p] = make([]*register, 0, max(0, keys)/Partitions)
	}
	return l
}

// add adds g where its key is above all before it of its partition, and so is
// new. Otherwise it returns false.
func (l *loaded) add(g *register) bool {
	run := &l.runs[Partition(g.key)]
	if n := len(*run); n > 0 && (*run)[n-1].key >= g.key {
		return false
	}
	*run = append(*run, g)
	return true
}

// inOrder returns all registers in the order of their keys.
func (l *loaded) inOrder() []*register {
	slices.SortFunc(l.rest, func(a, b *register) int { return strings.Compare(a.key, b.key) })
	return merged(append(l.runs[:], l.rest))
}

// merged returns all of runs, each of which is in the order of keys, in that
// order.
func merged(runs [][]*register) []*register {
	if len(runs) == 1 {
		return runs[0]
	}
	a, b := merged(runs[:len(runs)/2]), merged(runs[len(runs)/2:])
	all := make([]*register, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].key < b[0].key {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}
