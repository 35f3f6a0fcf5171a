package register

// Lacks says whether a CATCHUP of what another voter shows would teach r
// something (PROTOCOL.md section 5, catching up).
func (r *Replica) Lacks(s Shown) bool {
	if !s.Settled() || s.Tag.IsZero() {
		return false
	}
	g := r.regs[s.Key]
	switch {
	case g == nil || g.cur.Tag.Less(s.Tag):
		return true
	case g.cur.Tag != s.Tag:
		return false
	}
	return s.Decided && !g.cur.Decided || s.Held && g.readable != g.cur
}

// Catchup returns of each of keys the newest write, where that is settled and
// durable here, as CATCHUP. It is for voters that lack it.
func (r *Replica) Catchup(keys []string) []*MsgCatchup {
	var out []*MsgCatchup
	for _, key := range keys {
		if s := r.show(key); s.Settled() && !s.Tag.IsZero() {
			out = append(out, &MsgCatchup{Key: key, Write: r.regs[key].cur.Write, Held: s.Held})
		}
	}
	return out
}

// Covers returns the number of the save after which all that r has taken in so
// far is durable; it may be durable already.
func (r *Replica) Covers() Seq {
	if len(r.dirty) > 0 {
		return r.next
	}
	return max(r.saving, r.saved)
}

// Durable returns the number of the highest save that r knows to be durable: all
// that Show leaves out as not durable is changed by a later one.
func (r *Replica) Durable() Seq { return r.saved }

// stepCatchup learns a settled write as any other. That a read quorum has
// accepted it stays true for ever, so it is true for this voter as well.
func (r *Replica) stepCatchup(g *register, m *MsgCatchup) {
	g.see(m.Write.Tag)
	g.see(m.Write.Known...)
	r.learn(g, m.Write)
	if w := g.atHand(m.Write.Tag); m.Held && w != nil && g.readable.Tag.Less(w.Tag) {
		r.setReadable(g, w)
	}
	r.checkReads(g)
}
