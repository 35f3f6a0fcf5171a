package register

import (
	"iter"
	"slices"
)

// Op names an operation of a local client. The caller chooses it; it is unique
// among the operations of one replica that have no result yet.
type Op uint64

// Result is what an operation came to. Each Set and Get gets exactly one,
// unless it is dropped.
type Result struct {
	Op         Op
	Err        error   // ErrNotSaved, ErrTimestamps: nothing changed; nil otherwise
	Tag        Tag     // the version written or read; of writes that were coalesced, the last one's
	Value      []byte  // a Get's value; not to be changed
	Found      bool    // a Get found a value; false where the key is absent or deleted
	Entries    []Entry // a List's keys, in order
	Next       string  // a List's key to go on after; empty where all were looked at
	RoundTrips int     // message rounds from its first message on: 1, at most 2 unless the operation met others; 0 where this voter is a quorum
	write      bool
}

// Local is what a voter knows of a key without asking anybody.
type Local struct {
	Tag     Tag    // Zero where nothing of the key is known to be settled here
	Value   []byte // not to be changed
	Found   bool   // there is a value: not absent, not deleted
	Newer   bool   // something newer has been heard of and is not known to be settled
	Pending bool   // this voter has a write of its own in progress
}

// Status counts what a replica holds.
type Status struct {
	Keys      int   // registers held, tombstones included
	Bytes     int64 // of their keys and current values
	Active    int   // registers that are not at rest
	Writes    int   // own writes in progress
	Reads     int   // rounds and listings in progress
	Unsettled int   // registers with a write not known to be settled, of the active ones
	Saved     Seq   // the highest Seq known to be durable
	Saving    bool  // a save is under way
}

// Replica is one voter's part in the protocol for all keys: a value that
// reacts. It never blocks and knows no clock but the one it is told. It is not
// safe for concurrent use.
//
// That of an observer has no part in it: it takes in CATCHUP and nothing else, says
// nothing, and has no Set, Get and List.
type Replica struct {
	self        Voter
	voters      Set
	others      Set
	n           int
	readQuorum  int
	writeQuorum int
	boot        uint64

	clock uint64 // what it was last told, as a timestamp
	count uint64 // of rounds
	regs  map[string]*register
	zero  *version // the write behind Zero, shared by all registers
	ops   map[Op]*register
	bytes int64

	// active lists the registers with something going on, and some that have
	// come to rest since the last Tick.
	active   []*register
	internal int         // internal rounds in progress
	rereads  []*register // to be read for the register's own sake

	index    index
	listings []*listing
	content  *content
	fresh    []fresh
	maybe    map[string]Tag // of keys, what may have been told as settled before this start
	started  Seq            // the highest Seq used before it started

	standing
	gate
}

// New returns the replica of cfg.Self with the records that its store holds
// (nil: none), older before newer. What a crash cut off is taken up again by
// the first Ready (PROTOCOL.md section 7).
func New(cfg Config, records iter.Seq2[Record, error]) (*Replica, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Replica{
		self:        cfg.Self,
		voters:      SetOf(cfg.Voters...),
		others:      SetOf(cfg.Voters...).Without(cfg.Self),
		n:           len(cfg.Voters),
		readQuorum:  cfg.ReadQuorum,
		writeQuorum: cfg.WriteQuorum,
		boot:        cfg.Boot,
		regs:        make(map[string]*register, max(0, cfg.Keys)),
		zero:        &version{Write: Write{Deleted: true, Decided: true}, accepted: true, hasValue: true},
		ops:         map[Op]*register{},
		content:     new(content),
		maybe:       map[string]Tag{},
		started:     cfg.Saved,
		standing:    standing{asking: cfg.Ask && cfg.Self != 0 && len(cfg.Voters) > 1, boots: map[Voter]uint64{}, told: cfg.Saved},
		gate:        gate{saved: cfg.Saved, next: cfg.Saved + 1},
	}
	if records != nil {
		if err := r.recover(records, cfg.Keys); err != nil {
			return nil, err
		}
	}
	if r.asking {
		r.ask(r.others)
	} else {
		r.takeUp()
	}
	return r, nil
}

// Clock tells r the physical time in milliseconds since 1970. It may be wrong
// and may go backwards. The owner of r calls it before the inputs of a turn.
func (r *Replica) Clock(ms int64) {
	r.clock = min(uint64(max(ms, 0)), maxClock) << clockBits
}

// Drop ends the interest of the client in op, which gets no result any more.
// It returns false where op was a read, or a write that nobody was told of and
// that now never happens; true where the write may still take effect
// (PROTOCOL.md section 4, abandon).
func (r *Replica) Drop(op Op) (sent bool) {
	g := r.ops[op]
	if g == nil {
		return !r.dropList(op) && r.dropResult(op)
	}
	delete(r.ops, op)
	defer r.quieten(g)
	return !r.dropRead(g, op) && !dropQueued(g, op) && r.dropPending(g, op)
}

