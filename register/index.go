package register

import (
	"slices"
	"strings"
)

// index has the registers in the order of their keys, for LIST: chunks of so
// many that an insertion moves little.
type index struct {
	chunks [][]*register
}

const chunkSize = 512

// find returns the chunk that key belongs in, and its place there.
func (x *index) find(key string) (chunk, at int, found bool) {
	chunk, _ = slices.BinarySearchFunc(x.chunks, key, func(c []*register, key string) int {
		return strings.Compare(c[len(c)-1].key, key)
	})
	if chunk == len(x.chunks) {
		return chunk, 0, false
	}
	at, found = slices.BinarySearchFunc(x.chunks[chunk], key, func(g *register, key string) int {
		return strings.Compare(g.key, key)
	})
	return chunk, at, found
}

func (x *index) insert(g *register) {
	c, at, found := x.find(g.key)
	must(!found, "a key is indexed once")
	if c == len(x.chunks) { // above all others
		if c > 0 && len(x.chunks[c-1]) < chunkSize {
			x.chunks[c-1] = append(x.chunks[c-1], g)
			return
		}
		x.chunks = append(x.chunks, []*register{g})
		return
	}
	if chunk := x.chunks[c]; len(chunk) == chunkSize {
		x.chunks[c] = slices.Clone(chunk[:chunkSize/2])
		x.chunks = slices.Insert(x.chunks, c+1, slices.Clone(chunk[chunkSize/2:]))
		if at > chunkSize/2 {
			c, at = c+1, at-chunkSize/2
		}
	}
	x.chunks[c] = slices.Insert(x.chunks[c], at, g)
}

// fill makes the empty index one of all registers, which are in the order of
// their keys: for a million of them that is many times as fast as inserting them.
func (x *index) fill(all []*register) {
	must(len(x.chunks) == 0, "an index is filled while it is empty")
	for chunk := range slices.Chunk(all, chunkSize/2) {
		x.chunks = append(x.chunks, slices.Clone(chunk))
	}
}

func (x *index) remove(key string) {
	c, at, found := x.find(key)
	must(found, "what is removed was indexed")
	x.chunks[c] = slices.Delete(x.chunks[c], at, at+1)
	if len(x.chunks[c]) == 0 {
		x.chunks = slices.Delete(x.chunks, c, c+1)
	}
}

// after yields the registers whose keys are above key, in order.
func (x *index) after(key string) func(yield func(*register) bool) {
	return func(yield func(*register) bool) {
		c, at, found := x.find(key)
		if found {
			at++
		}
		for ; c < len(x.chunks); c, at = c+1, 0 {
			for _, g := range x.chunks[c][at:] {
				if !yield(g) {
					return
				}
			}
		}
	}
}
