package sim

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"gus/register"
)

// arrive lets an operation begin, at times several at one voter, and plans the
// next one.
func (w *world) arrive() {
	if w.healing || w.arrived >= w.cfg.Ops {
		return
	}
	if v := w.pickUp(); v != nil {
		w.begin(v)
		for w.rng.Float64() < w.cfg.Burst && w.arrived < w.cfg.Ops {
			w.begin(v)
		}
	}
	w.line.after(w.exp(w.cfg.Pace), w.arrive)
}

// begin lets a client at v begin an operation of its choice.
func (w *world) begin(v *voter) {
	w.arrived++
	if w.cfg.Lists > 0 && w.rng.Float64() < w.cfg.Lists {
		w.beginList(v)
		return
	}
	key := w.keys[w.rng.IntN(len(w.keys))]
	sets := w.rng.Float64() < w.cfg.Sets && v.pos < w.cfg.Writers
	o := &Operation{Voter: v.id, Key: key, Kind: Get}
	if sets {
		o.Kind, o.Value = Set, key+"="+strconv.Itoa(len(w.history)+1)
		switch {
		case w.rng.Float64() < w.cfg.Deletes:
			o.Kind, o.Value = Delete, ""
		case w.rng.IntN(50) == 0:
			o.Value = "" // an empty value is one, too
		}
	}
	w.invoke(v, o)
	w.losePatience(v, o)
}

// losePatience lets the client of o give it up after a while, or not.
func (w *world) losePatience(v *voter, o *Operation) {
	if w.rng.Float64() < w.cfg.GiveUp {
		w.line.after(w.exp(w.cfg.Patience), func() { w.giveUp(v, o) })
	}
}

// invoke begins o at v, or, if it is to wait at the gate, lets it wait.
func (w *world) invoke(v *voter, o *Operation) {
	o.ID = register.Op(len(w.history) + 1)
	w.history = append(w.history, o)
	w.clock++
	o.Call = w.clock
	_, write, _ := w.cfg.quorums()
	if o.writes() && w.cfg.Gate && w.net.connected(v.pos) < write-1 {
		v.gate = append(v.gate, o)
		return
	}
	v.hand(o)
}

// hand gives o to the replica.
func (v *voter) hand(o *Operation) {
	v.live[o.ID] = o
	v.w.log(traceInvoke, uint64(o.ID), func() string { return v.name() + " begins " + o.String() })
	v.input(func() {
		switch o.Kind {
		case List:
			v.core.List(o.ID, o.Page.Prefix, o.Page.After, o.Page.Limit)
		case Get:
			turn, again := v.gets[o.Key]
			v.w.outcome.Marks.hit(MarkSharedRound, again && turn == v.turns)
			v.gets[o.Key] = v.turns
			v.core.Get(o.ID, o.Key)
		default:
			v.core.Set(o.ID, o.Key, []byte(o.Value), o.Kind == Delete)
		}
	})
}

func (v *voter) openGate() {
	_, write, _ := v.w.cfg.quorums()
	if v.w.net.connected(v.pos) < write-1 {
		return
	}
	ops := v.gate
	v.gate = nil
	for _, o := range ops {
		v.hand(o)
	}
}

// giveUp ends a client's interest in o.
func (w *world) giveUp(v *voter, o *Operation) {
	if o.Fate != Open {
		return
	}
	for i, g := range v.gate {
		if g == o {
			v.gate = append(v.gate[:i:i], v.gate[i+1:]...)
			o.Fate = Never
			return
		}
	}
	delete(v.live, o.ID)
	var sent bool
	v.input(func() { sent = v.core.Drop(o.ID) })
	w.log(traceDrop, uint64(o.ID), func() string { return fmt.Sprintf("%s drops %v: sent %v", v.name(), o, sent) })
	switch {
	case !o.writes() && sent:
		w.fail("Drop of a read says that it was sent: %v", o)
	case sent:
		o.Fate = Unknown
		w.orphans++
		w.outcome.Marks.hit(MarkAbandoned, true)
	default:
		o.Fate = Never
		w.outcome.Marks.hit(MarkDroppedUnsent, o.writes())
		w.outcome.Marks.hit(MarkListDropped, o.Kind == List)
	}
}

// report takes a result from the replica.
func (v *voter) report(r register.Result) {
	w := v.w
	o := v.live[r.Op]
	if o == nil {
		w.fail("%s has a result for operation %d, which nobody waits for", v.name(), r.Op)
		return
	}
	delete(v.live, r.Op)
	w.clock++
	o.Return, o.Fate = w.clock, Done
	o.Tag, o.Found, o.RoundTrips = r.Tag, r.Found, r.RoundTrips
	if o.Kind == Get {
		o.Value = string(r.Value)
	}
	if o.Kind == List {
		o.Page.Entries, o.Page.Next = r.Entries, r.Next
	}
	w.log(traceReturn, uint64(digest(o.ID).tag(r.Tag).text(string(r.Value)).entries(r.Entries).text(r.Next)), func() string { return v.name() + " ends " + o.String() })
	if r.Err != nil {
		w.refused(v, o, r.Err)
		return
	}
	if o.writes() {
		w.outcome.Marks.hit(MarkCoalesced, w.watch.written[version{o.Key, o.Tag}])
		w.watch.written[version{o.Key, o.Tag}] = true
	}
	w.count(o)
	if !w.cfg.unwatched {
		w.watch.completed(v, o)
	}
	if o.Kind == List {
		w.listed(v, o)
	}
}

// refused takes the result of a write that never happened.
func (w *world) refused(v *voter, o *Operation, err error) {
	o.Fate = Never
	w.outcome.Marks.hit(MarkNotSaved, errors.Is(err, register.ErrNotSaved))
	if !o.writes() || !errors.Is(err, register.ErrNotSaved) {
		w.fail("%s ends %v with the error: %v", v.name(), o, err)
	}
}

// count counts a complete operation by its message rounds.
func (w *world) count(o *Operation) {
	s, fast := &w.outcome.Stats, o.RoundTrips <= 1
	switch {
	case o.Kind == List && fast:
		s.FastLists++
		w.outcome.Marks.hit(MarkListAgreed, len(o.Page.Entries) > 0)
	case o.Kind == List:
		s.SlowLists++
		w.outcome.Marks.hit(MarkListRead, true)
	case o.Kind == Get && fast:
		s.FastReads++
	case o.Kind == Get:
		s.SlowReads++
		w.outcome.Marks.hit(MarkSlowRead, true)
	case fast:
		s.FastWrites++
	default:
		s.SlowWrites++
		w.outcome.Marks.hit(MarkSlowWrite, true)
	}
}

// pickUp picks a voter that is up, if there is one.
func (w *world) pickUp() *voter {
	var up []*voter
	for _, v := range w.voters {
		if v.core != nil {
			up = append(up, v)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[w.rng.IntN(len(up))]
}

// exp draws a time around mean, now and then much longer.
func (w *world) exp(mean time.Duration) time.Duration {
	return time.Duration(w.rng.ExpFloat64() * float64(mean))
}
