package sim

import (
	"iter"
	"math/rand/v2"
	"time"

	"gus/register"
)

// Config shapes one run. Draw fills it in from a seed; a test may then change
// what it is about. All times are virtual.
type Config struct {
	Seed uint64 // of all that happens in the run; Draw draws the rest of Config from it too

	Voters      int // 1 to register.MaxVoters
	ReadQuorum  int // 0: as register.Quorums says
	WriteQuorum int // likewise

	Ops     int           // operations that clients begin while there are faults
	Keys    int           // that they are about
	Sets    float64       // share of the operations that write
	Deletes float64       // share of those that delete
	Lists   float64       // share of the operations that list keys
	Writers int           // voters whose clients write
	Pace    time.Duration // mean time between two operations of the whole cluster
	Burst   float64       // chance that an operation comes together with others at the same voter
	Gate    bool          // a set waits, as in the agent, until a write quorum is connected

	GiveUp   float64       // share of the operations whose clients lose patience
	Patience time.Duration // mean time until they do

	Unit        time.Duration // delay of a message on a fast link
	Tail        float64       // delays are Unit * exp(0 to Tail), evenly; 0: links have speeds
	Loss        float64       // chance of a message to be lost
	Repeat      float64       // chance of a message to arrive twice
	Queue       int           // most messages under way on a link; others are dropped
	LossAtBreak float64       // chance that what is under way goes with a connection
	Breaks      int           // connections that break and come back
	Cuts        int           // cuts, one-way ones too, that nobody notices
	Outage      time.Duration // mean time that each of those lasts

	Crashes   int
	Blackouts int           // times that all voters crash at once
	Restart   time.Duration // mean time until a crashed voter starts again; 0: not before all is healed

	Ask      bool // voters ask before they vote, and hear of each other's progress
	Rollback bool // once, an older image of a voter's disk is put back; only with no other crashes
	Catchup  bool // voters pull what they lack when they meet, and must agree in the end without reads
	Pulls    int  // further times that one does
	Adopt    int  // times that one pulls by its cursor; such cursors are passed on to observers that move

	Turn      time.Duration // longest time that inputs gather before Drive is called
	SaveTime  time.Duration // typical time that a save takes
	SaveFails float64       // chance that a save fails cleanly
	FullDisks int           // times that a disk fills up, for an Outage

	Clocks     Clocks
	ClockJumps int
	TickEvery  time.Duration

	QuorumFirst bool // heal no more than a quorum at first, and demand that it gets on
	ReadsOnly   bool // heal no more than a read quorum then, and demand that reads end
	PowerCut    bool // when all is over, all voters crash at once and start again

	unwatched bool // judge by histories alone, not by what is said
	unpulled  bool // nobody catches up by a cursor
	flaw      flaw // of what is told; 0: none

	// New makes a replica; nil: register.New.
	New func(register.Config, iter.Seq2[register.Record, error]) (*register.Replica, error)
	// Trace is given each event of the run as a line; nil: nobody is.
	Trace func(line string)
}

// Clocks is how the clocks of a run's voters go.
type Clocks uint8

// The ways in which clocks go.
const (
	ClocksStopped Clocks = iota // all at 0: timestamps are counters
	ClocksNear                  // stopped within a few milliseconds of 0
	ClocksInStep                // right, to a few milliseconds
	ClocksHours                 // wrong by hours
	ClocksDecades               // wrong by decades
	clocksKinds
)

