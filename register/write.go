package register

import "slices"

// Set begins a write of value, or a deletion where deleted is set, for the
// local client op. r keeps value. The key and value must be within the limits
// (CheckKey, MaxValue). A write that finds another of the same key in progress
// here waits for it and is coalesced with all that wait (PROTOCOL.md section
// 4).
func (r *Replica) Set(op Op, key string, value []byte, deleted bool) {
	g := r.open(key)
	r.ops[op] = g
	g.live.queue = append(g.live.queue, queued{op, value, deleted})
	if g.live.pending == nil && !r.asking {
		r.issue(g)
	}
}

// issue takes the queue as one write: phase 1 (PROTOCOL.md section 3).
func (r *Replica) issue(g *register) {
	l := g.live
	if len(l.queue) == 0 {
		return
	}
	ops := make([]Op, 0, len(l.queue))
	for _, q := range l.queue {
		ops = append(ops, q.op)
	}
	last := l.queue[len(l.queue)-1]
	l.queue = nil
	ts := max(r.clock, l.seen+1)
	if ts >= maxTS {
		for _, op := range ops {
			r.finish(Result{Op: op, Err: ErrTimestamps})
		}
		return
	}
	t := Tag{TS: ts, Owner: r.self}
	g.see(t)
	p := &pending{
		write: Write{Tag: t, Value: last.value, Deleted: last.deleted, Known: g.known()},
		spec:  t,
		ops:   ops,
		seq:   r.next,
		floor: g.floor.Tag,
		alone: r.durable(g),
	}
	r.touch(g)
	l.pending = p
	r.sendPending(g, r.others)
	r.after(g, held{own: p})
}

// sendPending sends the pending write of g: WRITE in phase 1, COMMIT in phase 2,
// there without the value to those who have it.
func (r *Replica) sendPending(g *register, to Set) {
	p := g.live.pending
	if !p.phase2() {
		r.say(g, to, &MsgWrite{Key: g.key, Write: p.write})
		return
	}
	had := p.had
	if len(p.write.Value) == 0 {
		had = 0
	}
	short := &MsgCommit{Key: g.key, Old: p.spec, Write: p.write, NoValue: true}
	short.Write.Value = nil
	r.say(g, to&had, short)
	r.say(g, to&^had, &MsgCommit{Key: g.key, Old: p.spec, Write: p.write})
}

func (r *Replica) stepAckWrite(g *register, from Voter, m *MsgAckWrite) {
	g.see(m.Undone...)
	r.hear(g, m.Undone...)
	if m.Clean {
		r.note(g, m.Tag, from, false)
		defer r.checkReads(g)
	}
	p := g.live.pending
	if p == nil || p.phase2() || p.spec != m.Tag {
		return
	}
	p.ack(ack{from, m.Clean, m.Blind, m.Own})
	p.had = p.had.With(from)
	p.maxTS = max(p.maxTS, m.MaxTS)
	r.decide(g)
}

func (r *Replica) stepAckCommit(g *register, from Voter, m *MsgAckCommit) {
	g.see(m.Undone...)
	r.hear(g, m.Undone...)
	p := g.live.pending
	if p == nil || !p.phase2() || p.write.Tag != m.Tag {
		return
	}
	p.ack(ack{voter: from, clean: true})
	if len(p.acks)+1 >= r.writeQuorum {
		r.complete(g, 2)
	}
}

func (p *pending) ack(a ack) {
	for i := range p.acks {
		if p.acks[i].voter == a.voter {
			p.acks[i] = a
			return
		}
	}
	p.acks = append(p.acks, a)
}

// decide keeps or replaces the speculative tag once the acknowledgements say
// which is safe, or waits for another (PROTOCOL.md section 4).
func (r *Replica) decide(g *register) {
	p := g.live.pending
	if p == nil || p.phase2() || !p.saved || len(p.acks)+1 < r.writeQuorum {
		return
	}
	never := SetOf(r.self) // E: will never accept the tag undecided
	var reported Set
	for _, a := range p.acks {
		if a.clean {
			continue
		}
		never = never.With(a.voter)
		reported |= a.blind
		if a.own != nil {
			reported = reported.With(a.voter)
			never |= a.own.Excl
		}
	}
	never |= reported
	keep := true
	for o := range reported.All {
		if r.holders(p, o) >= min(r.readQuorum, r.writeQuorum) {
			keep = false
		}
	}
	switch {
	case keep:
		r.complete(g, min(1, r.n-1))
	case r.n-(never&r.voters).Len() < r.readQuorum:
		r.retag(g)
	}
}

