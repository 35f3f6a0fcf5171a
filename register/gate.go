package register

import "slices"

// gate is the outbox: it keeps "durable before said" (PROTOCOL.md section 6).
// What rests on a record that is not yet durable waits here, so that nobody
// outside the replica can say it too early: they do not have it.
type gate struct {
	saved   Seq  // the highest known to be durable
	saving  Seq  // under way; 0: none
	next    Seq  // the next save's
	stalled bool // the last save failed: none is tried before the next Tick
	flush   bool // marks alone are worth a save
	alone   bool // the save under way has no more than a note of what was heard of voters

	dirty   []*register // to be saved as next
	flying  []*register // being saved
	marks   []*register // to be marked along with the next save
	marking []*register // being marked
	waiting []held      // rests on next
	held    []held      // rests on saving

	messages []Envelope
	results  []Result
	opening  []opening // rounds that the next Ready starts
}

type opening struct {
	g *register
	d *round
}

// held is an effect that waits for a record: one of a message, a result, the
// voter's own entry in a view, and "the pending write is saved".
type held struct {
	g      *register
	to     Set
	msg    Message
	result *Result
	note   Tag
	own    *pending
	list   *listing // entry is what a read of its found
	page   *page    // or this is its own page
	entry  Entry
}

// Ready is what a replica wants done, in no particular order.
type Ready struct {
	Seq      Seq      // of Records; 0 where there are none
	Records  []Record // to be saved, all or none
	Messages []Envelope
	Results  []Result
}

// Envelope is a message and the voters that it goes to, never none.
type Envelope struct {
	To      Set
	Message Message
}

// Ready returns what is to be done and regards it as done, but for the
// records: Saved or SaveFailed must follow, and until then no Ready has any.
func (r *Replica) Ready() Ready {
	if !r.asking {
		r.startLists()
		r.startRereads()
		r.startRounds()
	}
	var rd Ready
	if r.saving == 0 && !r.stalled && (len(r.dirty) > 0 || r.flush) {
		rd.Records = r.records()
		r.alone = r.noting && len(rd.Records) == 1
		r.flush = false
	}
	if len(rd.Records) > 0 {
		rd.Seq, r.saving = r.next, r.next
		r.next++
		r.flying, r.dirty = r.dirty, r.flying[:0]
		r.held, r.waiting = r.waiting, r.held[:0]
	}
	rd.Messages, r.messages = r.messages, nil
	if r.mute() { // it says nothing any more of what it holds
		rd.Messages = slices.DeleteFunc(rd.Messages, func(e Envelope) bool { return e.Message.Kind() != KindHeard })
	}
	rd.Results, r.results = r.results, nil
	return rd
}

// Saved says that the records of seq, and so of all before, are durable.
func (r *Replica) Saved(seq Seq) {
	must(seq == r.saving && seq != 0, "Saved answers the save under way")
	r.saved, r.saving = seq, 0
	if !r.alone {
		r.told = seq
	}
	flying, held := r.flying, r.held
	r.flying, r.held = nil, nil
	for i := range held {
		r.release(&held[i])
	}
	for _, g := range flying {
		r.quieten(g)
	}
	clear(flying)
	clear(held)
	clear(r.marking)
	r.marking = r.marking[:0]
	r.flying, r.held = flying[:0], held[:0]
}

// SaveFailed says that the records of seq were cleanly rolled back (PROTOCOL.md
// section 6). Pending writes that were new in them have been said to nobody and
// are dropped: nothing changed. All else stays unsaid and is saved again after the
// next Tick.
func (r *Replica) SaveFailed(seq Seq) {
	must(seq == r.saving && seq != 0, "SaveFailed answers the save under way")
	r.saving, r.stalled = 0, true
	r.unsaved = r.unsaved || r.noting
	r.waiting = r.thin(append(r.held, r.waiting...))
	flying := r.flying
	r.held, r.flying = nil, nil
	for _, g := range flying {
		r.save(g)
	}
	for _, g := range r.marking {
		r.mark(g)
	}
	r.marking = r.marking[:0]
	for _, g := range flying {
		if g.live == nil || g.live.pending == nil || g.live.pending.seq != seq {
			continue
		}
		for _, op := range g.live.pending.ops {
			r.finish(Result{Op: op, Err: ErrNotSaved})
		}
		r.unissue(g)
		r.issue(g)
		r.quieten(g)
	}
}

