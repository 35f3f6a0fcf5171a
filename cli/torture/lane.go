//go:build unix

package torture

import (
	"math/rand/v2"
	"time"
)

// link is how packets go from one site to another. Chances are 0 to 1.
type link struct {
	delay   time.Duration // of each packet
	jitter  time.Duration // the longest that comes on top, evenly drawn; packets stay in order
	loss    float64       // chance of a packet to be lost
	repeat  float64       // chance of a packet to arrive twice
	reorder float64       // chance of a packet to be held back for up to behind, so that others overtake it
	cut     bool          // nothing arrives
}

// behind is the longest that a packet is held back which others overtake.
const behind = 40 * time.Millisecond

// lane is a link with what is on it.
type lane struct {
	link
	last time.Time // when the last packet that keeps the order arrives
	held int       // packets under way
}

// fates returns when the copies of a packet arrive that is sent now; none, if
// it is lost.
func (l *lane) fates(now time.Time, rng *rand.Rand) []time.Time {
	if l.cut || l.loss > 0 && rng.Float64() < l.loss {
		return nil
	}
	fates := make([]time.Time, 0, 2)
	fates = append(fates, l.arrival(now, rng))
	if l.repeat > 0 && rng.Float64() < l.repeat {
		fates = append(fates, l.arrival(now, rng))
	}
	return fates
}

func (l *lane) arrival(now time.Time, rng *rand.Rand) time.Time {
	at := now.Add(l.delay)
	if l.jitter > 0 {
		at = at.Add(time.Duration(rng.Int64N(int64(l.jitter))))
	}
	if l.reorder > 0 && rng.Float64() < l.reorder {
		return at.Add(time.Duration(rng.Int64N(int64(behind))))
	}
	if at.Before(l.last) {
		at = l.last
	}
	l.last = at
	return at
}

// packet is one under way.
type packet struct {
	due      time.Time
	number   uint64 // those due at one time keep their order
	from, to int
	bytes    []byte
}

// packets is a heap, the one first that is due first.
type packets []*packet

func (q packets) Len() int      { return len(q) }
func (q packets) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q packets) Less(i, j int) bool {
	if c := q[i].due.Compare(q[j].due); c != 0 {
		return c < 0
	}
	return q[i].number < q[j].number
}

// Push implements heap.Interface.
func (q *packets) Push(p any) { *q = append(*q, p.(*packet)) }

// Pop implements heap.Interface.
func (q *packets) Pop() any {
	old := *q
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return p
}
