package register

import "iter"

// recover takes in what the store holds, and takes up again what a crash cut
// off (PROTOCOL.md section 7). There are about so many keys.
func (r *Replica) recover(records iter.Seq2[Record, error], keys int) error {
	r.pending = map[string]*Pending{}
	var open []string // in the order of the records
	loaded := newLoaded(keys)
	for rec, err := range records {
		if err != nil {
			return err
		}
		if rec.IsMark() {
			r.loadMark(rec)
			continue
		}
		if rec.Key == "" {
			r.loadNote(rec)
			continue
		}
		if err := r.load(&rec, loaded); err != nil {
			return err
		}
		if !rec.Readable || !rec.Floor.IsZero() {
			open = append(open, rec.Key)
		}
		_, known := r.pending[rec.Key]
		if !known && rec.Pending != nil {
			r.resumes = append(r.resumes, rec.Key)
		}
		if known || rec.Pending != nil {
			r.pending[rec.Key] = rec.Pending
		}
	}
	r.index.fill(loaded.inOrder())
	if r.observes() { // it reads nothing
		open = nil
	}
	for _, key := range open {
		if g := r.regs[key]; !g.settled() || g.floor != g.cur {
			r.maybe[key] = g.floor.Tag
		}
		if g := r.regs[key]; g.readable != g.cur || g.floor != g.cur {
			r.open(key) // to be read by a tick, should nobody else do so
		}
	}
	return nil
}

// takeUp takes up all writes that a crash cut off.
func (r *Replica) takeUp() {
	for _, key := range r.resumes {
		if p := r.pending[key]; p != nil {
			r.resume(r.open(key), p)
		}
	}
	r.resumes, r.pending = nil, nil
}

// load makes the register of a record, in place of what an older one made.
func (r *Replica) load(rec *Record, loaded *loaded) error {
	if err := CheckKey(rec.Key); err != nil {
		return err
	}
	g := &register{key: rec.Key, cur: r.zero, readable: r.zero}
	if !rec.Cur.Tag.IsZero() {
		g.cur = &version{Write: rec.Cur, accepted: true, hasValue: true}
	}
	for i := range rec.Recs {
		c := &rec.Recs[i]
		g.setRec(&version{Write: c.Write, accepted: c.Accepted, hasValue: !c.NoValue})
	}
	g.floor = g.cur
	if !rec.Floor.IsZero() {
		g.floor = g.rec(rec.Floor.Owner)
		if g.floor == nil || g.floor.Tag != rec.Floor {
			return invalid("the record of key %q has no write for its floor %v", rec.Key, rec.Floor)
		}
	}
	if rec.Readable {
		g.readable = g.cur
	}
	g.orphanTS = r.orphan(g, rec)
	g.check()
	r.bytes += int64(len(g.cur.Value))
	if !loaded.add(g) {
		if old := r.regs[rec.Key]; old != nil {
			r.bytes -= int64(len(old.cur.Value))
			r.content.drop(old)
			*old = *g // maps and the index go on pointing to it
			r.content.add(old)
			return nil
		}
		loaded.rest = append(loaded.rest, g)
	}
	r.regs[rec.Key] = g
	r.bytes += int64(len(rec.Key))
	r.content.add(g)
	return nil
}

// orphan is the highest of this voter's own tags: whatever it knew of their
// acknowledgements is gone.
func (r *Replica) orphan(g *register, rec *Record) uint64 {
	ts := rec.Orphan
	if g.cur.Tag.Owner == r.self {
		ts = max(ts, g.cur.Tag.TS)
	}
	if v := g.rec(r.self); v != nil {
		ts = max(ts, v.Tag.TS)
	}
	if p := rec.Pending; p != nil {
		ts = max(ts, p.Write.Tag.TS)
	}
	return ts
}

func (r *Replica) loadMark(rec Record) {
	g := r.regs[rec.Key]
	if g == nil || g.cur.Tag != rec.Mark {
		return
	}
	g.cur.Decided = g.cur.Decided || rec.Cur.Decided
	if rec.Readable {
		g.readable = g.cur
	}
	r.content.add(g)
}

// resume takes up a write that a crash cut off. In phase 2 it was decided and is
// committed again; in phase 1 it is anyone's now and is relayed. Either way its
// clients are gone.
func (r *Replica) resume(g *register, p *Pending) {
	r.touch(g) // no longer pending
	r.learn(g, p.Write)
	if p.Write.Tag != p.Spec {
		r.say(g, r.others, &MsgCommit{Key: g.key, Old: p.Spec, Write: p.Write})
	} else {
		r.say(g, r.others, &MsgWrite{Key: g.key, Write: p.Write})
	}
}

// records returns the durable states of all that changed, and marks.
func (r *Replica) records() []Record {
	records := make([]Record, 0, len(r.dirty)+len(r.marks)+1)
	r.noting = r.unsaved
	if r.noting {
		records = append(records, r.noteRecord())
	}
	for _, g := range r.dirty {
		records = append(records, g.record())
	}
	for _, g := range r.marks {
		g.marked = false
		if !g.settled() || g.cur == r.zero {
			continue
		}
		r.marking = append(r.marking, g)
		if g.rest != r.next { // otherwise its record has them
			records = append(records, Record{
				Key:      g.key,
				Mark:     g.cur.Tag,
				Cur:      Write{Decided: g.cur.Decided},
				Readable: g.readable == g.cur,
			})
		}
	}
	clear(r.marks)
	r.marks = r.marks[:0]
	return records
}

// record is g's durable state, without the values that nobody needs any more.
func (g *register) record() Record {
	rec := Record{Key: g.key, Cur: g.cur.Write, Orphan: g.orphanTS}
	rec.Readable = g.readable == g.cur && !g.cur.Tag.IsZero()
	if g.floor != g.cur {
		rec.Floor = g.floor.Tag
	}
	for _, v := range g.recs {
		c := Rec{Write: v.Write, Accepted: v.accepted, NoValue: !v.hasValue}
		if v.Decided && v.Tag.Less(g.cur.Tag) {
			c.Write.Value, c.NoValue = nil, true
		}
		rec.Recs = append(rec.Recs, c)
	}
	if g.live != nil && g.live.pending != nil {
		rec.Pending = &Pending{Write: g.live.pending.write, Spec: g.live.pending.spec}
	}
	return rec
}
