package sim

import (
	"math"
	"time"

	"gus/register"
)

// limit is the virtual time within which whatever is in progress has to end
// once the faults are over: enough for many ticks, which come less and less
// often for one who waits, and for the slowest message of before.
func (w *world) limit() time.Duration {
	c := &w.cfg
	return 200*c.TickEvery + time.Duration(100*float64(c.Unit)*math.Exp(c.Tail)) + 100*c.SaveTime
}

// until lets events happen until done, and says whether that came within limit.
func (w *world) until(done func() bool) bool {
	end := w.line.now + w.limit()
	for !w.over() {
		if done() {
			return true
		}
		if !w.line.step(end) {
			return false
		}
	}
	return true // the run has failed already
}

// quorum is the number of voters that have to be up for reads and writes.
func (w *world) quorum() int {
	read, write, _ := w.cfg.quorums()
	return max(read, write)
}

// healQuorum ends the faults of no more than a quorum of voters, those that
// are up first, and demands that all of their operations end. A write may have
// to wait for further voters only where some owner no longer knows of all its
// own writes: then its client gives up, and reads have to end still. So it is
// where there is no more than a read quorum.
func (w *world) healQuorum() {
	var chosen, rest []*voter
	for _, i := range w.rng.Perm(len(w.voters)) {
		if v := w.voters[i]; v.core != nil {
			chosen = append(chosen, v)
		} else {
			rest = append(rest, v)
		}
	}
	chosen = append(chosen, rest...)
	size, reads := w.quorum(), w.cfg.ReadsOnly
	if reads {
		size, _, _ = w.cfg.quorums()
	}
	rest, chosen = chosen[size:], chosen[:size]
	for _, v := range rest {
		if v.core != nil {
			v.crash()
		}
	}
	w.heal(chosen)
	_, _, noWait := w.cfg.quorums()
	if reads || !w.until(w.allEnded) {
		if !reads && noWait && w.orphans == 0 {
			w.hang("with a quorum up")
			return
		}
		for _, o := range w.history {
			if o.Fate == Open && o.writes() {
				w.giveUp(w.byID[o.Voter], o)
			}
		}
		if !w.until(w.allEnded) {
			w.hang("with a quorum up and no write in progress")
			return
		}
	}
	w.outcome.Marks.hit(MarkQuorumOnly, true)
}

// healAll ends all faults, demands that all operations end and that all voters
// come to rest, and reads every key everywhere.
func (w *world) healAll() {
	w.heal(w.voters)
	if !w.until(w.allEnded) {
		w.hang("with all voters up")
		return
	}
	w.settle()
	if w.cfg.Catchup && !w.over() {
		w.pullEverywhere()
	}
	w.readEverywhere()
	if w.cfg.Lists > 0 {
		w.listEverywhere()
	}
	w.settle()
	for _, v := range w.voters {
		w.atRest(v)
		if !w.over() && !w.cfg.unwatched {
			v.follower.complete()
			v.puller.complete()
			w.observer.complete(v)
		}
	}
	for _, m := range w.movers {
		if !w.over() {
			m.complete()
		}
	}
}

// heal ends the faults of some voters: they are up, connected, and can save.
func (w *world) heal(some []*voter) {
	w.healing, w.net.calm = true, true
	w.log(traceHeal, uint64(len(some)), func() string { return "heal" })
	for i := range w.net.links {
		for j := range w.net.links[i] {
			w.net.links[i][j].cuts = 0
		}
	}
	for _, v := range some {
		v.full = false
		if v.core == nil {
			w.orphans++
			w.outcome.Stats.Recoveries++
			v.start()
		}
	}
	for _, a := range some {
		for _, b := range some {
			if a.pos < b.pos {
				w.net.connect(a.pos, b.pos)
			}
		}
	}
	for _, v := range some {
		v.openGate()
	}
}

// powerCut crashes everybody at once and demands that nothing was lost.
func (w *world) powerCut() {
	for _, v := range w.voters {
		v.crash()
	}
	w.heal(w.voters)
	w.settle()
	w.readEverywhere()
}

// readEverywhere reads each key at each voter, one after another: nothing is
// being written, so all have to see the same version.
func (w *world) readEverywhere() {
	for _, key := range w.keys {
		var first *Operation
		for _, v := range w.voters {
			o := &Operation{Voter: v.id, Key: key, Kind: Get}
			w.invoke(v, o)
			if !w.until(w.allEnded) {
				w.hang("when all was over")
			}
			if w.over() {
				return
			}
			if first == nil {
				first = o
			}
			if o.Tag != first.Tag || o.Value != first.Value || o.Found != first.Found {
				w.fail("when all is over, voters differ: %v, %v", first, o)
				return
			}
			w.final(key, o.Tag)
		}
	}
}

func (w *world) final(key string, t register.Tag) {
	if w.finals == nil {
		w.finals = map[string]register.Tag{}
	}
	w.finals[key] = t
}

// settle waits until nothing happens any more, not of the voters' own accord
// either: a decided write that a crash kept from being told to anybody is read
// after two ticks.
func (w *world) settle() {
	rested := w.until(w.quiet)
	for end := w.line.now + 3*w.cfg.TickEvery; w.line.step(end); {
	}
	if !rested || !w.until(w.quiet) {
		for _, v := range w.voters {
			if s := v.core.Status(); !resting(s) {
				w.fail("%s does not come to rest: %+v", v.name(), s)
			}
		}
		w.fail("the voters do not come to rest: %d messages under way", w.net.busy)
	}
}

func (w *world) quiet() bool {
	if w.net.busy > 0 || !w.allEnded() {
		return false
	}
	for _, v := range w.voters {
		if v.turning || v.disk.open != nil || !resting(v.core.Status()) {
			return false
		}
	}
	return true
}

// resting says whether nothing is in progress at a voter with the status s. Its
// registers may be active still: what was heard of a write is kept until it is
// known to be decided, and the owner that could say so may have been cut off.
func resting(s register.Status) bool { return s.Writes+s.Reads+s.Unsettled == 0 }

// allEnded says whether no operation is in progress at a voter that is up.
func (w *world) allEnded() bool {
	for _, v := range w.voters {
		if len(v.live) > 0 || len(v.gate) > 0 {
			return false
		}
	}
	return true
}

// atRest checks what a voter says of itself when all is over.
func (w *world) atRest(v *voter) {
	if w.over() {
		return
	}
	if s := v.core.Status(); !resting(s) || s.Saving {
		w.fail("when all is over, %s is not at rest: %+v", v.name(), s)
	}
	v.checkContent()
	for _, k := range w.keys {
		if l := v.core.Peek(k); l.Tag != w.finals[k] || l.Newer || l.Pending {
			w.fail("when all is over, %s knows %s to be %+v, but reads gave version %v", v.name(), k, l, w.finals[k])
		}
	}
}

func (w *world) hang(when string) {
	for _, o := range w.history {
		if o.Fate == Open {
			w.fail("%v never ends %s", o, when)
		}
	}
	w.fail("something never ends %s", when)
}
