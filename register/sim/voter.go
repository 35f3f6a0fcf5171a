package sim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"gus/register"
)

// voter is one site: a replica and what is around it. It is the replica's
// register.Store and register.Transport, and plays the loop of an agent.
type voter struct {
	w       *world
	pos     int // among the world's voters
	id      register.Voter
	disk    Disk
	core    *register.Replica // nil while it is down
	life    int               // raised at each crash: what a past life planned does not happen
	turning bool              // inputs came since Drive was called
	full    bool              // the disk is
	rolled  bool              // the disk was put back to an older image
	slow    float64           // what its saves take, in typical ones
	ahead   int64             // of its clock, in milliseconds
	live    map[register.Op]*Operation
	gate    []*Operation // sets that wait for a write quorum to be connected
	peeked  map[string]register.Tag
	turns   int            // calls of Drive
	gets    map[string]int // by key: the turn in which a get began last

	follower *follower
	puller   *puller
	pulls    *pulling
	cursors  []register.Seq // into the saves of each other, of its pulls
	kept     []register.Seq // that a crash leaves
}

func (v *voter) name() string { return "v" + strconv.Itoa(int(v.id)) }

// start starts v from its disk.
func (v *voter) start() {
	w := v.w
	if w.rng.IntN(2) == 0 {
		v.disk.Fold()
	}
	boot := v.disk.Open()
	v.live, v.peeked, v.gets = map[register.Op]*Operation{}, map[string]register.Tag{}, map[string]int{}
	for _, k := range w.keys {
		if p := v.disk.Current(k).Pending; p != nil {
			w.outcome.Marks.hit(MarkRecoveredPhase1, p.Spec == p.Write.Tag)
			w.outcome.Marks.hit(MarkRecoveredPhase2, p.Spec != p.Write.Tag)
		}
	}
	core, err := w.cfg.New(register.Config{
		Self: v.id, Voters: w.ids, ReadQuorum: w.cfg.ReadQuorum, WriteQuorum: w.cfg.WriteQuorum,
		Boot: boot, Saved: v.disk.Last(), Ask: w.cfg.Ask,
	}, v.disk.Records())
	if err != nil {
		w.fail("%s does not start from its own disk: %v", v.name(), err)
		return
	}
	v.core = core
	w.outcome.Marks.hit(MarkAsks, !core.Votes())
	w.log(traceStart, uint64(v.pos), func() string { return "start " + v.name() })
	v.input(func() {})
	life := v.life
	w.line.after(time.Duration(w.rng.Int64N(int64(w.cfg.TickEvery))), func() { v.tick(life) })
}

// crash ends v's life. What it had not saved is lost, or not quite.
func (v *voter) crash() {
	w := v.w
	w.outcome.Stats.Crashes++
	w.outcome.Marks.hit(MarkCrashedInSave, v.disk.open != nil)
	w.log(traceCrash, uint64(v.pos), func() string { return "crash " + v.name() })
	v.disk.Crash(w.rng.IntN(2) == 0)
	v.core, v.turning = nil, false
	v.follower.crashed()
	v.cursors = slices.Clone(v.kept)
	v.life++
	for _, o := range w.history {
		if o.Voter == v.id && o.Fate == Open {
			o.Fate = Unknown
		}
	}
	for _, o := range v.gate {
		o.Fate = Never
	}
	v.live, v.gate = nil, nil
	for j := range w.voters {
		if j != v.pos {
			w.net.breakPair(v.pos, j)
		}
	}
}

func (v *voter) tick(life int) {
	if life != v.life || v.w.over() {
		return
	}
	v.input(v.core.Tick)
	v.peek()
	v.remembers()
	v.w.line.after(v.w.cfg.TickEvery, func() { v.tick(life) })
}

// input gives v an input and sees to it that Drive is called after the turn.
func (v *voter) input(do func()) {
	if !v.turning {
		v.core.Clock(v.clock())
	}
	do()
	if v.turning {
		return
	}
	v.turning = true
	life := v.life
	turn := time.Duration(0)
	if v.w.cfg.Turn > 0 {
		turn = time.Duration(v.w.rng.Int64N(int64(v.w.cfg.Turn)))
	}
	v.w.line.after(turn, func() {
		if life == v.life {
			v.turning = false
			v.turns++
			v.follower.turn()
			v.puller.turn()
			register.Drive(v.core, v, v, v.report)
			for _, m := range v.w.movers {
				m.turn(v)
			}
		}
	})
}

