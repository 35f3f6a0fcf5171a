package sim

import "testing"

// What an observer is told rests on a few rules of the agent, which are in this package and not in
// the register. Each of them is needed.
func TestFlawsOfTelling(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many runs")
	}
	for name, f := range map[string]flaw{"passed on at once": passedAtOnce, "passed on untold": passedUntold, "left out": leftOut} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(huntSeeds) {
				c := moving(contended(3, 0))(seed)
				c.flaw = f
				if o := Run(c); o.Err != nil {
					t.Logf("caught by seed %d: %v", seed, o.Err)
					return
				}
			}
			t.Error("not caught")
		})
	}
}
