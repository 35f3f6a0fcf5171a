package sim

import (
	"time"

	"gus/register"
)

// pull lets v pull from peer what it lacks of what peer shows, as agents do on
// a stream of their own: no faster than the network, and with its losses.
func (v *voter) pull(peer *voter) {
	if v.core == nil || peer.core == nil || !v.core.Votes() || !v.w.net.pairs[peer.pos][v.pos] {
		return
	}
	for _, s := range peer.core.Show(v.w.keys) {
		if !v.core.Lacks(s) {
			continue
		}
		for _, m := range peer.core.Catchup([]string{s.Key}) {
			v.w.outcome.Marks.said(m)
			if !v.w.cfg.unwatched {
				v.w.watch.said(peer, m)
			}
			v.w.net.send(peer.pos, v.pos, m)
		}
	}
}

// pullOne lets one voter pull from another, or read a key for its own sake.
func (w *world) pullOne() {
	i := w.rng.IntN(len(w.voters))
	j := (i + 1 + w.rng.IntN(len(w.voters)-1)) % len(w.voters)
	v := w.voters[i]
	if v.core == nil {
		return
	}
	if w.rng.IntN(4) == 0 {
		key := w.keys[w.rng.IntN(len(w.keys))]
		w.outcome.Marks.hit(MarkReread, true)
		w.log(traceReread, uint64(i), func() string { return v.name() + " rereads " + key })
		v.input(func() { v.core.Reread(key) })
		return
	}
	w.log(tracePull, uint64(i)<<8|uint64(j), func() string { return v.name() + " pulls from " + w.voters[j].name() })
	v.pull(w.voters[j])
}

// pullEverywhere lets all voters pull from all others. Then they agree in all
// that is settled, without any read, and everything is settled.
func (w *world) pullEverywhere() {
	for _, v := range w.voters {
		for _, p := range w.voters {
			if p != v {
				v.pull(p)
			}
		}
	}
	w.settle()
	if w.over() {
		return
	}
	first := w.voters[0]
	for _, v := range w.voters {
		v.checkContent()
		if v.core.Digests() == first.core.Digests() {
			continue
		}
		for i, s := range v.core.Show(w.keys) {
			if f := first.core.Show(w.keys)[i]; s != f {
				w.fail("after catching up, %s shows %+v, and %s shows %+v", v.name(), s, first.name(), f)
			}
		}
	}
}

// checkContent holds the digests, which are kept up with each change, against
// sums over all keys. At rest all is durable.
func (v *voter) checkContent() {
	var want [register.Partitions]uint64
	for _, s := range v.core.Show(v.w.keys) {
		if s.Settled() {
			want[register.Partition(s.Key)] += s.Sum
		}
	}
	if got := v.core.Digests(); got != want {
		v.w.fail("the digests of %s are %x, and its keys come to %x", v.name(), got, want)
	}
}

// remembers checks whether v has noticed that it forgot: it must not, unless
// its disk was rolled back, and then the run is over.
func (v *voter) remembers() {
	err := v.core.Forgot()
	switch {
	case err == nil && v.core.Outpaced() == 0:
	case err == nil:
		v.w.fail("%s is outpaced by start %d", v.name(), v.core.Outpaced())
	case !v.rolled:
		v.w.fail("%s with its own disk: %v", v.name(), err)
	default:
		v.w.outcome.Forgot = true
		for _, o := range v.w.history {
			if o.Fate == Open {
				o.Fate = Unknown
			}
		}
	}
}

// planRollback plans to take an image of a voter's disk at some moment of span,
// and to put it back at a later one.
func (w *world) planRollback(span time.Duration) {
	v := w.voters[w.rng.IntN(len(w.voters))]
	at := time.Duration(w.rng.Float64() * float64(span))
	w.line.after(at, func() {
		image := v.disk.Image()
		w.line.after(time.Duration(w.rng.Float64()*float64(span-at)), func() {
			if w.healing || v.core == nil {
				return
			}
			v.crash()
			v.disk, v.rolled = image, true
			v.follower.forget()
			v.puller.forget()
			w.log(traceRollback, uint64(v.pos), func() string { return v.name() + " is put back to an older image" })
			w.restart(v)
		})
	})
}