func (v *voter) receive(from *voter, m register.Message, d digest, h header) {
	if v.core == nil {
		v.w.outcome.Stats.Lost++
		return
	}
	v.w.outcome.Stats.Messages++
	v.w.log(traceMessage, uint64(d.num(uint64(from.pos)<<8|uint64(v.pos))), func() string {
		return from.name() + " -> " + v.name() + " " + describe(m)
	})
	v.input(func() {
		if w := v.w; w.cfg.Ask && !v.core.Hear(from.id, h.boot, h.heard) {
			w.outcome.Marks.hit(MarkOldStart, true)
			return
		}
		if err := v.core.Step(from.id, m); err != nil {
			v.w.fail("%s refuses %s of %s: %v", v.name(), describe(m), from.name(), err)
		}
	})
}

// reconnected is called when v notices that the connection to peer is back.
func (v *voter) reconnected(peer *voter) {
	if v.core == nil {
		return
	}
	v.input(func() { v.core.Resend(peer.id) })
	v.openGate()
	if v.w.cfg.Catchup {
		v.pull(peer)
	}
}

// Save implements register.Store.
func (v *voter) Save(seq register.Seq, records []register.Record) {
	w := v.w
	v.disk.Save(seq, records)
	w.outcome.Stats.Saves++
	took := time.Duration(float64(w.cfg.SaveTime) * v.slow * (0.5 + w.rng.Float64()))
	life := v.life
	w.line.after(took, func() {
		if life == v.life {
			v.saved()
		}
	})
}

func (v *voter) saved() {
	w := v.w
	if !w.healing && (v.full || w.rng.Float64() < w.cfg.SaveFails) {
		seq := v.disk.Fail()
		w.outcome.Marks.hit(MarkSaveFailed, true)
		w.log(traceSaveFailed, uint64(v.pos)<<32|uint64(seq), func() string { return v.name() + " could not save " + strconv.Itoa(int(seq)) })
		v.input(func() { v.core.SaveFailed(seq) })
		return
	}
	seq := v.disk.Complete()
	w.log(traceSaved, uint64(v.pos)<<32|uint64(seq), func() string { return v.name() + " saved " + strconv.Itoa(int(seq)) })
	v.input(func() { v.core.Saved(seq) })
}

// Send implements register.Transport.
func (v *voter) Send(to register.Set, m register.Message) {
	w := v.w
	w.outcome.Marks.said(m)
	if !w.cfg.unwatched {
		w.watch.said(v, m)
	}
	if to == 0 || to.Has(v.id) {
		w.fail("%s sends %s to %b", v.name(), describe(m), to)
		return
	}
	for id := range to.All {
		p := w.byID[id]
		if p == nil {
			w.fail("%s sends to voter %d, who does not exist", v.name(), id)
			return
		}
		w.net.send(v.pos, p.pos, m)
	}
}

// clock is what v's clock reads, in milliseconds since 1970.
func (v *voter) clock() int64 {
	switch v.w.cfg.Clocks {
	case ClocksStopped, ClocksNear:
		return v.ahead
	}
	return midLife + v.ahead + v.w.line.now.Milliseconds()
}

// midLife is when runs take place, in milliseconds since 1970: decades from
// either end, so that no clock of a run is out of all bounds by itself.
const midLife = 1_700_000_000_000

func (v *voter) setClock(rng *rand.Rand) {
	hours := int64(time.Hour / time.Millisecond)
	switch v.w.cfg.Clocks {
	case ClocksStopped:
		v.ahead = 0
	case ClocksNear:
		v.ahead = rng.Int64N(10)
	case ClocksInStep:
		v.ahead = rng.Int64N(5)
	case ClocksHours:
		v.ahead = rng.Int64N(12*hours) - 6*hours
	case ClocksDecades:
		v.ahead = (rng.Int64N(100) - 50) * 365 * 24 * hours
	}
}