// Draw draws a run's Config from its seed.
func Draw(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 1))
	sometimes := func(p float64, n int) int {
		if r.Float64() < p {
			return 1 + r.IntN(n)
		}
		return 0
	}
	chance := func(p, most float64) float64 {
		if r.Float64() < p {
			return r.Float64() * most
		}
		return 0
	}
	c := Config{Seed: seed, Voters: drawVoters(r)}
	drawQuorums(r, &c)
	c.Unit = time.Millisecond
	c.Keys = 1 + sometimes(0.3, 3)
	c.Ops = c.Keys * (4 + r.IntN(12))
	if r.IntN(12) == 0 {
		c.Ops = c.Keys * (30 + r.IntN(100))
	}
	c.Sets = 0.3 + 0.6*r.Float64()
	c.Deletes = chance(0.3, 0.5)
	c.Writers = min(c.Voters, 2+r.IntN(c.Voters))
	c.Pace = time.Duration(float64(c.Unit) * []float64{0.3, 2, 8, 40}[r.IntN(4)])
	c.Burst = chance(0.4, 0.5)
	c.Gate = r.IntN(2) == 0

	c.GiveUp = chance(0.4, 0.6)
	c.Patience = c.Unit * time.Duration(1+r.IntN(100))

	if r.IntN(2) == 0 {
		c.Tail = 2 + 6*r.Float64()
	}
	c.Loss, c.Repeat = chance(0.4, 0.2), chance(0.4, 0.2)
	c.Queue = []int{4, 16, 1000, 1000}[r.IntN(4)]
	c.LossAtBreak = r.Float64()
	c.Breaks, c.Cuts = sometimes(0.3, 5), sometimes(0.3, 4)
	c.Outage = c.Unit * time.Duration(5+r.IntN(200))

	c.Crashes = sometimes(0.5, 4)
	if r.IntN(4) > 0 {
		c.Restart = c.Unit * time.Duration(1+r.IntN(100))
	}
	if r.IntN(3) == 0 {
		c.Turn = c.Unit
	}
	c.SaveTime = time.Duration(float64(c.Unit) * []float64{0, 0, 0.3, 3, 20}[r.IntN(5)])
	c.SaveFails, c.FullDisks = chance(0.2, 0.1), sometimes(0.15, 3)

	c.Clocks = Clocks(r.IntN(int(clocksKinds)))
	c.ClockJumps = sometimes(0.2, 4)
	c.TickEvery = c.Unit * time.Duration([]int{20, 100, 1000}[r.IntN(3)])
	c.QuorumFirst = r.IntN(2) == 0
	c.PowerCut = r.IntN(6) == 0
	drawLists(r, &c)
	c.Blackouts = sometimes(0.05, 3)
	c.ReadsOnly = r.IntN(3) == 0
	c.Ask, c.Catchup = r.IntN(2) == 0, r.IntN(2) == 0
	if c.Catchup {
		c.Pulls = sometimes(0.5, 20)
	}
	c.Adopt = sometimes(0.5, 40)
	return c
}

// drawVoters prefers the sizes that sites are run in.
func drawVoters(r *rand.Rand) int {
	sizes := [...]int{1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5, 5, 5, 5, 6, 7, 7, 3, 5, register.MaxVoters}
	return sizes[r.IntN(len(sizes))]
}

// drawLists lets a run in three have listings, and then more keys: some go
// unheard of at some voters, and pages have borders.
func drawLists(r *rand.Rand, c *Config) {
	if r.IntN(3) > 0 {
		return
	}
	c.Lists = 0.1 + 0.5*r.Float64()
	c.Keys = 2 + r.IntN(11)
	c.Ops = c.Keys * (3 + r.IntN(10))
	if r.IntN(2) == 0 {
		c.Deletes = 0.6 * r.Float64()
	}
}

// drawQuorums departs from the usual quorums now and then: majorities are safe
// with any number of voters, larger ones at least as live as the usual.
func drawQuorums(r *rand.Rand, c *Config) {
	n := c.Voters
	switch r.IntN(8) {
	case 0:
		c.ReadQuorum, c.WriteQuorum = n/2+1, n/2+1
	case 1:
		least, most := register.Quorums(n)
		c.ReadQuorum, c.WriteQuorum = least+r.IntN(n-least+1), most+r.IntN(n-most+1)
	}
}

// quorums returns the quorums of c, and whether no write ever has to wait for
// more than one.
func (c *Config) quorums() (read, write int, noWait bool) {
	read, write = register.Quorums(c.Voters)
	if c.ReadQuorum != 0 {
		read = c.ReadQuorum
	}
	if c.WriteQuorum != 0 {
		write = c.WriteQuorum
	}
	return read, write, read+write+min(read, write) > 2*c.Voters-2
}
