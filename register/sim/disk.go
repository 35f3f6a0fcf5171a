package sim

import (
	"iter"
	"maps"
	"slices"

	"gus/register"
)

// Disk is a register.Store in memory that can do what disks do: take its time,
// fail cleanly, and lose in a crash what was not saved. The zero Disk is an
// empty one that was never opened.
//
// A Save is under way until Complete, Fail or Crash says what became of it; a
// Disk knows no time, whoever holds it decides when. Not for concurrent use.
type Disk struct {
	boot  uint64
	last  register.Seq
	base  map[string]register.Record // what the log was folded into
	log   []register.Record          // saved since, in order
	state map[string]register.Record // base and log, folded
	seqs  map[string]register.Seq    // of each key's last change
	open  *batch                     // the save under way
}

type batch struct {
	seq     register.Seq
	records []register.Record
	digest  digest // of records as they were handed over
}

// Open raises the boot number and returns it: a voter does so at each start.
// What a save under way came to must have been said before.
func (d *Disk) Open() (boot uint64) {
	if d.open != nil {
		panic("sim: a disk is opened while a save is under way")
	}
	d.boot++
	return d.boot
}

// Save begins to save records under seq. It panics where the caller breaks the
// rules of register.Store: a save is under way, or seq was saved before.
func (d *Disk) Save(seq register.Seq, records []register.Record) {
	switch {
	case d.open != nil:
		panic("sim: a save begins while another is under way")
	case seq <= d.last:
		panic("sim: a save has a number that was used before")
	case len(records) == 0:
		panic("sim: a save of nothing")
	}
	d.open = &batch{seq, records, digest(0).records(records)}
}

// Complete makes the save under way durable and returns its number.
func (d *Disk) Complete() register.Seq {
	b := d.take()
	d.last = b.seq
	if d.state == nil {
		d.state, d.seqs = map[string]register.Record{}, map[string]register.Seq{}
	}
	for _, r := range b.records {
		d.log = append(d.log, r)
		d.state[r.Key] = register.Fold(d.state[r.Key], r)
		d.seqs[r.Key] = b.seq
	}
	return b.seq
}

// Fail rolls the save under way back and returns its number.
func (d *Disk) Fail() register.Seq { return d.take().seq }

// Crash says what a crash made of the save under way, if there is one: kept,
// though nobody was told, or lost.
func (d *Disk) Crash(kept bool) {
	switch {
	case d.open == nil:
	case kept:
		d.Complete()
	default:
		d.open = nil
	}
}

func (d *Disk) take() *batch {
	b := d.open
	if b == nil {
		panic("sim: no save is under way")
	}
	if digest(0).records(b.records) != b.digest {
		panic("sim: records were changed after they were handed to Save")
	}
	d.open = nil
	return b
}

// Fold folds the log into the current records, so that Records yields each key
// once.
func (d *Disk) Fold() {
	d.base, d.log = map[string]register.Record{}, nil
	for k, r := range d.state {
		d.base[k] = r
	}
}

// Image returns a copy of what is durable, as of a disk that is copied while
// its voter runs.
func (d *Disk) Image() Disk {
	return Disk{boot: d.boot, last: d.last, base: maps.Clone(d.base), log: slices.Clone(d.log), state: maps.Clone(d.state), seqs: maps.Clone(d.seqs)}
}

// Last returns the highest number that was saved.
func (d *Disk) Last() register.Seq { return d.last }

// Boot returns the number of the last Open; 0 before the first.
func (d *Disk) Boot() uint64 { return d.boot }

// Records yields what is to be recovered, older before newer: the folded
// records by key, then the log. The error is always nil.
func (d *Disk) Records() iter.Seq2[register.Record, error] {
	return func(yield func(register.Record, error) bool) {
		keys := make([]string, 0, len(d.base))
		for k := range d.base {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if !yield(d.base[k], nil) {
				return
			}
		}
		for _, r := range d.log {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Changed returns the keys that were changed after the save of that number, in order.
func (d *Disk) Changed(after register.Seq) []string {
	var keys []string
	for k, seq := range d.seqs {
		if seq > after && k != "" {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// Current returns what is durable of key, folded; the zero Record if nothing.
func (d *Disk) Current(key string) register.Record { return d.state[key] }
