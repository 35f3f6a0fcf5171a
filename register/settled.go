package register

import "iter"

// News is a write that has come to be known as settled here. It never changes
// any more, and what it points to is to be read only.
type News struct {
	Key  string
	Held bool // a read quorum is known to have accepted it
	Write
}

// fresh is news that waits for its write to be durable here. Of a register there is one
// such for each save that something waits for, the newest of it: all of that save is to
// be told with it, for the next save may never be.
type fresh struct {
	g    *register
	w    *version
	held bool
	rest Seq
}

// settle has cur count in the digests once it is settled.
func (r *Replica) settle(g *register) {
	if r.content.add(g) {
		r.news(g)
	}
}

// news has the newest settled write of g told.
func (r *Replica) news(g *register) {
	w := g.newest()
	if w == r.zero || w.Tag.Less(r.maybe[g.key]) {
		return
	}
	delete(r.maybe, g.key)
	f := fresh{g: g, w: w, held: w == g.readable, rest: g.rest}
	if last := int(g.fresh) - 1; last >= 0 && r.fresh[last].rest >= g.rest {
		r.fresh[last] = f
		return
	}
	r.fresh = append(r.fresh, f)
	g.fresh = uint32(len(r.fresh))
}

// newest returns the newest settled write that is known here.
func (g *register) newest() *version {
	v := g.readable
	if g.cur.Decided && v.Tag.Less(g.cur.Tag) {
		v = g.cur
	}
	if g.live != nil {
		if s := g.live.shown; s != nil && v.Tag.Less(s.Tag) {
			v = s
		}
	}
	return v
}

// Settled calls tell with each write that has come to be known as settled since the
// last call, and is durable here. Of each key they only grow, across restarts as well; one may come twice; where
// several follow each other, those in between may be left out, and the last one is not.
//
// With it come two numbers of saves. All that is settled and in a save up to upto has been told
// by now, or something newer of the same key will be, in a later save. And
// all that is told now is in a save up to before, settled mark and all; that one may be
// still to come. So a reader of the saves up to any number knows from where on to listen
// to the news, and who has listened knows up to where it need not read the saves.
func (r *Replica) Settled(tell func(News)) (upto, before Seq) {
	before = max(r.saved, r.saving)
	kept := r.fresh[:0]
	for i, f := range r.fresh {
		if f.g.marked {
			before = r.next
		}
		last := int(f.g.fresh) == i+1
		if f.rest > r.saved {
			kept = append(kept, f)
			if last {
				f.g.fresh = uint32(len(kept))
			}
			continue
		}
		if f.w.hasValue { // otherwise something newer has followed it
			tell(News{Key: f.g.key, Held: f.held, Write: f.w.Write})
		}
		if last {
			f.g.fresh = 0
		}
	}
	clear(r.fresh[len(kept):])
	r.fresh = kept
	return r.saved, before
}

// Told returns what Settled has told last of key, or what the start found settled.
// It returns false where there is none, and where Settled is about to tell more.
func (r *Replica) Told(key string) (News, bool) {
	g := r.regs[key]
	if g == nil || g.fresh != 0 {
		return News{}, false
	}
	w := g.newest()
	if w == r.zero || w.Tag.Less(r.maybe[key]) {
		return News{}, false
	}
	return News{Key: key, Held: w == g.readable, Write: w.Write}, true
}

// Unsettled yields the keys of which there is something that is not known to be settled, or may
// have been told as that before this start, each with the highest tag of that. A write of its own that
// is pending, or will be taken up, is among it: others may know that to be settled, and it learns nothing of it from them.
func (r *Replica) Unsettled() iter.Seq2[string, Tag] {
	return func(yield func(string, Tag) bool) {
		for _, g := range r.active {
			if g.live == nil {
				continue
			}
			if (!g.settled() || g.floor != g.cur) && !yield(g.key, g.floor.Tag) {
				return
			}
			if p := g.live.pending; p != nil && p.saved && !yield(g.key, p.write.Tag) {
				return
			}
		}
		for key, p := range r.pending {
			if p != nil && !yield(key, p.Write.Tag) {
				return
			}
		}
		for key, tag := range r.maybe {
			if !yield(key, tag) {
				return
			}
		}
	}
}

// Knows says whether the newest write of key that is known to be settled here is t, or newer.
func (r *Replica) Knows(key string, t Tag) bool {
	g := r.regs[key]
	return g != nil && !g.newest().Tag.Less(t)
}
