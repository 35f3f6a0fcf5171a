package register

import "slices"

// learn takes in a write from whatever message, always the same way, and says
// whether it is accepted here (PROTOCOL.md section 3).
func (r *Replica) learn(g *register, w Write) bool { return r.learnTelling(g, w, r.others) }

// learnTelling is learn with UPDATE-VIEW to those in tell only: the others are told by another message.
func (r *Replica) learnTelling(g *register, w Write, tell Set) bool {
	if w.Tag.IsZero() {
		return true
	}
	p := g.live.pending
	if p != nil && (w.Tag == p.spec || w.Tag == p.write.Tag) {
		return false // only its decision accepts its own pending write
	}
	v := g.rec(w.Tag.Owner)
	if v != nil && w.Tag.Less(v.Tag) {
		return false // its owner has moved on
	}
	r.hear(g, w.Tag)
	r.hear(g, w.Known...)
	if v == nil || v.Tag.Less(w.Tag) {
		v = &version{Write: w, hasValue: true}
		v.Decided = false
		g.setRec(v)
		r.touch(g)
	}
	if !v.hasValue && !v.accepted {
		v.Value, v.hasValue = w.Value, true
		r.touch(g)
	}
	seen := g.view(w.Tag)
	decided := w.Decided || seen != nil && seen.decided
	switch {
	case v.accepted:
		if decided {
			r.markDecided(g, w.Tag)
		}
	case decided:
		r.accept(g, v, true, tell)
	case r.acceptable(g, w.Tag):
		r.accept(g, v, false, tell)
	case g.floor.Tag.Less(w.Tag): // stale: kept aside
		g.floor = v
		r.touch(g)
	}
	r.promote(g, w.Tag)
	return v.accepted
}

// acceptable says whether an undecided write may be accepted: it is above all
// that this voter holds, has acknowledged, or has pending in either phase.
func (r *Replica) acceptable(g *register, t Tag) bool {
	if p := g.live.pending; p != nil && !p.write.Tag.Less(t) {
		return false
	}
	return g.cur.Tag.Less(t) && g.floor.Tag.Less(t)
}

func (r *Replica) accept(g *register, v *version, decided bool, tell Set) {
	v.accepted = true
	v.Decided = v.Decided || decided
	if g.cur.Tag.Less(v.Tag) {
		if g.cur.Decided {
			g.live.shown = g.cur
		}
		r.bytes += int64(len(v.Value) - len(g.cur.Value))
		r.content.drop(g)
		g.setCur(v)
	}
	if g.floor.Tag.Less(v.Tag) {
		g.floor = v
	}
	r.touch(g)
	r.settle(g)
	r.after(g, held{note: v.Tag})
	r.say(g, tell, &MsgUpdateView{Key: g.key, Tag: v.Tag, Decided: v.Decided})
}

// markDecided marks t as decided where it is held as accepted; nothing follows
// for lower tags of that owner.
func (r *Replica) markDecided(g *register, t Tag) {
	if g.cur.Tag == t && !g.cur.Decided {
		g.cur.Decided = true
		r.settle(g)
		r.mark(g)
	}
	if v := g.rec(t.Owner); v != nil && v.Tag == t && v.accepted {
		v.Decided = true
	}
}

// note records that a voter has accepted t.
func (r *Replica) note(g *register, t Tag, voter Voter, decided bool) {
	if t.IsZero() || r.observes() { // what an observer holds counts for nothing
		return
	}
	if v := g.viewFor(t); v != nil {
		v.voters = v.voters.With(voter)
		v.decided = v.decided || decided
		r.promote(g, t)
	}
}

// promote makes t readable if enough voters have accepted it and its value is
// at hand.
func (r *Replica) promote(g *register, t Tag) {
	v := g.view(t)
	if v == nil || v.voters.Len() < r.readQuorum || !g.readable.Tag.Less(t) {
		return
	}
	w := g.atHand(t)
	if w != nil {
		r.setReadable(g, w)
	}
}

// setReadable notes that a read quorum has accepted w, which is at hand.
func (r *Replica) setReadable(g *register, w *version) {
	g.readable = w
	if w == g.cur {
		r.settle(g)
		r.mark(g)
		return
	}
	r.news(g)
}

// hear takes the verdict on each tag the first time that this voter hears of
// it, and never later (PROTOCOL.md section 2, heard).
func (r *Replica) hear(g *register, tags ...Tag) {
	for _, t := range tags {
		if t.IsZero() || t.Owner == r.self {
			continue
		}
		verdict := heard{t, r.verdict(g, t)}
		if h := g.heardOf(t.Owner); h == nil {
			g.live.heard = append(g.live.heard, verdict)
		} else if h.tag.Less(t) {
			*h = verdict
		}
	}
}

