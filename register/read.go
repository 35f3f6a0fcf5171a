package register

import "slices"

// Get begins a linearizable read for the local client op. All reads of a key
// that arrive before its READ is handed out share a round (PROTOCOL.md
// section 5).
func (r *Replica) Get(op Op, key string) {
	g := r.open(key)
	r.ops[op] = g
	d := r.newRound(g)
	d.ops = append(d.ops, op)
}

// newRound returns the round of g that the next Ready starts.
func (r *Replica) newRound(g *register) *round {
	if n := len(g.live.rounds); n > 0 && !g.live.rounds[n-1].handed {
		return g.live.rounds[n-1]
	}
	d := &round{id: r.nextRound(), trips: min(1, r.n-1)}
	g.live.rounds = append(g.live.rounds, d)
	r.opening = append(r.opening, opening{g, d})
	return d
}

func (r *Replica) nextRound() Round {
	r.count++
	return Round{Boot: r.boot, Count: r.count}
}

// startRounds asks all voters what they hold, once for each new round.
func (r *Replica) startRounds() {
	for _, o := range r.opening {
		g, d := o.g, o.d
		if g.live == nil || !slices.Contains(g.live.rounds, d) {
			continue // all its clients have given up
		}
		d.handed = true
		d.target = g.floor.Tag
		d.answered = SetOf(r.self)
		m := &MsgRead{Key: g.key, Round: d.id}
		if r.durable(g) {
			r.note(g, g.cur.Tag, r.self, false)
			m.Have = g.cur.Tag
		}
		r.tell(r.others, m)
		r.checkReads(g)
		r.quieten(g)
	}
	clear(r.opening)
	r.opening = r.opening[:0]
}

// checkReads ends the rounds for which something is safe to read, and relays
// for the others.
func (r *Replica) checkReads(g *register) {
	kept := g.live.rounds[:0]
	for _, d := range g.live.rounds {
		switch {
		case !d.handed || d.answered.Len() < r.readQuorum:
			kept = append(kept, d)
		case g.readable.Tag.Less(d.target):
			kept = append(kept, d)
			r.relay(g, d)
		default:
			r.endRound(g, d)
		}
	}
	clear(g.live.rounds[len(kept):])
	g.live.rounds = kept
}

// endRound returns the readable write to all that share the round. The result
// rests on the key's last record here, unless others alone make a read quorum
// (PROTOCOL.md section 6).
func (r *Replica) endRound(g *register, d *round) {
	if d.internal {
		r.internal--
	}
	w := g.readable
	v := g.view(w.Tag)
	others := v != nil && v.voters.Without(r.self).Len() >= r.readQuorum
	for _, op := range d.ops {
		res := Result{Op: op, Tag: w.Tag, Value: w.Value, Found: !w.Deleted, RoundTrips: d.trips}
		if others {
			r.finish(res)
		} else {
			r.after(g, held{result: &res})
		}
	}
	for _, l := range d.lists {
		h := held{list: l, entry: entryOf(g.key, w)}
		if others {
			r.release(&h)
		} else {
			r.after(g, h)
		}
	}
}

// relay sends the highest write known here, once each, to all: a write whose owner
// has crashed is finished by its readers in this way.
func (r *Replica) relay(g *register, d *round) {
	if !d.relayed.Less(g.floor.Tag) {
		return
	}
	if d.relayed.IsZero() {
		d.trips++
	}
	d.relayed = g.floor.Tag
	r.forward(g, d, g.floor, r.others)
}

// forward sends FORWARD. It rests on nothing, unless the write is one of this voter's own
// (abandoned): that may not be saved yet, and an owner must not forget what it has said.
func (r *Replica) forward(g *register, d *round, w *version, to Set) {
	m := &MsgForward{Key: g.key, Round: d.id, Write: w.Write}
	if w.Tag.Owner == r.self {
		r.say(g, to, m)
	} else {
		r.tell(to, m)
	}
}

// sendRound sends what is unfinished of d again.
func (r *Replica) sendRound(g *register, d *round, to Set) {
	if !d.handed {
		return
	}
	r.tell(to, &MsgRead{Key: g.key, Round: d.id})
	if w := g.atHand(d.relayed); w != nil && !d.relayed.IsZero() {
		r.forward(g, d, w, to)
	}
}

