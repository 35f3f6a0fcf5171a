package sim

import "testing"

// TestForgetting: an older image of a voter's disk is put back. A voter that
// votes with it breaks promises, as some run shows. One that asks the others
// first never does, as long as all of them answer.
func TestForgetting(t *testing.T) {
	const seeds = 3000
	for _, voters := range []int{3, 5} {
		violated, forgot := "", 0
		for seed := uint64(1); seed <= seeds; seed++ {
			c := rolledBack(voters)(seed)
			o := Run(c)
			if o.Err != nil {
				t.Errorf("%d voters, seed %d, asking first: %v", voters, seed, o.Err)
			}
			if o.Forgot {
				forgot++
			}
			if violated != "" {
				continue
			}
			c.Ask = false
			if o := Run(c); o.History.Check() != nil {
				violated = o.History.Check().Error()
				t.Logf("%d voters, seed %d, without asking: %s", voters, seed, violated)
			}
		}
		t.Logf("%d voters: in %d of %d runs the voter noticed that it had forgotten", voters, forgot, seeds)
		if violated == "" || forgot == 0 {
			t.Errorf("%d voters: no run without asking went wrong, or none noticed", voters)
		}
	}
}