// thin drops of what waits all that others ask for again anyway (messages may be lost at
// any time), that a newer write has made useless, or that nobody waits for any more. So
// a disk that stays full does not fill the memory.
func (r *Replica) thin(waiting []held) []held {
	kept := waiting[:0]
	for _, h := range waiting {
		var keep bool
		switch {
		case h.msg != nil:
			k := h.msg.Kind() // a write of its own that has just begun is not soon sent again
			keep = (k == KindWrite || k == KindCommit) && h.g.live != nil && h.g.live.pending != nil && h.g.live.pending.age < 2
		case h.result != nil:
			keep = r.ops[h.result.Op] != nil
		case h.list != nil:
			keep = slices.Contains(r.listings, h.list)
		case h.own != nil:
			keep = h.g.live != nil && h.g.live.pending == h.own
		default:
			keep = h.g.cur.Tag == h.note
		}
		if keep {
			kept = append(kept, h)
		}
	}
	clear(waiting[len(kept):])
	return kept
}

// touch notes that g's durable state has changed.
func (r *Replica) touch(g *register) {
	if p := g.live.pending; p != nil {
		p.alone = false
	}
	r.save(g)
}

// save has the next save include g.
func (r *Replica) save(g *register) {
	if g.rest != r.next {
		g.rest = r.next
		r.dirty = append(r.dirty, g)
	}
}

// mark notes that cur has come to be known as settled: worth saving, but not
// worth a save.
func (r *Replica) mark(g *register) {
	if !g.marked {
		g.marked = true
		r.marks = append(r.marks, g)
	}
}

// durable says whether all changes of g are.
func (r *Replica) durable(g *register) bool { return g.rest <= r.saved }

// after performs h once g's last change is durable.
func (r *Replica) after(g *register, h held) {
	h.g = g
	switch {
	case r.durable(g):
		r.release(&h)
	case g.rest == r.saving:
		r.held = append(r.held, h)
	default:
		r.waiting = append(r.waiting, h)
	}
}

func (r *Replica) release(h *held) {
	switch {
	case h.msg != nil:
		r.messages = append(r.messages, Envelope{h.to, h.msg})
	case h.result != nil:
		if r.ops[h.result.Op] != nil { // its client has not given up meanwhile
			r.finish(*h.result)
		}
	case h.list != nil && h.page != nil:
		r.gotPage(h.list, *h.page)
	case h.list != nil:
		r.gotEntry(h.list, h.entry)
	case h.own != nil:
		h.own.saved = true
		if h.g.live != nil && h.g.live.pending == h.own {
			r.decide(h.g)
		}
	default:
		if h.g.live != nil {
			r.note(h.g, h.note, r.self, false)
			r.checkReads(h.g)
		}
	}
}

// say sends m once all that it may say of g is durable; tell sends what says
// nothing of this voter's state.
func (r *Replica) say(g *register, to Set, m Message) {
	if to != 0 && !r.observes() {
		r.after(g, held{to: to, msg: m})
	}
}

func (r *Replica) tell(to Set, m Message) {
	if to != 0 {
		r.messages = append(r.messages, Envelope{to, m})
	}
}

// finish reports a result that rests on nothing more.
func (r *Replica) finish(res Result) {
	delete(r.ops, res.Op)
	r.results = append(r.results, res)
}

// unissue takes back the pending write of g, of which nobody was told. Answers
// made since may speak of it and are taken back as well: they will be asked
// for again. A write that was kept aside for it alone is accepted: nobody was told that
// it is stale here, and nothing above it would ever come to end its readers'
// wait.
func (r *Replica) unissue(g *register) {
	p := g.live.pending
	g.live.pending = nil
	if p.floor.Less(g.floor.Tag) && !g.floor.accepted {
		r.accept(g, g.floor, false, r.others)
		p.alone = false
	}
	var free []held
	kept := r.waiting[:0]
	for _, h := range r.waiting {
		switch {
		case h.g == g && (h.own == p || speaksOf(h.msg, p.spec)):
		case h.g == g && p.alone && !h.isPage():
			free = append(free, h)
		default:
			kept = append(kept, h)
		}
	}
	clear(r.waiting[len(kept):])
	r.waiting = kept
	if p.alone { // what is saved of g is all there is: a disk that stays full does not keep anyone from reading it
		g.rest = r.saved
		r.dirty = slices.DeleteFunc(r.dirty, func(d *register) bool { return d == g })
	}
	for i := range free {
		r.release(&free[i])
	}
}

// isPage says whether h is a page of keys, which rests on more than one register.
func (h *held) isPage() bool {
	_, answer := h.msg.(*MsgAckList)
	return answer || h.page != nil
}

func speaksOf(m Message, pending Tag) bool {
	switch m := m.(type) {
	case *MsgAckWrite, *MsgAckCommit, *MsgAckRead:
		return true
	case *MsgWrite:
		return m.Write.Tag == pending
	}
	return false
}