func (r *Replica) stepRead(g *register, from Voter, m *MsgRead) {
	g.see(m.Have)
	r.answer(g, from, m.Round, m.Have)
}

func (r *Replica) stepForward(g *register, from Voter, m *MsgForward) {
	g.see(m.Write.Tag)
	g.see(m.Write.Known...)
	r.learn(g, m.Write)
	r.answer(g, from, m.Round, Tag{})
	r.checkReads(g)
}

// answer sends ACK-READ: cur, without its value where the reader has it, and
// the write of the floor where that is higher.
func (r *Replica) answer(g *register, to Voter, id Round, have Tag) {
	m := &MsgAckRead{Key: g.key, Round: id, Cur: g.cur.Write}
	if have == g.cur.Tag && len(g.cur.Value) > 0 {
		m.NoValue, m.Cur.Value = true, nil
	}
	if g.floor != g.cur {
		w := g.floor.Write
		m.Floor = &w
	}
	r.say(g, SetOf(to), m)
}

// stepAckRead learns both writes of an answer and counts it.
func (r *Replica) stepAckRead(g *register, from Voter, m *MsgAckRead) {
	cur := m.Cur
	g.see(cur.Tag)
	g.see(cur.Known...)
	r.note(g, cur.Tag, from, false)
	if m.NoValue {
		w := g.atHand(cur.Tag)
		if w == nil { // let go since: ask again for all of it
			r.tell(SetOf(from), &MsgRead{Key: g.key, Round: m.Round})
			return
		}
		cur.Value = w.Value
	}
	r.learn(g, cur)
	top := cur.Tag
	if m.Floor != nil {
		g.see(m.Floor.Tag)
		g.see(m.Floor.Known...)
		r.learn(g, *m.Floor)
		top = maxTag(top, m.Floor.Tag)
	}
	for _, d := range g.live.rounds {
		if d.id == m.Round && d.handed && d.answered.Len() < r.readQuorum {
			d.answered = d.answered.With(from)
			d.target = maxTag(d.target, top)
		}
	}
	r.checkReads(g)
}

func (r *Replica) tickRounds(g *register) {
	for _, d := range g.live.rounds {
		if d.age++; due(d.age) {
			r.sendRound(g, d, r.others)
		}
	}
}

// maxInternal bounds the rounds that a replica starts by itself and that are in
// progress, maxRereads those that it starts in one turn, beside what clients want.
const (
	maxInternal = 1024
	maxRereads  = 128
)

// tickOpen reads a key that stayed open for a second with nothing in progress
// (PROTOCOL.md section 5).
func (r *Replica) tickOpen(g *register) {
	l := g.live
	if l.pending != nil || len(l.rounds) > 0 || !g.open() {
		l.quiet = 0
		return
	}
	if l.quiet++; due(l.quiet) {
		r.queueReread(g)
	}
}

// queueReread has g read as soon as there is room for another internal round.
func (r *Replica) queueReread(g *register) {
	if !g.live.reread {
		g.live.reread = true
		r.rereads = append(r.rereads, g)
	}
}

// startRereads starts internal rounds, unless there is a round of the key already.
func (r *Replica) startRereads() {
	done, begun := 0, 0
	for ; done < len(r.rereads) && begun < maxRereads && r.internal < maxInternal; done++ {
		g := r.rereads[done]
		g.live.reread = false
		if len(g.live.rounds) > 0 {
			continue
		}
		r.newRound(g).internal = true
		r.internal++
		begun++
	}
	kept := append(r.rereads[:0], r.rereads[done:]...)
	clear(r.rereads[len(kept):])
	r.rereads = kept
}

// dropRead takes op out of its round, which ends with its last client.
func (r *Replica) dropRead(g *register, op Op) bool {
	for _, d := range g.live.rounds {
		if !slices.Contains(d.ops, op) {
			continue
		}
		d.ops = slices.DeleteFunc(d.ops, func(o Op) bool { return o == op })
		g.dropRound(d)
		return true
	}
	return false
}

// dropRound ends d if nobody waits for it any more.
func (g *register) dropRound(d *round) {
	if len(d.ops) == 0 && len(d.lists) == 0 && !d.internal {
		g.live.rounds = slices.DeleteFunc(g.live.rounds, func(e *round) bool { return e == d })
	}
}
