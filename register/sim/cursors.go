package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"gus/register"
)

// pages are the keys that a voter's disk has changed, in the order of that, as they are
// read by and by. Of those that are changed again meanwhile some come
// later, or, where again is not set, not at all.
type pages struct {
	keys      []string // still to be read
	seqs      []register.Seq
	again     bool
	end, upto register.Seq // all up to upto were in the pages so far, and up to end will be in all
}

func newPages(v *voter, after register.Seq, again bool) *pages {
	p := &pages{again: again, keys: v.disk.Changed(after), end: max(after, v.core.Durable()), upto: after}
	slices.SortStableFunc(p.keys, func(a, b string) int { return cmp.Compare(v.disk.seqs[a], v.disk.seqs[b]) })
	for _, k := range p.keys {
		p.seqs = append(p.seqs, v.disk.seqs[k])
	}
	return p
}

func (p *pages) ended() bool { return len(p.keys) == 0 }

// next returns the keys of a page.
func (p *pages) next(v *voter, rng *rand.Rand) (keys []string) {
	n := min(1+rng.IntN(4), len(p.keys))
	for i, k := range p.keys[:n] {
		switch now := v.disk.seqs[k]; {
		case now == p.seqs[i] || rng.IntN(2) == 0:
			keys = append(keys, k)
		case p.again:
			p.keys, p.seqs = append(p.keys, k), append(p.seqs, now)
		}
	}
	last := p.end
	if n < len(p.keys) {
		last = min(p.end, p.seqs[n]-1) // the rest of that save is in the next page
	}
	p.upto = max(p.upto, last)
	p.keys, p.seqs = p.keys[n:], p.seqs[n:]
	return keys
}

// pulling is a voter that pulls from another, by a cursor into its saves: page by page it
// looks at what the other shows of its changes, asks for what it lacks, learns that as CATCHUP, and
// moves the cursor on once that is durable. It ends with the connection.
type pulling struct {
	v, from *voter
	lives   [2]int
	pages   *pages
	held    bool         // the cursor stays: a key was left out that the disk may be older of
	upto    register.Seq // as said with the last page
	done    bool
}

// pullByCursor lets one voter pull from another.
func (w *world) pullByCursor() {
	i := w.rng.IntN(len(w.voters))
	j := (i + 1 + w.rng.IntN(len(w.voters)-1)) % len(w.voters)
	v, from := w.voters[i], w.voters[j]
	if v.core == nil || from.core == nil || !v.core.Votes() || v.pulls != nil && !v.pulls.over() {
		return
	}
	x := &pulling{v: v, from: from, lives: [2]int{v.life, from.life}}
	if x.over() {
		return
	}
	v.pulls = x
	w.log(tracePull, uint64(i)<<8|uint64(j), func() string { return v.name() + " pulls by its cursor from " + from.name() })
	x.hop(v, from, func() {
		x.upto = v.cursors[from.pos]
		x.pages = newPages(from, x.upto, false)
		x.show()
	})
}

func (x *pulling) over() bool {
	w := x.v.w
	return x.done || w.healing || w.over() || x.lives != [2]int{x.v.life, x.from.life} || !w.net.pairs[x.from.pos][x.v.pos]
}

// later has something happen, should the pull not be over by then.
func (x *pulling) later(d time.Duration, do func()) {
	x.v.w.line.after(d, func() {
		if !x.over() {
			do()
		}
	})
}

// hop has it happen when what one says has come to the other.
func (x *pulling) hop(a, b *voter, do func()) {
	x.later(x.v.w.net.delay(&x.v.w.net.links[a.pos][b.pos]), do)
}

// await waits until a save of a is durable, and a knows; not for ever.
func (x *pulling) await(a *voter, covers register.Seq, times int, then func(ok bool)) {
	known := a.core.Durable() >= min(covers, a.core.Covers())
	if known || times == 0 {
		then(known)
		return
	}
	x.later(x.v.w.cfg.Unit+x.v.w.cfg.SaveTime/4, func() { x.await(a, covers, times-1, then) })
}

// patience is how often there is a look for a save.
const patience = 12

// show shows a page. It passes over what it leaves out as not settled once all that is known of that is durable.
func (x *pulling) show() {
	var shown []register.Shown
	var covers register.Seq
	for _, k := range x.pages.next(x.from, x.v.w.rng) {
		switch s := x.from.core.Show([]string{k})[0]; {
		case !s.Settled():
			covers = x.from.core.Covers()
		case !s.Tag.IsZero():
			shown = append(shown, s)
		}
	}
	x.await(x.from, covers, patience, func(ok bool) {
		if x.held = x.held || !ok; !x.held {
			x.upto = x.pages.upto
		}
		x.hop(x.from, x.v, func() { x.ask(shown) })
	})
}

// ask asks for what it lacks of a page.
func (x *pulling) ask(shown []register.Shown) {
	var wanted []string
	for _, s := range shown {
		if x.v.core.Lacks(s) {
			wanted = append(wanted, s.Key)
		}
	}
	if len(wanted) == 0 {
		x.took()
		return
	}
	x.hop(x.v, x.from, func() { x.send(wanted) })
}

// send sends what is still settled of it, once what has come instead of the rest is durable.
func (x *pulling) send(wanted []string) {
	w, writes := x.v.w, x.from.core.Catchup(wanted)
	var covers register.Seq
	if len(writes) < len(wanted) {
		covers = x.from.core.Covers()
	}
	for _, m := range writes {
		w.outcome.Marks.said(m)
		if !w.cfg.unwatched {
			w.watch.said(x.from, m)
		}
	}
	x.await(x.from, covers, patience, func(ok bool) {
		if x.done = !ok; ok {
			x.hop(x.from, x.v, func() { x.learn(writes) })
		}
	})
}

func (x *pulling) learn(writes []*register.MsgCatchup) {
	w := x.v.w
	for _, m := range writes {
		w.log(traceMessage, uint64(digest(0).message(m)), func() string { return x.from.name() + " -> " + x.v.name() + " " + describe(m) })
		x.v.input(func() {
			if err := x.v.core.Step(x.from.id, m); err != nil {
				w.fail("%s refuses %s of %s: %v", x.v.name(), describe(m), x.from.name(), err)
			}
		})
	}
	x.took()
}

// took moves the cursor on, once all that is known is durable, and goes on.
func (x *pulling) took() {
	v := x.v
	x.await(v, v.core.Covers(), patience, func(ok bool) {
		if !ok {
			x.done = true
			return
		}
		v.reached(x.from.pos, x.upto)
		if x.done = x.pages.ended(); !x.done {
			x.hop(v, x.from, x.show)
		}
	})
}

// reached sets a cursor of v. A crash may leave an older one.
func (v *voter) reached(pos int, upto register.Seq) {
	w := v.w
	v.cursors[pos] = max(v.cursors[pos], upto)
	w.log(traceCursor, uint64(v.pos)<<40|uint64(pos)<<32|uint64(upto), func() string {
		return v.name() + " has all of " + w.voters[pos].name() + " up to its save " + strconv.Itoa(int(upto))
	})
	if w.rng.IntN(2) == 0 {
		v.kept = slices.Clone(v.cursors)
	}
}
