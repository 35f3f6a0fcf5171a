package register

import "slices"

// Progress is how far a voter is known to have come: its boot, and the highest
// number of a record that it has saved. Both only rise. A voter whose own
// directory says less than others have heard has forgotten what it promised,
// and must not vote (PROTOCOL.md section 7, forgetting).
type Progress struct {
	_     struct{} `cbor:",toarray"`
	Voter Voter
	Boot  uint64
	Saved Seq
}

// standing is whether this voter may vote, and what it has heard of all.
type standing struct {
	asking  bool                // it does not vote yet: others are asked first
	asked   Set                 // of those, who has answered
	waited  int                 // ticks spent asking
	resumes []string            // keys whose pending writes are taken up when it votes
	pending map[string]*Pending // in those
	forgot  *Progress           // what others have heard of this voter, and it has forgotten
	heard   []Progress          // of the others, by voter
	boots   map[Voter]uint64    // of the others, the latest that has spoken since this start
	told    Seq                 // the highest saved, but for notes alone
	noting  bool                // a note of them is in the save under way
	unsaved bool                // heard or forgot have changed since they were saved
}

// askFor is for how many ticks a starting voter waits for all others; then a
// read quorum is enough, itself counted.
const askFor = 10

// ForgotError says that this voter's directory is older than what it has told
// others: a restored image, or a copy.
type ForgotError struct {
	Here  Progress // what the directory holds
	Heard Progress // what others have heard
}

func (e *ForgotError) Error() string {
	return invalid("others have heard of record %d in boot %d of this voter, and here there is record %d in boot %d",
		e.Heard.Saved, e.Heard.Boot, e.Here.Saved, e.Here.Boot).Error()
}

// Votes says whether r takes part: it has not, as long as it asks others what
// they have heard of it. Until then operations wait.
func (r *Replica) Votes() bool { return !r.asking }

// Awaits returns the voters that r has asked and that have not answered, while it
// does not vote.
func (r *Replica) Awaits() Set {
	if !r.asking || r.forgot != nil {
		return 0
	}
	return r.others &^ r.asked
}

// Forgot returns a ForgotError once r knows that it has forgotten what it
// promised. From then on it never votes, after further starts neither.
func (r *Replica) Forgot() error {
	if r.forgot == nil {
		return nil
	}
	return &ForgotError{Here: Progress{Voter: r.self, Boot: r.boot, Saved: r.started}, Heard: *r.forgot}
}

// Progress returns how far each voter is known to have come, this one included
// while it votes. It travels with each batch of messages.
func (r *Replica) Progress() []Progress {
	out := slices.Clone(r.heard)
	if !r.asking {
		out = append(out, Progress{Voter: r.self, Boot: r.boot, Saved: r.told})
	}
	return out
}

// Hear takes in what a batch of messages from a voter says of voters: boot is the
// one that from sent it in. It returns false where a later start of from has
// spoken already: then the messages of the batch must not be taken in, for that
// start may have asked what was heard of it, and have been told less than this.
func (r *Replica) Hear(from Voter, boot uint64, ps []Progress) bool {
	if !r.others.Has(from) {
		return false
	}
	if boot < r.boots[from] { // it may be an older directory that asks: it must hear of the later start
		m := r.heardFor(from, boot)
		m.Boot = r.boots[from]
		r.tell(SetOf(from), m)
		return false
	}
	r.boots[from] = boot
	for _, p := range ps {
		switch {
		case p.Voter == r.self:
			r.hearOfSelf(p)
		case r.others.Has(p.Voter):
			r.hearOf(p)
		}
	}
	return true
}

// hearOf keeps the highest of both. Where a later start has less than an earlier one,
// that voter has forgotten something: the earlier one is kept, for it to be told.
func (r *Replica) hearOf(p Progress) {
	h := r.progressOf(p.Voter)
	if p.Boot > h.Boot && p.Saved < h.Saved {
		return
	}
	if p.Boot < h.Boot && p.Saved > h.Saved {
		*h, r.unsaved = p, true
		return
	}
	if p.Boot > h.Boot || p.Saved > h.Saved {
		h.Boot, h.Saved = max(h.Boot, p.Boot), max(h.Saved, p.Saved)
		r.unsaved = true
	}
}

