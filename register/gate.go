package register

// gate is the outbox: it keeps "durable before said" (PROTOCOL.md section 6).
// What rests on a record that is not yet durable waits here, so that nobody
// outside the replica can say it too early: they do not have it.
type gate struct {
	saved   Seq  // the highest known to be durable
	saving  Seq  // under way; 0: none
	next    Seq  // the next save's
	stalled bool // the last save failed: none is tried before the next Tick
	flush   bool // marks alone are worth a save

	dirty   []*register // to be saved as next
	flying  []*register // being saved
	marks   []*register // to be marked along with the next save
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
	r.startLists()
	r.startRounds()
	var rd Ready
	if r.saving == 0 && !r.stalled && (len(r.dirty) > 0 || r.flush) {
		rd.Records = r.records()
		r.flush = false
	}
	if len(rd.Records) > 0 {
		rd.Seq, r.saving = r.next, r.next
		r.next++
		r.flying, r.dirty = r.dirty, r.flying[:0]
		r.held, r.waiting = r.waiting, r.held[:0]
	}
	rd.Messages, r.messages = r.messages, nil
	rd.Results, r.results = r.results, nil
	return rd
}

// Saved says that the records of seq, and so of all before, are durable.
func (r *Replica) Saved(seq Seq) {
	must(seq == r.saving && seq != 0, "Saved answers the save under way")
	r.saved, r.saving = seq, 0
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
	r.flying, r.held = flying[:0], held[:0]
}

// SaveFailed says that the records of seq were cleanly rolled back (PROTOCOL.md
// section 6). Pending writes that were new in them have been said to nobody and
// are dropped: nothing changed. All else stays unsaid and is saved again after the
// next Tick.
func (r *Replica) SaveFailed(seq Seq) {
	must(seq == r.saving && seq != 0, "SaveFailed answers the save under way")
	r.saving, r.stalled = 0, true
	r.waiting = append(r.held, r.waiting...)
	flying := r.flying
	r.held, r.flying = nil, nil
	for _, g := range flying {
		r.touch(g)
	}
	for _, g := range flying {
		if g.live == nil || g.live.pending == nil || g.live.pending.seq != seq {
			continue
		}
		for _, op := range g.live.pending.ops {
			r.finish(Result{Op: op, Err: ErrNotSaved})
		}
		r.unissue(g)
		r.issue(g)
	}
}

// touch notes that g's durable state has changed.
func (r *Replica) touch(g *register) {
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
	if to != 0 {
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
		r.accept(g, g.floor, false)
	}
	kept := r.waiting[:0]
	for _, h := range r.waiting {
		if h.g == g && (h.own == p || speaksOf(h.msg, p.spec)) {
			continue
		}
		kept = append(kept, h)
	}
	clear(r.waiting[len(kept):])
	r.waiting = kept
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
