package snapshot

import (
	"errors"
	"iter"
	"slices"
	"testing"

	"gus/register"
	"gus/register/sim"
)

var _ register.Store = (*Store)(nil)

// subject is a store under the contract of register.Store and of recovery
// from it. The map says what is meant; the others must do the same.
type subject interface {
	save(seq register.Seq, records []register.Record) error
	Records() iter.Seq2[register.Record, error]
	Last() register.Seq
	crash(t *testing.T) // and start again
}

func TestContract(t *testing.T) {
	for name, open := range map[string]func(*testing.T) subject{
		"map":            func(*testing.T) subject { return &mapSubject{state: state{}} },
		"sim":            func(*testing.T) subject { return &simSubject{new(sim.Disk)} },
		"sqlite":         func(t *testing.T) subject { return newSQLiteSubject(t, bounds{}) },
		"sqlite folding": func(t *testing.T) subject { return newSQLiteSubject(t, small) },
	} {
		t.Run(name, func(t *testing.T) { contract(t, open) })
	}
}

func contract(t *testing.T, open func(*testing.T) subject) {
	t.Run("a new store is empty", func(t *testing.T) {
		s := open(t)
		s.crash(t)
		mustEqual(t, recovered(t, s.Records()), state{})
		if s.Last() != 0 {
			t.Errorf("last is %d", s.Last())
		}
	})
	t.Run("what was saved is there after each start", func(t *testing.T) {
		s := open(t)
		for seq := register.Seq(1); seq <= 120; seq++ {
			if err := s.save(seq, workload(seq)); err != nil {
				t.Fatal(err)
			}
			if seq%13 == 0 {
				s.crash(t)
			}
			if s.Last() != seq {
				t.Fatalf("last is %d after save %d", s.Last(), seq)
			}
		}
		mustEqual(t, recovered(t, s.Records()), replayed(120))
		s.crash(t)
		mustEqual(t, recovered(t, s.Records()), replayed(120))
	})
	t.Run("the newer of two records of a save counts", func(t *testing.T) {
		s := open(t)
		older, newer := record("k", 1, 9), record("k", 2, 9)
		if err := s.save(1, []register.Record{older, newer}); err != nil {
			t.Fatal(err)
		}
		s.crash(t)
		mustEqual(t, recovered(t, s.Records()), state{"k": newer})
	})
	t.Run("a mark on nothing says nothing", func(t *testing.T) {
		s := open(t)
		for seq := range register.Seq(60) {
			mark := register.Record{Key: "k", Mark: register.Tag{TS: 5, Owner: 1}, Readable: true}
			if err := s.save(seq+1, []register.Record{mark}); err != nil {
				t.Fatal(err)
			}
		}
		s.crash(t)
		mustEqual(t, recovered(t, s.Records()), state{})
	})
	t.Run("numbers may be left out and are not used again", func(t *testing.T) {
		s := open(t)
		for _, seq := range []register.Seq{3, 1000, 1 << 40} {
			if err := s.save(seq, workload(1)); err != nil {
				t.Fatal(err)
			}
			s.crash(t)
			if s.Last() != seq {
				t.Fatalf("last is %d after save %d", s.Last(), seq)
			}
		}
	})
	t.Run("a large save is all there", func(t *testing.T) {
		s := open(t)
		want := state{}
		records := slices.Repeat([]register.Record{record("large", 1, 1<<20)}, 3)
		for i := range 700 {
			records = append(records, record(string(rune('a'+i%26))+string(rune('a'+i/26)), uint64(i), i+1))
		}
		want.apply(records...)
		if err := s.save(1, records); err != nil {
			t.Fatal(err)
		}
		s.crash(t)
		mustEqual(t, recovered(t, s.Records()), want)
	})
	t.Run("whoever reads may stop", func(t *testing.T) {
		s := open(t)
		if err := s.save(1, workload(1)); err != nil {
			t.Fatal(err)
		}
		for range s.Records() {
			break
		}
		if err := s.save(2, workload(2)); err != nil {
			t.Fatal(err)
		}
	})
}

// mapSubject is the contract in its plainest form.
type mapSubject struct {
	state state
	last  register.Seq
}

func (s *mapSubject) save(seq register.Seq, records []register.Record) error {
	if seq <= s.last {
		return errors.New("number used before")
	}
	s.state.apply(records...)
	s.last = seq
	return nil
}

func (s *mapSubject) Records() iter.Seq2[register.Record, error] {
	return func(yield func(register.Record, error) bool) {
		for _, r := range s.state {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *mapSubject) Last() register.Seq { return s.last }
func (s *mapSubject) crash(*testing.T)   {}

// simSubject is the disk of the simulation, so that what is explored there
// holds here.
type simSubject struct{ *sim.Disk }

func (s *simSubject) save(seq register.Seq, records []register.Record) error {
	s.Save(seq, records)
	s.Complete()
	if seq%7 == 0 {
		s.Fold()
	}
	return nil
}

func (s *simSubject) crash(*testing.T) {
	s.Crash(false)
	s.Open()
}

// sqliteSubject closes its Store to crash; TestKill does it in earnest.
type sqliteSubject struct {
	*session
	dir    string
	bounds bounds
}

func newSQLiteSubject(t *testing.T, b bounds) *sqliteSubject {
	dir := freshDir(t)
	return &sqliteSubject{begin(t, dir, b), dir, b}
}

func (s *sqliteSubject) crash(t *testing.T) {
	boot := s.Boot()
	s.end(t)
	s.session = begin(t, s.dir, s.bounds)
	if s.Boot() != boot+1 {
		t.Fatalf("boot is %d after %d", s.Boot(), boot)
	}
}
