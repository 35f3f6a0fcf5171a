package sim

import (
	"fmt"
	"time"
)

// planFaults plans all faults of a run for random moments of span.
func (w *world) planFaults(span time.Duration) {
	c := &w.cfg
	plan := func(times int, do func()) {
		for range times {
			w.line.after(time.Duration(w.rng.Float64()*float64(span)), func() {
				if !w.healing {
					do()
				}
			})
		}
	}
	plan(c.Crashes, w.crashOne)
	plan(c.Blackouts, w.blackout)
	plan(c.FullDisks, w.fillDisk)
	if c.Rollback {
		w.planRollback(span)
	}
	plan(c.ClockJumps, func() { w.voters[w.rng.IntN(c.Voters)].setClock(w.rng) })
	if c.Voters > 1 {
		plan(c.Pulls, w.pullOne)
		plan(c.Adopt, w.pullByCursor)
		plan(c.Breaks, w.breakOne)
		plan(c.Cuts, w.cutSome)
	}
}

// crashOne crashes a voter, which starts again after a while; where it would
// not, a quorum is left.
func (w *world) crashOne() {
	v := w.voters[w.rng.IntN(len(w.voters))]
	if v.core == nil {
		return
	}
	if w.cfg.Restart == 0 {
		up := 0
		for _, o := range w.voters {
			if o.core != nil {
				up++
			}
		}
		if up <= w.quorum() {
			return
		}
		v.crash()
		return
	}
	w.crashFor(v, w.exp(w.cfg.Restart))
}

// blackout crashes all voters. They start again one by one.
func (w *world) blackout() {
	for _, v := range w.voters {
		if v.core != nil {
			w.crashFor(v, w.exp(w.cfg.Restart))
		}
	}
}

// crashFor crashes v, which starts again after d.
func (w *world) crashFor(v *voter, d time.Duration) {
	v.crash()
	w.line.after(d, func() {
		if !w.healing && v.core == nil {
			w.restart(v)
		}
	})
}

// restart starts v again; its connections come back one by one.
func (w *world) restart(v *voter) {
	w.orphans++
	w.outcome.Stats.Recoveries++
	v.start()
	for j := range w.voters {
		if j != v.pos {
			w.reconnect(v.pos, j, w.exp(3*w.cfg.Unit))
		}
	}
}

// reconnect tries to connect two voters again after d, and so on.
func (w *world) reconnect(i, j int, d time.Duration) {
	w.line.after(d, func() {
		a, b := w.voters[i], w.voters[j]
		if w.over() || a.core == nil || b.core == nil {
			return // whoever starts tries again
		}
		if !w.net.connect(i, j) {
			w.reconnect(i, j, w.exp(w.cfg.Outage/4)+w.cfg.Unit)
		}
	})
}

func (w *world) breakOne() {
	i := w.rng.IntN(len(w.voters))
	j := (i + 1 + w.rng.IntN(len(w.voters)-1)) % len(w.voters)
	w.log(traceBreak, uint64(i)<<8|uint64(j), func() string { return "break " + w.voters[i].name() + " " + w.voters[j].name() })
	w.net.breakPair(i, j)
	w.reconnect(i, j, w.exp(w.cfg.Outage))
}

// cutSome cuts links one way or both, between two groups or around one voter.
// The connections of what is cut break only at times: else nobody notices.
func (w *world) cutSome() {
	n := len(w.voters)
	var side uint64
	if w.rng.IntN(2) == 0 {
		side = 1 << w.rng.IntN(n)
	} else {
		side = w.rng.Uint64N(1 << n)
	}
	ways, noticed := 1+w.rng.IntN(3), w.rng.IntN(3) == 0
	w.log(traceCut, side<<8|uint64(ways), func() string { return fmt.Sprintf("cut %b, ways %d, noticed %v", side, ways, noticed) })
	var cut []*link
	for i := range n {
		for j := range n {
			in, out := side>>i&1 == 0 && side>>j&1 == 1, side>>i&1 == 1 && side>>j&1 == 0
			if in && ways&1 != 0 || out && ways&2 != 0 {
				cut = append(cut, &w.net.links[i][j])
				w.net.links[i][j].cuts++
				if noticed {
					w.net.breakPair(i, j)
					w.reconnect(i, j, w.exp(w.cfg.Outage))
				}
			}
		}
	}
	w.line.after(w.exp(w.cfg.Outage), func() {
		if !w.healing {
			for _, l := range cut {
				l.cuts--
			}
		}
	})
}

func (w *world) fillDisk() {
	v := w.voters[w.rng.IntN(len(w.voters))]
	v.full = true
	w.line.after(w.exp(w.cfg.Outage), func() { v.full = false })
}
