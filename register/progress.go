package register

import (
	"fmt"
	"slices"
)

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
	asking   bool                // it does not vote yet: others are asked first
	asked    Set                 // of those, who has answered
	waited   int                 // ticks spent asking
	resumes  []string            // keys whose pending writes are taken up when it votes
	pending  map[string]*Pending // in those
	forgot   *Progress           // what others have heard of this voter, and it has forgotten
	heard    []Progress          // of the others, by voter
	boots    map[Voter]uint64    // of the others, the latest that votes, or may, as heard since this start
	outpaced uint64              // a later start of this voter that others have heard of; 0: none
	told     Seq                 // the highest saved, but for notes alone
	noting   bool                // a note of them is in the save under way
	unsaved  bool                // heard or forgot have changed since they were saved
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
	return fmt.Sprintf("others have heard of record %d in boot %d of this voter, and here there is record %d in boot %d",
		e.Heard.Saved, e.Heard.Boot, e.Here.Saved, e.Here.Boot)
}

// Votes says whether r takes part: it has not, as long as it asks others what
// they have heard of it. Until then operations wait.
func (r *Replica) Votes() bool { return !r.asking }

// Awaits returns the voters that r has asked and that have not answered, while it
// does not vote.
func (r *Replica) Awaits() Set {
	if !r.asking || r.mute() {
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
// one that from sent it in. It returns false where a later start of from votes, or
// may, having asked here: then the messages of the batch must not be taken in, for that
// start was told less of them than they say.
func (r *Replica) Hear(from Voter, boot uint64, ps []Progress) bool {
	if !r.others.Has(from) {
		return false
	}
	if boot < r.boots[from] { // whether it votes or asks, it must hear of the later start
		m := r.heardFor(from, boot)
		m.Boot = max(m.Boot, r.boots[from]) // with less, what a later start has saved would seem an earlier one's
		r.tell(SetOf(from), m)
		return false
	}
	for _, p := range ps {
		switch {
		case p.Voter == from && p.Boot == boot: // it votes
			r.boots[from] = boot
			r.hearOf(p)
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
// itself, when it votes already: as late as that, it still stops. Where there is no
// more than a later start, which has asked and may vote, this one has not forgotten
// anything yet: it gives way.
func (r *Replica) hearOfSelf(p Progress) {
	earlier := p.Boot < r.boot && p.Saved > r.started
	switch {
	case r.asking && r.forgets(p) || p.Saved >= r.next || earlier:
		r.forget(p)
	case p.Boot > r.boot:
		r.outpaced, r.asking = max(r.outpaced, p.Boot), true
	}
}

// mute says whether r will not vote whatever others answer.
func (r *Replica) mute() bool { return r.forgot != nil || r.outpaced != 0 }

// Outpaced returns the boot of a later start of this voter that others have heard
// of, from a copy of its directory, while this one was voting; 0: none. It does not
// vote any more: its next start asks which of the two may.
func (r *Replica) Outpaced() uint64 { return r.outpaced }

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

// stepAsk tells a starting voter what was heard of it before. Where it has not
// forgotten any of that it may vote, and no earlier start is heard any more. One
// that has forgotten will not vote, and the start that has not goes on.
func (r *Replica) stepAsk(from Voter, ask *MsgAsk) {
	m := r.heardFor(from, ask.Boot)
	if m.Boot < ask.Boot && m.Saved <= ask.Saved {
		r.boots[from] = max(r.boots[from], ask.Boot)
	}
	r.tell(SetOf(from), m)
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
	if r.mute() || m.Asked != r.boot {
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
	if to &^= r.asked; to != 0 && !r.mute() {
		r.tell(to, &MsgAsk{Boot: r.boot, Saved: r.started})
	}
}

// tickAsking asks again, and makes do with a read quorum after a while: the
// cluster must come up with a voter missing.
func (r *Replica) tickAsking() {
	r.opening = slices.DeleteFunc(r.opening, func(o opening) bool { // its clients have given up
		return o.g.live == nil || !slices.Contains(o.g.live.rounds, o.d)
	})
	if r.waited++; !r.mute() && r.waited >= askFor && r.asked.Len()+1 >= r.readQuorum {
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