// hearOfSelf notices that somebody knows of this voter what it does not know
// itself, when it votes already: as late as that, it still stops.
func (r *Replica) hearOfSelf(p Progress) {
	earlier := p.Boot < r.boot && p.Saved > r.started
	if r.asking && r.forgets(p) || p.Boot > r.boot || p.Saved >= r.next || earlier {
		r.forget(p)
	}
}

// forgets says whether p, heard of this voter before this start, is news to it. A
// boot that others have heard of is one that it cannot begin anew.
func (r *Replica) forgets(p Progress) bool { return p.Boot >= r.boot || p.Saved > r.started }

func (r *Replica) progressOf(v Voter) *Progress {
	i, found := slices.BinarySearchFunc(r.heard, v, func(p Progress, v Voter) int { return int(p.Voter) - int(v) })
	if !found {
		r.heard = slices.Insert(r.heard, i, Progress{Voter: v})
	}
	return &r.heard[i]
}

func (r *Replica) forget(p Progress) {
	if r.forgot == nil {
		r.forgot, r.asking, r.unsaved, r.flush = &p, true, true, true
	}
}

// stepAsk tells a starting voter what was heard of it before.
func (r *Replica) stepAsk(from Voter, ask *MsgAsk) {
	r.tell(SetOf(from), r.heardFor(from, ask.Boot))
}

func (r *Replica) heardFor(from Voter, asked uint64) *MsgHeard {
	m := &MsgHeard{Asked: asked}
	for _, p := range r.heard {
		if p.Voter == from {
			m.Boot, m.Saved = p.Boot, p.Saved
		}
	}
	return m
}

// stepHeard takes in another's answer, unless it is one to an earlier start.
func (r *Replica) stepHeard(from Voter, m *MsgHeard) {
	p := Progress{Voter: r.self, Boot: m.Boot, Saved: m.Saved}
	if !r.asking { // it comes late
		r.hearOfSelf(p)
		return
	}
	if r.forgot != nil || m.Asked != r.boot {
		return
	}
	if r.forgets(p) {
		r.forget(p)
		return
	}
	r.asked = r.asked.With(from)
	if r.asked == r.others {
		r.vote()
	}
}

// ask asks those that have not answered.
func (r *Replica) ask(to Set) {
	if to &^= r.asked; to != 0 && r.forgot == nil {
		r.tell(to, &MsgAsk{Boot: r.boot})
	}
}

// tickAsking asks again, and makes do with a read quorum after a while: the
// cluster must come up with a voter missing.
func (r *Replica) tickAsking() {
	r.opening = slices.DeleteFunc(r.opening, func(o opening) bool { // its clients have given up
		return o.g.live == nil || !slices.Contains(o.g.live.rounds, o.d)
	})
	if r.waited++; r.forgot == nil && r.waited >= askFor && r.asked.Len()+1 >= r.readQuorum {
		r.vote()
		return
	}
	r.ask(r.others)
}

// vote begins to take part: what a crash cut off is taken up again, what
// waited begins, and the others send again what is unfinished.
func (r *Replica) vote() {
	r.asking = false
	r.takeUp()
	for _, g := range slices.Clone(r.active) {
		if g.live != nil && g.live.pending == nil {
			r.issue(g)
			r.quieten(g)
		}
	}
	r.tell(r.others, &MsgVotes{})
}

// noteRecord is the record of what is heard, which is saved along with others: it
// has no key.
func (r *Replica) noteRecord() Record {
	r.unsaved = false
	return Record{Heard: slices.Clone(r.heard), Forgot: r.forgot}
}

// loadNote takes in a record without a key.
func (r *Replica) loadNote(rec Record) {
	for _, p := range rec.Heard {
		if r.others.Has(p.Voter) {
			r.hearOf(p)
		}
	}
	r.unsaved = false
	if rec.Forgot != nil {
		r.forgot, r.asking = rec.Forgot, true
	}
}
