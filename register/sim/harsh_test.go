package sim

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gus/register"
)

// harsh are runs that Draw does not make, or hardly ever: one fault, or a few
// that go together, at a rate at which no site would be of use.
var harsh = []struct {
	name  string
	shape func(c *Config, r *rand.Rand)
}{
	{"all voters crash, again and again", func(c *Config, r *rand.Rand) {
		c.Blackouts, c.Restart = 1+r.IntN(6), c.Unit*time.Duration(1+r.IntN(10))
		c.SaveTime = 3 * c.Unit
	}},
	{"most saves fail, and clients have no patience", func(c *Config, r *rand.Rand) {
		c.SaveFails, c.SaveTime = 0.2+0.7*r.Float64(), time.Duration(r.IntN(6))*c.Unit
		c.GiveUp, c.Patience = 0.7, time.Duration(1+r.IntN(10))*c.Unit
		c.Burst, c.TickEvery = 0.5, 10*c.Unit
	}},
	{"saves fail and voters crash", func(c *Config, r *rand.Rand) {
		c.SaveFails, c.SaveTime, c.TickEvery = 0.5, time.Duration(r.IntN(4))*c.Unit, 10*c.Unit
		c.Crashes, c.Restart, c.GiveUp = 6, 5*c.Unit, 0.3
	}},
	{"clients give up at once", func(c *Config, r *rand.Rand) {
		c.GiveUp, c.Patience, c.Turn = 1, c.Unit/2, c.Unit
		c.Burst = 0.7
	}},
	{"all write one key", func(c *Config, r *rand.Rand) {
		c.Keys, c.Lists, c.Writers, c.Ops = 1, 0.1*r.Float64(), c.Voters, 10+r.IntN(50)
		c.Pace, c.Sets, c.Clocks = c.Unit/2, 0.7, Clocks(r.IntN(2))
	}},
	{"all write one key and crash", func(c *Config, r *rand.Rand) {
		c.Keys, c.Lists, c.Writers, c.Ops = 1, 0.1*r.Float64(), c.Voters, 10+r.IntN(50)
		c.Pace, c.Sets, c.Clocks = c.Unit/2, 0.6, Clocks(r.IntN(2))
		c.Crashes, c.Restart, c.GiveUp = 5, 5*c.Unit, 0.3*r.Float64()
	}},
	{"marks are lost and records replayed", func(c *Config, r *rand.Rand) {
		c.Crashes, c.Blackouts, c.Restart, c.TickEvery = 5, 2, 10*c.Unit, 10*c.Unit
		c.PowerCut, c.New = true, forgetful(r)
		c.unpulled = true // a mark that was lost and comes back is news without a save
	}},
	{"writes are given up while they are saved, and voters crash", func(c *Config, r *rand.Rand) {
		c.GiveUp, c.Patience, c.SaveTime = 0.7, 3*c.Unit, 10*c.Unit
		c.Crashes, c.Restart, c.Clocks = 6, 2*c.Unit, Clocks(r.IntN(2))
		c.Keys, c.Lists, c.Ops, c.Sets, c.Pace, c.Tail = 1, 0, 20, 0.5, 3*c.Unit, 3
	}},
	{"ticks come faster than answers", func(c *Config, r *rand.Rand) {
		c.TickEvery, c.Queue, c.Tail = 2*c.Unit, 1000, 6
		c.Ops = min(c.Ops, 40)
	}},
	{"little else than listings", func(c *Config, r *rand.Rand) {
		c.Lists, c.Keys, c.Ops = 0.7, 12, 120
		c.Loss, c.Deletes, c.GiveUp = 0.2, 0.4, 0.3
		c.SaveFails, c.SaveTime = 0.2*r.Float64(), c.Unit
		c.Crashes, c.Restart = r.IntN(4), 10*c.Unit
	}},
}

// forgetful makes replicas from records of which marks may be missing, and some
// come twice, as after a store's own crash.
func forgetful(r *rand.Rand) func(register.Config, iter.Seq2[register.Record, error]) (*register.Replica, error) {
	return func(c register.Config, records iter.Seq2[register.Record, error]) (*register.Replica, error) {
		return register.New(c, func(yield func(register.Record, error) bool) {
			var all []register.Record
			for rec := range records {
				all = append(all, rec)
			}
			again := r.IntN(len(all) + 1)
			for _, rec := range slices.Concat(all, all[again:]) {
				if rec.IsMark() && r.IntN(2) == 0 {
					continue
				}
				if !yield(rec, nil) {
					return
				}
			}
		})
	}
}

// TestHarsh plays runs of each harsh kind: GUS_HARSH of each (150).
func TestHarsh(t *testing.T) {
	count := uint64(150)
	if testing.Short() {
		count = 20
	}
	count = fromEnv(t, "GUS_HARSH", count)
	first := fromEnv(t, "GUS_FIRST_SEED", 1)
	for _, h := range harsh {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			for seed := first; seed < first+count; seed++ {
				if o := Run(drawHarsh(seed, h.shape)); o.Err != nil {
					t.Errorf("seed %d (%d voters, %d keys): %v", seed, o.Config.Voters, o.Config.Keys, o.Err)
				}
			}
		})
	}
}

// drawHarsh draws a run with any number of voters and any majorities.
func drawHarsh(seed uint64, shape func(*Config, *rand.Rand)) Config {
	r := rand.New(rand.NewPCG(seed, 4))
	c := Draw(seed)
	c.Voters = 1 + r.IntN(register.MaxVoters)
	if n := c.Voters; r.IntN(2) == 0 {
		c.ReadQuorum, c.WriteQuorum = n/2+1+r.IntN(n-n/2), n/2+1+r.IntN(n-n/2)
	} else {
		c.ReadQuorum, c.WriteQuorum = 0, 0
	}
	c.Writers = min(max(c.Writers, 2), c.Voters)
	c.Ops = min(c.Ops, 100)
	shape(&c, r)
	return c
}
