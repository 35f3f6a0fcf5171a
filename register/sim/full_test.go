package sim

import (
	"math/rand/v2"
	"testing"

	"gus/register"
)

// TestFullDiskKeepsReads: where a disk is full, sets fail, and all else goes on
// at that voter, even if no more than a quorum is up: nothing changed, so
// there is nothing to wait for.
func TestFullDiskKeepsReads(t *testing.T) {
	for voters := 1; voters <= 5; voters++ {
		c := quiet(voters)
		w := &world{cfg: c, rng: rand.New(rand.NewPCG(1, 2)), watch: newWatch()}
		w.cfg.New = register.New
		w.build()
		v := w.voters[0]
		do := func(o *Operation) {
			o.Voter = v.id
			w.invoke(v, o)
			w.until(func() bool { return o.Fate != Open })
		}
		do(&Operation{Kind: Set, Key: "k1", Value: "k1=1"})
		w.settle()
		for i := w.quorum(); i < voters; i++ {
			w.voters[i].crash()
		}
		v.full = true
		set, get, list := &Operation{Kind: Set, Key: "k1", Value: "k1=2"}, &Operation{Kind: Get, Key: "k1"}, &Operation{Kind: List, Page: &Page{Limit: 5}}
		do(set)
		do(get)
		do(list)
		if w.over() || set.Fate != Never || get.Fate != Done || get.Value != "k1=1" || list.Fate != Done || len(list.Page.Entries) != 1 {
			t.Errorf("%d voters: %v\n%v\n%v\n%v", voters, w.outcome.Err, set, get, list)
		}
	}
}
