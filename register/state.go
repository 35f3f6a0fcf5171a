package register

import "slices"

// version is a write that this voter has heard of. cur, floor, readable and
// rec point to shared versions, so that "cur and rec[o] are the same write" is
// a matter of identity (PROTOCOL.md section 2).
type version struct {
	Write
	accepted bool
	hasValue bool // false once the value has been let go
}

// register is the state of one key. At rest live is nil.
type register struct {
	key      string
	cur      *version   // the highest accepted write; the replica's zero where there is none
	floor    *version   // the highest write ever acknowledged: cur, or one kept aside in recs
	readable *version   // the highest write that a read quorum is known to hold; zero where unknown
	recs     []*version // the latest write heard of, one an owner, in the order of owners; less cur where that is it
	doneTS   uint64     // done: the timestamp of its own last complete write, 0: none since the start
	doneBy   Set        // who acknowledged it before it was complete
	orphanTS uint64     // orphan: 0: none
	rest     Seq        // the record that holds the last change of this key
	live     *live
	listed   bool   // is in Replica.active
	marked   bool   // is in Replica.marks
	counted  bool   // cur is in Replica.content
	fresh    uint32 // its last place in Replica.fresh, from 1 on; 0: none
}

// live is what a register needs only while something is going on.
type live struct {
	views   []view
	heard   []heard
	pending *pending
	queue   []queued
	rounds  []*round
	shown   *version // the last cur that was decided: for Peek, while a newer one is not settled
	seen    uint64   // the highest timestamp seen
	quiet   int      // ticks spent open with nothing in progress
	reread  bool     // is in Replica.rereads
}

// view is what is known of who has accepted a tag.
type view struct {
	tag     Tag
	voters  Set
	decided bool
}

// heard is the verdict taken when this voter first heard of tag.
type heard struct {
	tag Tag
	Verdict
}

// queued is a write that waits for the pending one to be over.
type queued struct {
	op      Op
	value   []byte
	deleted bool
}

// pending is the voter's own write in progress: in phase 1 under its
// speculative tag spec, in phase 2 under a decided one.
type pending struct {
	write Write
	spec  Tag
	ops   []Op // the clients that wait for it
	acks  []ack
	had   Set // who acknowledged WRITE, and so has the value
	maxTS uint64
	seq   Seq  // the record that it is first saved in
	saved bool // and that record is durable
	alone bool // nothing else of the register has changed since all of it was durable
	floor Tag  // when it was issued
	age   int  // ticks since the phase began
}

func (p *pending) phase2() bool { return p.write.Tag != p.spec }

// ack is a voter's last acknowledgement of the pending write.
type ack struct {
	voter Voter
	clean bool
	blind Set
	own   *Verdict
}

// round is a round of reads: all Gets of a key that arrived before its READ was
// handed out share one.
type round struct {
	id       Round
	ops      []Op
	lists    []*listing // that wait for it as ops do
	internal bool       // reads for the register's own sake, without a client
	handed   bool       // its READ is out: nobody joins any more
	answered Set
	target   Tag
	relayed  Tag // the highest tag sent in a FORWARD
	trips    int
	age      int
}

// rec returns the latest write of o heard of.
func (g *register) rec(o Voter) *version {
	for _, v := range g.recs {
		if v.Tag.Owner == o {
			return v
		}
	}
	if !g.cur.Tag.IsZero() && g.cur.Tag.Owner == o {
		return g.cur
	}
	return nil
}

// setCur makes v, which is the latest write of its owner, cur.
func (g *register) setCur(v *version) {
	old := g.cur
	g.cur = v
	if i := slices.Index(g.recs, v); i >= 0 {
		g.recs = slices.Delete(g.recs, i, i+1)
	}
	if len(g.recs) == 0 {
		g.recs = nil // most registers have one owner's write and no array for others
	}
	if !old.Tag.IsZero() && g.rec(old.Tag.Owner) == nil {
		g.setRec(old)
	}
}

func (g *register) setRec(v *version) {
	i, found := slices.BinarySearchFunc(g.recs, v.Tag.Owner, func(w *version, o Voter) int {
		return int(w.Tag.Owner) - int(o)
	})
	if found {
		g.recs[i] = v
		return
	}
	recs := make([]*version, len(g.recs)+1) // exactly as long as needed: there are millions of them
	copy(recs, g.recs[:i])
	recs[i] = v
	copy(recs[i+1:], g.recs[i:])
	g.recs = recs
}