func (r *Replica) verdict(g *register, t Tag) Verdict {
	done, orphan := Tag{TS: g.doneTS, Owner: r.self}, Tag{TS: g.orphanTS, Owner: r.self}
	v := Verdict{Free: done.Less(t) && orphan.Less(t)}
	if t.Less(done) {
		v.Excl = g.doneBy
	}
	return v
}

// stepWrite answers WRITE. One that its owner has moved on from gets no answer:
// nobody waits for it.
func (r *Replica) stepWrite(g *register, from Voter, m *MsgWrite) {
	t := m.Write.Tag
	g.see(t)
	g.see(m.Write.Known...)
	if v := g.rec(t.Owner); v != nil && t.Less(v.Tag) {
		return
	}
	// To its owner the clean answer says as much as UPDATE-VIEW would.
	a := &MsgAckWrite{Key: g.key, Tag: t, Clean: r.learnTelling(g, m.Write, r.others.Without(from))}
	if !a.Clean {
		a.Blind, a.Own = r.blind(g, t), r.own(g, t)
	}
	a.MaxTS, a.Undone = g.live.seen, g.undone(t)
	r.say(g, SetOf(from), a)
	r.checkReads(g)
}

// blind returns the owners, other than this voter and t's, of higher tags that
// were issued blind to t.
func (r *Replica) blind(g *register, t Tag) Set {
	var s Set
	for o := range r.owners(g).Without(t.Owner).Without(r.self).All {
		if v := g.rec(o); t.Less(v.Tag) && !slices.Contains(v.Known, t) {
			s = s.With(o)
		}
	}
	return s
}

// owners are those whose writes this voter has heard of.
func (r *Replica) owners(g *register) Set {
	var s Set
	if g.cur != r.zero {
		s = s.With(g.cur.Tag.Owner)
	}
	for _, v := range g.recs {
		s = s.With(v.Tag.Owner)
	}
	return s
}

// own returns the verdict on t if this voter has a write of its own above it.
func (r *Replica) own(g *register, t Tag) *Verdict {
	top := Tag{TS: max(g.doneTS, g.orphanTS), Owner: r.self}
	if p := g.live.pending; p != nil {
		top = maxTag(top, p.write.Tag)
	}
	if !t.Less(top) {
		return nil
	}
	if h := g.heardOf(t.Owner); h != nil && h.tag == t {
		v := h.Verdict
		return &v
	}
	return &Verdict{}
}

// stepCommit answers COMMIT with ACK-COMMIT, or with NEED where the value was
// left out and is not here (PROTOCOL.md section 4).
func (r *Replica) stepCommit(g *register, from Voter, m *MsgCommit) {
	w := m.Write
	g.see(m.Old, w.Tag)
	g.see(w.Known...)
	v := g.rec(w.Tag.Owner)
	if v != nil && w.Tag.Less(v.Tag) {
		return
	}
	if m.NoValue {
		if v == nil || !v.hasValue || v.Tag != m.Old && v.Tag != w.Tag {
			r.tell(SetOf(from), &MsgNeed{Key: g.key, Tag: w.Tag})
			return
		}
		w.Value = v.Value
	}
	r.learn(g, w)
	r.say(g, SetOf(from), &MsgAckCommit{Key: g.key, Tag: w.Tag, Undone: g.undone(w.Tag)})
	r.checkReads(g)
}

// stepUpdateView notes what another has accepted. What is decided and at hand is
// accepted at once; what is not at hand is asked for while a read waits.
func (r *Replica) stepUpdateView(g *register, from Voter, m *MsgUpdateView) {
	g.see(m.Tag)
	r.note(g, m.Tag, from, m.Decided)
	if p := g.live.pending; g.atHand(m.Tag) == nil && (p == nil || p.write.Tag != m.Tag && p.spec != m.Tag) {
		for _, d := range g.live.rounds {
			if d.handed {
				r.tell(SetOf(from), &MsgRead{Key: g.key, Round: d.id})
			}
		}
	}
	if m.Decided {
		r.markDecided(g, m.Tag)
		if v := g.rec(m.Tag.Owner); v != nil && v.Tag == m.Tag && v.hasValue && !v.accepted {
			r.accept(g, v, true, r.others)
		}
	}
	r.checkReads(g)
}
