package register

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"
)

// clone copies r so deeply that stepping one does not show in the other.
// Messages, records, values and lists of tags are shared: nobody changes them.
func (r *Replica) clone() *Replica {
	c := *r
	c.regs = make(map[string]*register, len(r.regs))
	c.ops = make(map[Op]*register, len(r.ops))
	c.active = nil
	c.dirty, c.flying, c.marks, c.marking, c.waiting, c.held, c.fresh = nil, nil, nil, nil, nil, nil, nil
	c.messages, c.results = slices.Clone(r.messages), slices.Clone(r.results)
	must(len(r.opening) == 0 && len(r.rereads) == 0 && len(r.listings) == 0, "a clone is taken after Ready and not while listing")
	to := map[*register]*register{}
	own := map[*pending]*pending{}
	c.index = index{}
	for _, g := range r.regs {
		h := g.clone(r.zero, own)
		to[g] = h
		c.regs[h.key] = h
		c.index.insert(h)
	}
	regs := func(in []*register) (out []*register) {
		for _, g := range in {
			if to[g] == nil {
				to[g] = g.clone(r.zero, own)
			}
			out = append(out, to[g])
		}
		return out
	}
	c.active, c.dirty, c.flying = regs(r.active), regs(r.dirty), regs(r.flying)
	c.marks, c.marking = regs(r.marks), regs(r.marking)
	for op, g := range r.ops {
		c.ops[op] = to[g]
	}
	effects := func(in []held) (out []held) {
		for _, h := range in {
			h.g = to[h.g]
			if h.own != nil {
				if own[h.own] == nil {
					p := *h.own
					own[h.own] = &p
				}
				h.own = own[h.own]
			}
			out = append(out, h)
		}
		return out
	}
	c.waiting, c.held = effects(r.waiting), effects(r.held)
	return &c
}

func (g *register) clone(zero *version, own map[*pending]*pending) *register {
	h := *g
	h.fresh = false // nobody listens
	seen := map[*version]*version{zero: zero}
	version := func(v *version) *version {
		if seen[v] == nil {
			w := *v
			seen[v] = &w
		}
		return seen[v]
	}
	h.cur, h.floor, h.readable = version(g.cur), version(g.floor), version(g.readable)
	h.recs = make([]*versionOf, 0, len(g.recs))
	for _, v := range g.recs {
		h.recs = append(h.recs, version(v))
	}
	if g.live == nil {
		return &h
	}
	l := *g.live
	if l.shown != nil {
		l.shown = version(l.shown)
	}
	l.views, l.heard, l.queue = slices.Clone(l.views), slices.Clone(l.heard), slices.Clone(l.queue)
	if l.pending != nil {
		p := *l.pending
		p.acks, p.ops = slices.Clone(p.acks), slices.Clone(p.ops)
		own[l.pending] = &p
		l.pending = &p
	}
	l.rounds = nil
	for _, d := range g.live.rounds {
		e := *d
		e.ops = slices.Clone(d.ops)
		l.rounds = append(l.rounds, &e)
	}
	h.live = &l
	return &h
}

type versionOf = version

// The encoding below is what two states are held to be the same by. It is
// canonical: what cannot make a difference any more (PROTOCOL.md section 2, at rest)
// is left out, and sequence numbers are given relative to what is saved.

type encoder struct {
	b     []byte
	reads bool // reads are begun at this voter: who has accepted what matters
}

func (e *encoder) num(ns ...uint64) {
	for _, n := range ns {
		e.b = binary.AppendUvarint(e.b, n)
	}
}

func (e *encoder) flag(bs ...bool) {
	for _, b := range bs {
		if b {
			e.b = append(e.b, 1)
		} else {
			e.b = append(e.b, 0)
		}
	}
}

func (e *encoder) tag(ts ...Tag) {
	for _, t := range ts {
		e.num(t.TS, uint64(t.Owner))
	}
}

func (e *encoder) tags(ts []Tag) {
	ts = slices.Clone(ts)
	slices.SortFunc(ts, compareTags)
	e.num(uint64(len(ts)))
	e.tag(ts...)
}

func compareTags(a, b Tag) int {
	switch {
	case a.Less(b):
		return -1
	case b.Less(a):
		return 1
	}
	return 0
}

func (e *encoder) write(w Write) {
	e.tag(w.Tag)
	e.b = append(e.b, w.Value...)
	e.flag(w.Deleted, w.Decided)
	e.tags(w.Known)
}

func (e *encoder) version(v *version) {
	e.write(v.Write)
	e.flag(v.accepted, v.hasValue)
}

func (e *encoder) seq(r *Replica, s Seq) {
	switch {
	case s <= r.saved:
		e.num(0)
	case s == r.saving:
		e.num(1)
	default:
		e.num(2)
	}
}

func (e *encoder) register(r *Replica, g *register) {
	e.b = append(e.b, g.key...)
	e.version(g.cur)
	e.tag(g.floor.Tag)
	if e.reads {
		e.tag(g.readable.Tag)
	}
	for _, v := range g.recs {
		e.version(v)
	}
	e.num(0, g.doneTS, uint64(g.doneBy), g.orphanTS)
	e.seq(r, g.rest)
	if g.live == nil {
		e.num(g.highest())
		return
	}
	l := g.live
	e.num(l.seen)
	e.views(g)
	e.heard(g)
	for _, q := range l.queue {
		e.num(uint64(q.op))
	}
	e.num(0)
	if p := l.pending; p != nil {
		e.pending(r, p)
	}
	for _, d := range l.rounds {
		e.num(d.id.Boot, d.id.Count, uint64(d.answered), uint64(d.trips))
		e.tag(d.target, d.relayed)
		for _, op := range d.ops {
			e.num(uint64(op))
		}
	}
}