// atHand returns the write of t if its value is here. The own pending write is
// never at hand: nobody may read or relay it.
func (g *register) atHand(t Tag) *version {
	if g.cur.Tag == t {
		return g.cur
	}
	if g.readable.Tag == t {
		return g.readable
	}
	if v := g.rec(t.Owner); v != nil && v.Tag == t && v.hasValue {
		return v
	}
	return nil
}

// known is what this voter has accepted and not heard to be decided.
func (g *register) known() []Tag {
	var out []Tag
	for _, v := range g.recs {
		if v.accepted && !v.Decided {
			out = append(out, v.Tag)
		}
	}
	if !g.cur.Decided {
		out = append(out, g.cur.Tag)
	}
	return out
}

// undone is known as it is told in acknowledgements of t: without t, with the
// own pending tag of phase 1.
func (g *register) undone(t Tag) []Tag {
	out := slices.DeleteFunc(g.known(), func(u Tag) bool { return u == t })
	if p := g.live.pending; p != nil && !p.phase2() {
		out = append(out, p.spec)
	}
	return out
}

// settled says whether cur will never be retagged.
func (g *register) settled() bool { return g.cur.Decided || g.readable == g.cur }

func (g *register) see(tags ...Tag) {
	for _, t := range tags {
		g.live.seen = max(g.live.seen, t.TS)
	}
}

func (g *register) view(t Tag) *view {
	for i := range g.live.views {
		if v := &g.live.views[i]; v.tag == t {
			return v
		}
	}
	return nil
}

// viewFor returns the view to note an acceptance of t in. Of each owner there are those of its
// latest tag and of its tags whose writes are at hand; for others it is nil.
func (g *register) viewFor(t Tag) *view {
	if v := g.view(t); v != nil {
		return v
	}
	l := g.live
	latest := !slices.ContainsFunc(l.views, func(v view) bool { return v.tag.Owner == t.Owner && t.Less(v.tag) })
	if !latest && g.atHand(t) == nil {
		return nil
	}
	l.views = slices.DeleteFunc(l.views, func(v view) bool {
		return v.tag.Owner == t.Owner && v.tag.Less(t) && g.atHand(v.tag) == nil
	})
	l.views = append(l.views, view{tag: t})
	return &l.views[len(l.views)-1]
}

func (g *register) heardOf(o Voter) *heard {
	for i := range g.live.heard {
		if h := &g.live.heard[i]; h.tag.Owner == o {
			return h
		}
	}
	return nil
}

// highest returns the highest timestamp among all tags kept.
func (g *register) highest() uint64 {
	ts := max(g.floor.Tag.TS, g.doneTS, g.orphanTS)
	add := func(v *version) {
		ts = max(ts, v.Tag.TS)
		for _, t := range v.Known {
			ts = max(ts, t.TS)
		}
	}
	add(g.cur)
	for _, v := range g.recs {
		add(v)
	}
	return ts
}

// atRest says whether nothing is going on that live is needed for (PROTOCOL.md
// section 2): what live would still know is in cur and recs.
func (g *register) atRest() bool {
	l := g.live
	if l.pending != nil || len(l.queue) > 0 || len(l.rounds) > 0 || l.reread || g.open() {
		return false
	}
	for _, h := range l.heard {
		v := g.rec(h.tag.Owner)
		if v == nil || v.Tag.Less(h.tag) || !v.accepted || !v.Decided {
			return false
		}
	}
	return true
}

// open says whether a read of the key would teach this voter something: its cur
// is not known to be held by a read quorum, or there is something above it.
func (g *register) open() bool { return g.readable != g.cur || g.ahead(g.cur.Tag) }

// ahead says whether this voter has learnt of something above t, or that
// somebody has accepted it.
func (g *register) ahead(t Tag) bool {
	return t.Less(g.floor.Tag) || slices.ContainsFunc(g.live.views, func(v view) bool { return t.Less(v.tag) })
}

// check asserts the invariants of PROTOCOL.md section 2.
func (g *register) check() {
	must(g.cur.accepted && g.cur.hasValue, "cur is accepted and has a value")
	must(!g.floor.Tag.Less(g.cur.Tag), "the floor is not below cur")
	must(g.floor == g.cur || g.floor == g.rec(g.floor.Tag.Owner) && g.floor.hasValue, "the floor's write is at hand")
}

func must(ok bool, what string) {
	if !ok {
		panic("register: broken invariant: " + what)
	}
}
