//go:build unix

package torture

import (
	"strings"
	"testing"

	"gus/register"
	"gus/register/sim"
)

// served makes a history of operations that take one nanosecond, at each site
// ending at the given moments; the load runs from 0 to 1000.
func served(faults []*fault, ends ...[]int64) history {
	h := history{faults: faults, end: 1000}
	for i, at := range ends {
		for _, t := range at {
			h.ops = append(h.ops, &sim.Operation{Voter: register.Voter(i + 1), Kind: sim.Set, Fate: sim.Done, Call: t - 1, Return: t})
		}
	}
	return h
}

// TestGapsAreThoseOfSurvivors.
func TestGapsAreThoseOfSurvivors(t *testing.T) {
	kill := &fault{kind: "kill", victims: []int{0}, start: 100, end: 300}
	loss := &fault{kind: "loss", start: 500, end: 600}
	for _, c := range []struct {
		name      string
		faults    []*fault
		gap, back int64 // of kill
	}{
		{"one fault", []*fault{kill, loss}, 80, 40},
		{"another survivor is frozen meanwhile: no quorum", []*fault{kill, {kind: "freeze", victims: []int{2}, start: 150, end: 160}}, 40, 40},
		{"the survivors are parted meanwhile", []*fault{kill, {kind: "cut", cuts: [][2]int{{2, 1}}, start: 150, end: 160}}, 40, 40},
		{"the victim is frozen before it serves again", []*fault{kill, {kind: "freeze", victims: []int{0}, start: 310, end: 330}}, 80, 0},
		{"no quorum is left to the victim", []*fault{kill,
			{kind: "freeze", victims: []int{2}, start: 310, end: 330},
			{kind: "cut", cuts: [][2]int{{1, 0}}, start: 310, end: 330}}, 80, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := served(c.faults,
				[]int64{50, 90, 340, 400}, // the victim
				[]int64{50, 90, 120, 200, 230, 270, 290, 310, 400},
				[]int64{50, 100, 120, 200, 240, 270, 290, 310, 400})
			sites := world{sites: []*site{{number: 1}, {number: 2}, {number: 3}}, quorum: 2}
			var r report
			r.note(&sites, &h)
			if row := r.rows["kill"]; int64(row.gap) != c.gap || int64(row.back) != c.back || row.times != 1 {
				t.Errorf("the longest gap is %d, the return takes %d: to be %d and %d", row.gap, row.back, c.gap, c.back)
			}
		})
	}
}

// TestASiteIsBackWhenItServes, and not before: between the end of the kill and
// then, the freeze leaves the third site without a quorum.
func TestASiteIsBackWhenItServes(t *testing.T) {
	h := served([]*fault{
		{kind: "kill", victims: []int{0}, start: 100, end: 300},
		{kind: "freeze", victims: []int{2}, start: 312, end: 315},
		{kind: "loss", start: 305, end: 320},
	}, []int64{90, 340}, []int64{290, 310, 400}, []int64{290, 310, 400})
	var r report
	r.note(&world{sites: []*site{{number: 1}, {number: 2}, {number: 3}}, quorum: 2}, &h)
	if gap := r.rows["loss"].gap; gap != 20 {
		t.Errorf("the longest gap is %d, to be 20", gap)
	}
}

// TestReportCountsWhatOverlaps with a fault, by its outcome.
func TestReportCountsWhatOverlaps(t *testing.T) {
	loss := &fault{kind: "loss", start: 100, end: 200}
	h := history{faults: []*fault{loss}, end: 1000, ops: sim.History{
		{Kind: sim.Set, Fate: sim.Done, Call: 10, Return: 99},
		{Kind: sim.Set, Fate: sim.Done, Call: 10, Return: 101},
		{Kind: sim.Get, Fate: sim.Done, Call: 120, Return: 130},
		{Kind: sim.Get, Fate: sim.Unknown, Call: 120, Return: 130},
		{Kind: sim.Set, Fate: sim.Never, Call: 120, Return: 130},
		{Kind: sim.Delete, Fate: sim.Unknown, Call: 199, Return: 300},
		{Kind: sim.Set, Fate: sim.Done, Call: 201, Return: 300},
	}}
	var r report
	r.note(&world{}, &h)
	if got := *r.rows["loss"]; got != (row{times: 1, done: 2, failed: 2, unknown: 1}) {
		t.Errorf("the row is %+v", got)
	}
	if s := r.String(); !strings.Contains(s, "7 operations") {
		t.Errorf("the report is %s", s)
	}
}
