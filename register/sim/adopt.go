package sim

import (
	"math/rand/v2"
	"slices"

	"gus/register"
)

// mover is a site without a vote that goes from one voter to another. It follows one at
// a time, from its own cursor into that one's saves or from one that another voter has
// passed on: that of its own pulls. It has no part in the run.
type mover struct {
	*observer
	cursors []register.Seq // by voter
	kept    []register.Seq // that a crash leaves
	stream  *telling       // nil: it follows nobody
	stays   int            // with a voter, for so many turns of all
}

// movers is how many there are.
const movers = 4

// part is what a voter tells at once.
type part struct {
	news    []register.News
	upto    register.Seq
	cursors []register.Seq // of its pulls; nil: none
}

func (w *world) newMover(i int) *mover {
	o := &observer{w: w, rng: rand.New(rand.NewPCG(w.cfg.Seed, 1024+uint64(i))), seen: map[string]register.Tag{}}
	o.start()
	n := len(w.voters)
	return &mover{observer: o, cursors: make([]register.Seq, n), kept: make([]register.Seq, n), stays: 20 << i}
}

// turn is called after each turn of a voter. What it does there is what the agent does first in the next one.
func (m *mover) turn(v *voter) {
	if s := m.stream; s != nil && s.v.life != s.life {
		m.stream = nil
	}
	switch s := m.stream; {
	case s == nil:
		if m.rng.IntN(4) == 0 {
			m.now = v.pos
			m.stream = newTelling(v, m.cursors[v.pos], m.rng)
		}
	case m.rng.IntN(m.stays) == 0:
		m.stream = nil // the connection broke, or another voter is nearer
	case s.v == v && m.rng.IntN(8) > 0:
		m.take(s.step())
	}
}

// take learns a part. The cursors move on once all of it is durable.
func (m *mover) take(p part) {
	from, core := m.now, m.core
	for _, n := range p.news {
		if m.rng.IntN(100) == 0 {
			m.stream = nil
			return
		}
		m.learn(from, n)
		if m.core != core { // it crashed
			m.cursors, m.stream = slices.Clone(m.kept), nil
			return
		}
	}
	m.cursors[from] = max(m.cursors[from], p.upto)
	for i, c := range p.cursors {
		m.w.outcome.Marks.hit(MarkAdopted, i != from && m.cursors[i] < c)
		if i != from {
			m.cursors[i] = max(m.cursors[i], c)
		}
	}
	if m.rng.IntN(2) == 0 {
		m.kept = slices.Clone(m.cursors)
	}
}

// complete checks, when all is over, that nothing was missed: neither where m goes on as it is,
// nor where it goes on at any voter.
func (m *mover) complete() {
	if s := m.stream; s != nil && s.life == s.v.life {
		m.has(s.v, s.remaining())
	}
	for i, v := range m.w.voters {
		m.has(v, newTelling(v, m.cursors[i], m.rng).remaining())
	}
}

// has checks that m, with what v tells then, has all.
func (m *mover) has(v *voter, told []register.News) {
	has := map[string]register.Tag{}
	for _, k := range m.w.keys {
		has[k] = m.core.Peek(k).Tag
	}
	for _, n := range told {
		if has[n.Key].Less(n.Tag) {
			has[n.Key] = n.Tag
		}
	}
	for _, k := range m.w.keys {
		if has[k] != m.w.finals[k] {
			m.w.fail("an observer that goes on at %s from its save %d has version %v of %s, and reads gave %v", v.name(), m.cursors[v.pos], has[k], k, m.w.finals[k])
		}
	}
}

// telling is a voter that tells an observer: what its disk has after a cursor, then its news, and
// the cursors of its own pulls, as an agent does. Each step is a visit of its loop.
type telling struct {
	v    *voter
	life int
	rng  *rand.Rand

	cursor    register.Seq    // all that is settled and in a save up to it is told
	until     register.Seq    // it stays where it is before that save
	pages     *pages          // while they are read
	news      []register.News // of the last page
	listening bool
	at        int // what of the news is told

	stage  int  // of passing cursors on
	blocks bool // and nothing is told until that is over
	noted  []register.Seq
	told   []register.Seq          // last
	open   map[string]register.Tag // what was unsettled when they were noted
	covers register.Seq
	rest   int // what of the news is to be told before them
}

// The stages of passing cursors on.
const (
	stageNone     = iota // there are none
	stageOpen            // something was unsettled when they were noted
	stageCovers          // all that is settled
	stageDurable         // and waits to be durable
	stagePublish         // and to be told to all
	stagePublish2        // for two visits
	stageTold            // and to this one
)