func (e *encoder) views(g *register) {
	views := slices.Clone(g.live.views)
	slices.SortFunc(views, func(a, b view) int { return compareTags(a.tag, b.tag) })
	for _, v := range views {
		rec := g.rec(v.tag.Owner)
		if (!e.reads || !g.readable.Tag.Less(v.tag)) && rec != nil && !rec.Tag.Less(v.tag) && rec.accepted && rec.Decided {
			continue
		}
		if !e.reads {
			if v.decided {
				e.tag(v.tag)
			}
			continue
		}
		e.tag(v.tag)
		e.num(uint64(v.voters))
		e.flag(v.decided)
	}
	e.num(0)
}

func (e *encoder) heard(g *register) {
	hs := slices.Clone(g.live.heard)
	slices.SortFunc(hs, func(a, b heard) int { return int(a.tag.Owner) - int(b.tag.Owner) })
	for _, h := range hs {
		rec := g.rec(h.tag.Owner)
		if rec != nil && !rec.Tag.Less(h.tag) && rec.accepted && rec.Decided {
			continue
		}
		e.tag(h.tag)
		e.num(uint64(h.Excl))
		e.flag(h.Free)
	}
	e.num(0)
}

func (e *encoder) pending(r *Replica, p *pending) {
	e.write(p.write)
	e.tag(p.spec)
	e.num(uint64(p.had), p.maxTS)
	e.seq(r, p.seq)
	e.flag(p.saved, p.alone)
	e.tag(p.floor)
	for _, op := range p.ops {
		e.num(uint64(op))
	}
	acks := slices.Clone(p.acks)
	slices.SortFunc(acks, func(a, b ack) int { return int(a.voter) - int(b.voter) })
	for _, a := range acks {
		e.num(uint64(a.voter), uint64(a.blind))
		e.flag(a.clean, a.own != nil)
		if a.own != nil {
			e.flag(a.own.Free)
			e.num(uint64(a.own.Excl))
		}
	}
	e.num(0)
}

// replica encodes all of r that can make a difference.
func (e *encoder) replica(r *Replica) {
	for _, key := range slices.Sorted(maps.Keys(r.regs)) {
		e.register(r, r.regs[key])
	}
	e.flag(r.saving != 0, r.stalled, len(r.dirty) > 0, r.asking)
	e.num(uint64(r.asked))
	for _, list := range [2][]held{r.held, r.waiting} {
		e.num(uint64(len(list)))
		for _, h := range list {
			e.tag(h.note)
			e.flag(h.own != nil)
			if h.msg != nil {
				e.message(h.to, h.msg)
			}
			if h.result != nil {
				e.num(uint64(h.result.Op))
				e.tag(h.result.Tag)
			}
		}
	}
}

func (e *encoder) message(to Set, m Message) {
	e.num(uint64(to), uint64(m.Kind()))
	e.b = append(e.b, m.Register()...)
	switch m := m.(type) {
	case *MsgWrite:
		e.write(m.Write)
	case *MsgAckWrite:
		e.tag(m.Tag)
		e.flag(m.Clean, m.Own != nil)
		e.num(uint64(m.Blind), m.MaxTS)
		if m.Own != nil {
			e.flag(m.Own.Free)
			e.num(uint64(m.Own.Excl))
		}
		e.tags(m.Undone)
	case *MsgCommit:
		e.tag(m.Old)
		e.write(m.Write)
		e.flag(m.NoValue)
	case *MsgNeed:
		e.tag(m.Tag)
	case *MsgAckCommit:
		e.tag(m.Tag)
		e.tags(m.Undone)
	case *MsgUpdateView:
		e.tag(m.Tag)
		e.flag(m.Decided)
	case *MsgRead:
		e.num(m.Round.Boot, m.Round.Count)
		e.tag(m.Have)
	case *MsgAckRead:
		e.num(m.Round.Boot, m.Round.Count)
		e.write(m.Cur)
		e.flag(m.NoValue, m.Floor != nil)
		if m.Floor != nil {
			e.write(*m.Floor)
		}
	case *MsgForward:
		e.num(m.Round.Boot, m.Round.Count)
		e.write(m.Write)
	case *MsgCatchup:
		e.write(m.Write)
		e.flag(m.Held)
	case *MsgAsk:
		e.num(m.Boot, uint64(m.Saved))
	case *MsgHeard:
		e.num(m.Asked, m.Boot, uint64(m.Saved))
	}
}

func (e *encoder) record(rec Record) {
	e.write(rec.Cur)
	e.tag(rec.Floor)
	for _, c := range rec.Recs {
		e.write(c.Write)
		e.flag(c.Accepted, c.NoValue)
	}
	e.num(rec.Orphan)
	e.flag(e.reads && rec.Readable, rec.Pending != nil)
	if rec.Pending != nil {
		e.write(rec.Pending.Write)
		e.tag(rec.Pending.Spec)
	}
}

var hashSeed = maphash.MakeSeed()

func (e *encoder) sum() uint64 { return maphash.Bytes(hashSeed, e.b) }