// dropResult takes back a result that no Ready has handed out yet, and says
// whether it is that of a write that took effect.
func (r *Replica) dropResult(op Op) (written bool) {
	for i, res := range r.results {
		if res.Op == op {
			r.results = slices.Delete(r.results, i, i+1)
			return res.write && res.Err == nil
		}
	}
	return false
}

// Resend is called when a connection to peer is there (again): what is
// unfinished is sent again to it, answered or not (PROTOCOL.md section 7).
func (r *Replica) Resend(peer Voter) {
	switch {
	case !r.others.Has(peer):
		return
	case r.asking:
		r.ask(SetOf(peer))
		return
	}
	for _, l := range r.listings {
		r.sendList(l, SetOf(peer))
	}
	for _, g := range r.active {
		if g.live == nil {
			continue
		}
		if p := g.live.pending; p != nil {
			r.sendPending(g, SetOf(peer))
		}
		for _, d := range g.live.rounds {
			r.sendRound(g, d, SetOf(peer))
		}
	}
}

// Tick is called once a second: it asks or sends again what was not answered, reads what
// stayed unsettled, and tries again to save what could not be saved.
func (r *Replica) Tick() {
	r.stalled = false
	// A voter that asks saves nothing: the next start must not take such numbers for
	// those of what it had promised.
	r.flush = len(r.marks) > 0 || r.unsaved && (!r.asking || r.forgot != nil)
	r.tidy()
	switch {
	case r.asking:
		r.tickAsking()
		return
	case r.observes():
		return
	}
	r.tickLists()
	for _, g := range r.active {
		r.tickPending(g)
		r.tickRounds(g)
		r.tickOpen(g)
	}
}

// tidy takes out of active what has come to rest.
func (r *Replica) tidy() {
	active := r.active[:0]
	for _, g := range r.active {
		if g.live == nil {
			g.listed = false
			continue
		}
		active = append(active, g)
	}
	clear(r.active[len(active):])
	if len(active) < cap(active)/4 {
		active = slices.Clone(active) // what a burst needed is let go
	}
	r.active = active
	if len(r.waiting)+len(r.held) > maxWaiting {
		r.held, r.waiting = r.thin(r.held), r.thin(r.waiting)
	}
}

// maxWaiting is how many effects may wait for saves before a tick drops what others ask
// for again: a disk that hangs does not fill the memory.
const maxWaiting = 1 << 16

// due says after which ticks something is sent again: after one to two seconds, then at doubling
// intervals up to 16 s.
func due(age int) bool {
	age--
	return age > 0 && (age < 16 && age&(age-1) == 0 || age%16 == 0)
}

// Peek returns the newest settled version of key that is known here.
func (r *Replica) Peek(key string) Local {
	g := r.regs[key]
	if g == nil {
		return Local{}
	}
	v := g.newest()
	l := Local{Newer: v.Tag.Less(g.floor.Tag)}
	if g.live != nil {
		l.Newer = g.ahead(v.Tag)
		l.Pending = g.live.pending != nil
	}
	l.Tag, l.Value, l.Found = v.Tag, v.Value, !v.Deleted
	return l
}

// Status counts what r holds, in time proportional to what is not at rest.
func (r *Replica) Status() Status {
	s := Status{Keys: len(r.regs), Bytes: r.bytes, Reads: len(r.listings), Saved: r.saved, Saving: r.saving != 0}
	for _, g := range r.active {
		if g.live == nil {
			continue
		}
		s.Active++
		s.Reads += len(g.live.rounds)
		if g.live.pending != nil {
			s.Writes++
		}
		if !g.settled() || g.floor != g.cur {
			s.Unsettled++
		}
	}
	return s
}

// open returns the register of key, awake.
func (r *Replica) open(key string) *register {
	g := r.regs[key]
	if g == nil {
		g = &register{key: key, cur: r.zero, floor: r.zero, readable: r.zero}
		r.regs[key] = g
		r.index.insert(g)
		r.bytes += int64(len(key))
	}
	if g.live == nil {
		r.wake(g)
	}
	return g
}

// wake gives g back what live knows at rest: all else is a volatile view of others.
func (r *Replica) wake(g *register) {
	g.live = &live{seen: g.highest()}
	if !g.listed {
		g.listed = true
		r.active = append(r.active, g)
	}
	if r.durable(g) {
		r.note(g, g.cur.Tag, r.self, false)
	}
}

// observes says whether r is an observer's.
func (r *Replica) observes() bool { return r.self == 0 }

// quieten ends each turn of g: once nothing is going on, what is only needed meanwhile
// is let go, and the register itself where the key was never written.
func (r *Replica) quieten(g *register) {
	if g.live == nil || !r.durable(g) || !r.observes() && !g.atRest() {
		return
	}
	g.live = nil
	for _, v := range g.recs {
		if v.Decided {
			v.Value, v.hasValue = nil, false
		}
	}
	if g.cur == r.zero && len(g.recs) == 0 && g.orphanTS == 0 {
		delete(r.regs, g.key)
		r.index.remove(g.key)
		r.bytes -= int64(len(g.key))
	}
}
