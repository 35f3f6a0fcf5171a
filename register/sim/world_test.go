package sim

import (
	"iter"
	"strings"
	"testing"
	"time"

	"gus/register"
)

// TestSameSeedSameTrace: without this, a seed that fails is worth nothing.
func TestSameSeedSameTrace(t *testing.T) {
	different := map[uint64]bool{}
	for seed := range uint64(100) {
		c := Draw(1000 + seed)
		first, second := Run(c), Run(c)
		if first.Trace != second.Trace || first.Stats != second.Stats {
			t.Errorf("seed %d: two runs, two traces: %x %+v, %x %+v", c.Seed, first.Trace, first.Stats, second.Trace, second.Stats)
		}
		different[first.Trace] = true
	}
	if len(different) != 100 {
		t.Errorf("100 seeds have %d traces", len(different))
	}
}

// quiet is a world in which nothing goes wrong, with operations one after
// another and clocks in step.
func quiet(voters int) Config {
	return Config{
		Seed: 1, Voters: voters, Ops: 50, Keys: 2, Sets: 0.5, Deletes: 0.2, Writers: voters, Pace: time.Minute, Gate: true,
		Unit: time.Millisecond, Tail: 1, Queue: 1000, SaveTime: time.Millisecond, Clocks: ClocksInStep, TickEvery: time.Second,
	}
}

// TestAloneTakesOneRound: an operation that meets no other takes one message
// round, with any number of voters, and none where the voter is a quorum itself.
func TestAloneTakesOneRound(t *testing.T) {
	for voters := 1; voters <= 9; voters++ {
		o := Run(quiet(voters))
		if o.Err != nil {
			t.Errorf("%d voters: %v", voters, o.Err)
		}
		for _, op := range o.History {
			if op.Fate != Done || op.RoundTrips != min(1, voters-1) {
				t.Errorf("%d voters: %v", voters, op)
			}
		}
	}
}

// TestPanicIsAnOutcome: a broken assertion of the register ends its run, with
// the seed that did it, and not the whole test.
func TestPanicIsAnOutcome(t *testing.T) {
	c := quiet(3)
	c.New = func(register.Config, iter.Seq2[register.Record, error]) (*register.Replica, error) {
		panic("a broken invariant")
	}
	if o := Run(c); o.Err == nil || !strings.Contains(o.Err.Error(), "a broken invariant") {
		t.Errorf("the outcome is %v", o.Err)
	}
}

// TestGivenUpAtTheGate: a set that never had a write quorum in reach never happens.
func TestGivenUpAtTheGate(t *testing.T) {
	c := quiet(3)
	c.Sets, c.Pace, c.GiveUp, c.Patience = 1, 10*time.Millisecond, 1, time.Millisecond
	c.Breaks, c.Outage = 200, time.Second
	o := Run(c)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	never := 0
	for _, op := range o.History {
		if op.Fate == Never {
			never++
		}
	}
	if never == 0 {
		t.Error("with hardly a connection up, every set was handed to the register")
	}
}
