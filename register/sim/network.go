package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"gus/register"
)

// network carries messages between voters, by position. Every pair has a
// connection that comes and goes, and two links, each with a speed, a bounded
// queue, and cuts of its own. A link keeps no order.
type network struct {
	w     *world
	rng   *rand.Rand
	links [][]link // [from][to]
	pairs [][]bool // [i][j] and [j][i]: connected
	calm  bool     // no more loss, repetition or long delays
	busy  int      // messages under way
}

type link struct {
	slow   float64 // its delay in units
	cuts   int     // more than 0: what is sent is lost, and nobody notices
	queued int
	epoch  int // raised when what is under way is lost with the connection
}

func newNetwork(w *world, n int) *network {
	net := &network{w: w, rng: w.rng, links: make([][]link, n), pairs: make([][]bool, n)}
	for i := range n {
		net.links[i], net.pairs[i] = make([]link, n), make([]bool, n)
		for j := range n {
			net.links[i][j].slow = 1 + net.rng.Float64()*float64(net.rng.IntN(40))
			net.pairs[i][j] = true
		}
	}
	return net
}

// send puts m on its way, or drops it: nobody is told which.
func (net *network) send(from, to int, m register.Message) {
	c, l := &net.w.cfg, &net.links[from][to]
	switch {
	case !net.pairs[from][to] || l.cuts > 0:
		net.w.outcome.Stats.Lost++
		return
	case !net.calm && l.queued >= c.Queue:
		net.w.outcome.Marks.hit(MarkQueueFull, true)
		net.w.outcome.Stats.Lost++
		return
	case !net.calm && net.rng.Float64() < c.Loss:
		net.w.outcome.Stats.Lost++
		return
	}
	v := net.w.voters[from]
	h := header{boot: v.disk.Boot()}
	if c.Ask {
		h.heard = v.core.Progress()
	}
	d := digest(0).message(m)
	net.carry(from, to, m, d, h)
	if !net.calm && net.rng.Float64() < c.Repeat {
		net.carry(from, to, m, d, h)
	}
}

// header is what comes with each message of a voter that asks before it votes.
type header struct {
	boot  uint64
	heard []register.Progress
}

func (net *network) carry(from, to int, m register.Message, d digest, h header) {
	l := &net.links[from][to]
	l.queued++
	net.busy++
	epoch := l.epoch
	net.w.line.after(net.delay(l), func() {
		l.queued--
		net.busy--
		if epoch != l.epoch {
			net.w.outcome.Stats.Lost++
			return
		}
		if digest(0).message(m) != d {
			net.w.fail("a %v was changed after it was sent: %s", m.Kind(), describe(m))
			return
		}
		net.w.voters[to].receive(net.w.voters[from], m, d, h)
	})
}

// delay draws a delay: of the link's own speed, or with a heavy tail, by which
// some messages are overtaken by hundreds of others.
func (net *network) delay(l *link) time.Duration {
	c := &net.w.cfg
	switch {
	case net.calm:
		return time.Duration(float64(c.Unit) * (0.5 + net.rng.Float64()))
	case c.Tail > 0:
		return time.Duration(float64(c.Unit) * math.Exp(net.rng.Float64()*c.Tail))
	default:
		return time.Duration(float64(c.Unit) * l.slow * (0.2 + net.rng.Float64()))
	}
}

// breakPair ends the connection of i and j; of what is under way all is lost,
// or nothing, each way.
func (net *network) breakPair(i, j int) {
	net.pairs[i][j], net.pairs[j][i] = false, false
	for _, l := range [2]*link{&net.links[i][j], &net.links[j][i]} {
		if net.rng.Float64() < net.w.cfg.LossAtBreak {
			l.epoch++
		}
	}
}

// connect brings the connection of i and j back where both are there and
// nothing is cut. Each notices in its own time.
func (net *network) connect(i, j int) bool {
	a, b := net.w.voters[i], net.w.voters[j]
	if net.pairs[i][j] {
		return true
	}
	if a.core == nil || b.core == nil || net.links[i][j].cuts > 0 || net.links[j][i].cuts > 0 {
		return false
	}
	net.pairs[i][j], net.pairs[j][i] = true, true
	net.w.outcome.Marks.hit(MarkReconnected, true)
	net.w.log(traceConnect, uint64(i)<<8|uint64(j), func() string { return "connect " + a.name() + " " + b.name() })
	net.w.line.after(net.delay(&net.links[i][j]), func() { a.reconnected(b) })
	net.w.line.after(net.delay(&net.links[j][i]), func() { b.reconnected(a) })
	return true
}

// connected says how many others i is connected to.
func (net *network) connected(i int) int {
	n := 0
	for j, c := range net.pairs[i] {
		if c && j != i && net.w.voters[j].core != nil {
			n++
		}
	}
	return n
}
