package sim

import (
	"math/rand/v2"

	"gus/register"
)

// puller is who catches up with a voter by a cursor, as other voters do: it looks at what
// the voter's disk has changed since, and takes what the voter shows of that as settled. It
// has no part in the run.
type puller struct {
	v      *voter
	rng    *rand.Rand
	cursor register.Seq
	seen   map[string]register.Tag
}

func newPuller(v *voter) *puller {
	return &puller{v: v, rng: rand.New(rand.NewPCG(v.w.cfg.Seed, 128+uint64(v.pos))), seen: map[string]register.Tag{}}
}

// turn is called in each turn of the voter.
func (p *puller) turn() {
	if c := &p.v.w.cfg; !c.unwatched && !c.unpulled && p.rng.IntN(4) == 0 {
		p.pull()
	}
}

// pull looks at all that there is. The cursor passes over a key that is not shown as settled
// only where the disk has its last change: what is about to be saved may not be, in a crash.
func (p *puller) pull() {
	v := p.v
	end := v.core.Durable()
	passes := true
	for _, k := range v.disk.Changed(p.cursor) {
		s := v.core.Show([]string{k})[0]
		switch {
		case !s.Settled():
			passes = passes && v.core.Covers() <= end
		case s.Tag.Less(p.seen[k]):
			v.w.fail("%s shows version %v of %s, and showed %v", v.name(), s.Tag, k, p.seen[k])
		default:
			p.seen[k] = s.Tag
		}
	}
	if passes {
		p.cursor = max(p.cursor, end)
	}
}

// forget forgets all of a voter whose disk is put back.
func (p *puller) forget() { p.cursor, p.seen = 0, map[string]register.Tag{} }

// complete checks, when all is over, that nothing was missed.
func (p *puller) complete() {
	if p.v.w.cfg.unpulled {
		return
	}
	p.pull()
	for _, k := range p.v.w.keys {
		if p.seen[k] != p.v.w.finals[k] {
			p.v.w.fail("who catches up with %s has version %v of %s, and reads gave %v", p.v.name(), p.seen[k], k, p.v.w.finals[k])
		}
	}
}