// holders is how many voters may have held a write of o above the pending one
// before this one began.
func (r *Replica) holders(p *pending, o Voter) int {
	holders := r.n - 1 - len(p.acks)
	for _, a := range p.acks {
		if a.clean {
			continue
		}
		reports := a.voter == o && a.own != nil
		if reports || a.blind.Has(o) {
			holders++
		}
		if reports && a.own.Free {
			holders--
		}
	}
	return holders
}

// retag begins phase 2: a decided tag above all that a write quorum knows.
func (r *Replica) retag(g *register) {
	p := g.live.pending
	ts := max(p.maxTS, g.live.seen) + 1
	if ts >= maxTS {
		return // it stays speculative for ever; its clients give up
	}
	t := Tag{TS: ts, Owner: r.self}
	g.see(t)
	p.write.Tag, p.write.Known, p.write.Decided = t, g.known(), true
	p.acks, p.age = nil, 0
	r.touch(g)
	r.sendPending(g, r.others)
}

// complete ends the pending write of g as decided and goes on with the queue.
func (r *Replica) complete(g *register, trips int) {
	p := g.live.pending
	g.live.pending = nil
	g.doneTS, g.doneBy = p.write.Tag.TS, 0
	for _, a := range p.acks {
		g.doneBy = g.doneBy.With(a.voter)
	}
	v := &version{Write: p.write, hasValue: true}
	g.setRec(v)
	r.accept(g, v, true, r.others)
	r.promote(g, v.Tag)
	for _, op := range p.ops {
		r.finish(Result{Op: op, Tag: v.Tag, RoundTrips: trips, write: true})
	}
	r.issue(g)
	r.checkReads(g)
}

// abandon gives up the pending write as a crash would: one of phase 1 becomes as
// anyone's, never retagged; one of phase 2 is decided and is accepted here too, since
// with no more than a read quorum up its readers need this voter to hold it.
func (r *Replica) abandon(g *register) {
	p := g.live.pending
	g.orphanTS = max(g.orphanTS, p.write.Tag.TS)
	r.touch(g)
	r.sendPending(g, r.others) // once more
	g.live.pending = nil
	r.learn(g, p.write)
	r.issue(g)
	r.checkReads(g)
}

// stepNeed sends the value of a committed tag to a voter that lacks it.
func (r *Replica) stepNeed(g *register, from Voter, m *MsgNeed) {
	if p := g.live.pending; p != nil && p.phase2() && p.write.Tag == m.Tag {
		p.had = p.had.Without(from)
		r.sendPending(g, SetOf(from))
	} else if v := g.rec(r.self); v != nil && v.Tag == m.Tag && v.Decided && v.hasValue {
		r.say(g, SetOf(from), &MsgCommit{Key: g.key, Write: v.Write})
	}
}

func (r *Replica) tickPending(g *register) {
	p := g.live.pending
	if p == nil {
		return
	}
	if p.age++; !due(p.age) {
		return
	}
	to := r.others
	for _, a := range p.acks {
		to = to.Without(a.voter)
	}
	r.sendPending(g, to)
}

// dropQueued takes op out of the queue, where it has been told to nobody.
func dropQueued(g *register, op Op) bool {
	l := g.live
	n := len(l.queue)
	l.queue = slices.DeleteFunc(l.queue, func(q queued) bool { return q.op == op })
	return len(l.queue) < n
}

// dropPending takes op from the clients of the pending write, and says whether
// the write may still take effect. The last one's leaving abandons it.
func (r *Replica) dropPending(g *register, op Op) (sent bool) {
	p := g.live.pending
	if p == nil || !slices.Contains(p.ops, op) {
		return false
	}
	p.ops = slices.DeleteFunc(p.ops, func(o Op) bool { return o == op })
	switch {
	case len(p.ops) > 0:
	case p.seq == r.next: // not even handed out to be saved
		r.unissue(g)
		r.issue(g)
		return false
	default:
		r.abandon(g)
	}
	return true
}