func newTelling(v *voter, after register.Seq, rng *rand.Rand) *telling {
	return &telling{v: v, life: v.life, rng: rng, cursor: after, told: make([]register.Seq, len(v.w.voters))}
}

// step returns what is told after one visit.
func (t *telling) step() (p part) {
	if t.blocks {
		t.advance(&p)
		return p
	}
	ready := true
	switch {
	case t.listening:
		t.listen(&p)
	case t.pages == nil:
		t.until, t.pages = 0, newPages(t.v, t.cursor, t.v.w.cfg.flaw != leftOut)
		ready = false
	case !t.pages.ended():
		t.scan()
		if ready = !t.pages.ended(); ready {
			p.news, t.news = t.news, nil
		}
	default:
		end := t.pages.end
		p.news, t.news, t.pages = t.news, nil, nil
		t.reach(end)
		t.from(end)
	}
	if ready {
		p.upto = t.cursor
		t.advance(&p)
	}
	return p
}

// scan reads a page.
func (t *telling) scan() {
	for _, k := range t.pages.next(t.v, t.rng) {
		if n, ok := t.v.core.Told(k); ok {
			t.news = append(t.news, n)
		} else {
			t.until = t.v.core.Covers()
		}
	}
	t.reach(t.pages.upto)
}

// from goes over to the news, for who has read all that is in the saves up to end.
func (t *telling) from(end register.Seq) {
	news := t.v.follower.news
	for t.at = 0; t.at < len(news) && news[t.at].before <= end; t.at++ {
	}
	t.listening = true
}

// listen takes in some of the news.
func (t *telling) listen(p *part) {
	f := t.v.follower
	for n := 1 + t.rng.IntN(4); n > 0 && t.at < len(f.news); n-- {
		for _, n := range f.news[t.at].news {
			if n.Tag == f.last[n.Key] {
				p.news = append(p.news, n)
			}
		}
		t.reach(f.news[t.at].upto)
		t.at++
	}
}

func (t *telling) reach(upto register.Seq) {
	if upto >= t.until {
		t.cursor = max(t.cursor, upto)
	}
}

// advance passes cursors on: once all of which something was unsettled when they were
// noted is settled, durable and told.
func (t *telling) advance(p *part) {
	v := t.v
	switch t.stage {
	case stageNone:
		if slices.Equal(v.cursors, t.told) {
			return
		}
		t.noted, t.open, t.stage, t.blocks = slices.Clone(v.cursors), map[string]register.Tag{}, stageOpen, true
		for k, tag := range v.core.Unsettled() {
			if t.open[k].Less(tag) {
				t.open[k] = tag
			}
		}
	case stageOpen:
		for k, tag := range t.open {
			if v.core.Knows(k, tag) {
				delete(t.open, k)
			}
		}
		if t.blocks = len(t.open) == 0; t.blocks {
			t.stage = stageCovers
		}
	case stageCovers:
		t.covers, t.stage = v.core.Covers(), stageDurable
	case stageDurable:
		if v.core.Durable() >= min(t.covers, v.core.Covers()) {
			t.stage = stagePublish
		}
	case stagePublish:
		t.stage = stagePublish2
	case stagePublish2:
		t.rest, t.stage, t.blocks = len(v.follower.news), stageTold, false
	}
	f := v.w.cfg.flaw
	if f == passedAtOnce || f == passedUntold && t.stage >= stageCovers || t.stage == stageTold && t.listening && t.at >= t.rest {
		t.told, p.cursors, t.stage, t.blocks = t.noted, t.noted, stageNone, false
	}
}

// remaining returns what is still to be told, when nothing is going on any more.
func (t *telling) remaining() (news []register.News) {
	told := func(keys []string) {
		for _, k := range keys {
			if n, ok := t.v.core.Told(k); ok {
				news = append(news, n)
			}
		}
	}
	if !t.listening {
		if t.pages == nil {
			t.pages = newPages(t.v, t.cursor, true)
		}
		news = append(news, t.news...)
		told(t.pages.keys)
		t.from(t.pages.end)
	}
	f := t.v.follower
	for ; t.at < len(f.news); t.at++ {
		news = append(news, f.news[t.at].news...)
	}
	return news
}

// flaw is a rule of what an agent tells that the voters of a run break.
type flaw uint8

const (
	passedAtOnce flaw = iota + 1 // cursors are passed on without waiting for anything
	passedUntold                 // once all is settled, though not told
	leftOut                      // a key that is changed again while the disk is read is left out
)
