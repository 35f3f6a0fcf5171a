package sim

import (
	"testing"

	"gus/register"
)

func record(key string, ts uint64) register.Record {
	return register.Record{Key: key, Cur: register.Write{Tag: register.Tag{TS: ts, Owner: 1}, Value: []byte(key)}}
}

// recovered folds what d would give to a voter that starts.
func recovered(d *Disk) map[string]uint64 {
	state := map[string]register.Record{}
	for r := range d.Records() {
		state[r.Key] = register.Fold(state[r.Key], r)
	}
	out := map[string]uint64{}
	for k, r := range state {
		out[k] = r.Cur.Tag.TS
	}
	return out
}

func TestDiskLosesOnlyWhatWasNotSaved(t *testing.T) {
	var d Disk
	if d.Open() != 1 || len(recovered(&d)) != 0 || d.Last() != 0 {
		t.Fatal("a new disk is not empty")
	}
	d.Save(1, []register.Record{record("a", 1), record("b", 1)})
	if len(recovered(&d)) != 0 {
		t.Error("what is being saved counts as saved")
	}
	d.Complete()
	d.Fold()
	d.Save(2, []register.Record{record("a", 2)})
	d.Complete()
	d.Save(3, []register.Record{record("a", 3)})
	if seq := d.Fail(); seq != 3 {
		t.Errorf("save %d failed, not 3", seq)
	}
	d.Save(4, []register.Record{record("a", 4)})
	d.Crash(false)
	d.Save(5, []register.Record{record("c", 5)})
	d.Crash(true)
	if boot := d.Open(); boot != 2 || d.Boot() != 2 {
		t.Errorf("boot is %d, not 2", boot)
	}
	got := recovered(&d)
	if len(got) != 3 || got["a"] != 2 || got["b"] != 1 || got["c"] != 5 || d.Last() != 5 {
		t.Errorf("recovered %v up to %d", got, d.Last())
	}
}

// TestDiskHoldsItsCallerToTheRules: what the real store may rely on is checked
// here, where each run of the simulation passes.
func TestDiskHoldsItsCallerToTheRules(t *testing.T) {
	one := []register.Record{record("a", 1)}
	for name, wrong := range map[string]func(d *Disk){
		"a save during another": func(d *Disk) { d.Save(1, one); d.Save(2, one) },
		"a number used before":  func(d *Disk) { d.Save(1, one); d.Complete(); d.Save(1, one) },
		"a save of nothing":     func(d *Disk) { d.Save(1, nil) },
		"changed records": func(d *Disk) {
			mine := []register.Record{record("a", 1)}
			d.Save(1, mine)
			mine[0].Cur.Value[0] = 'b'
			d.Complete()
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("nothing was noticed")
				}
			}()
			wrong(new(Disk))
		})
	}
}
