package snapshot

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"gus/register"
)

// TestMain lets the test binary be the process that is killed (kill_test.go).
func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVariable); dir != "" {
		beVictim(dir)
	}
	os.Exit(m.Run())
}

const cluster = "c0ffee"

// small folds all the time.
var small = bounds{rows: 8, bytes: 32 << 10, keys: 6, piece: 4 << 10, log: 40}

// session is a Store whose saves are waited for.
type session struct {
	*Store
	results chan error
	logged  bytes.Buffer // to be read after Close
}

// start opens a Store in dir.
func start(dir string, b bounds) (*session, error) { return startWith(dir, Options{bounds: b}) }

// startWith is start with further options.
func startWith(dir string, opts Options) (*session, error) {
	s := &session{results: make(chan error, 1)}
	opts.Cluster = cluster
	opts.Done = func(_ register.Seq, err error) { s.results <- err }
	opts.Logger = slog.New(slog.NewTextHandler(&s.logged, nil))
	var err error
	s.Store, err = Open(dir, opts)
	return s, err
}

// begin is start, which must succeed; the test closes what is open at its end.
func begin(t testing.TB, dir string, b bounds) *session {
	t.Helper()
	return beginWith(t, dir, Options{bounds: b})
}

// beginWith is begin with further options.
func beginWith(t testing.TB, dir string, opts Options) *session {
	t.Helper()
	s, err := startWith(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// save saves and waits.
func (s *session) save(seq register.Seq, records []register.Record) error {
	s.Save(seq, records)
	return <-s.results
}

// fill saves the workload from first to last.
func (s *session) fill(t testing.TB, first, last register.Seq) {
	t.Helper()
	for seq := first; seq <= last; seq++ {
		if err := s.save(seq, workload(seq)); err != nil {
			t.Fatal(err)
		}
	}
}

// end closes s.
func (s *session) end(t testing.TB) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// freshDir returns the path of a data directory that is not there yet.
func freshDir(t testing.TB) string { return filepath.Join(t.TempDir(), "site") }

// state is what records come to, by key.
type state map[string]register.Record

func (st state) apply(records ...register.Record) {
	for _, r := range records {
		folded := register.Fold(st[r.Key], r)
		if folded.Key != "" { // a mark on nothing says nothing
			st[r.Key] = folded
		}
	}
}

// replayed is the state after the workload up to last.
func replayed(last register.Seq) state {
	st := state{}
	for seq := register.Seq(1); seq <= last; seq++ {
		st.apply(workload(seq)...)
	}
	return st
}

// recovered is the state that a store's records come to, older before newer.
func recovered(t testing.TB, records func(func(register.Record, error) bool)) state {
	t.Helper()
	st := state{}
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		if older := st[r.Key].Cur.Tag; !r.IsMark() && r.Cur.Tag.Less(older) {
			t.Fatalf("%s of %v comes after %v", r.Key, r.Cur.Tag, older)
		}
		st.apply(r)
	}
	return st
}

// mustEqual compares states and names a key in which they differ.
func mustEqual(t testing.TB, got, want state) {
	t.Helper()
	for key := range want {
		if !reflect.DeepEqual(got[key], want[key]) {
			t.Fatalf("%s is\n%+v, want\n%+v", key, got[key], want[key])
		}
	}
	for key := range maps.Keys(got) {
		if _, ok := want[key]; !ok {
			t.Fatalf("%s is there: %+v", key, got[key])
		}
	}
}

// workload is save seq of a story that is the same each time: some keys are
// written often, most of them seldom, and marks follow their records.
func workload(seq register.Seq) []register.Record {
	records := writes(seq)
	for i, r := range writes(seq - 1) {
		if i%3 == 0 {
			mark := register.Record{Key: r.Key, Mark: r.Cur.Tag, Readable: i%2 == 0}
			mark.Cur.Decided = i%4 != 0
			records = append(records, mark)
		}
	}
	return records
}

// writes are the full records of a save.
func writes(seq register.Seq) []register.Record {
	if seq == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(7, uint64(seq)))
	var records []register.Record
	for range 1 + rng.IntN(12) {
		key := fmt.Sprintf("hot/%d", rng.IntN(5))
		if rng.IntN(2) == 0 {
			key = fmt.Sprintf("cold/%d", rng.IntN(500))
		}
		records = append(records, record(key, uint64(seq), 1+rng.IntN(300)))
	}
	return records
}

// record is a record with all that a record can have.
func record(key string, ts uint64, size int) register.Record {
	value := make([]byte, size) // not empty: that would come back as nil
	for i := range value {
		value[i] = byte(ts) + byte(i)
	}
	tag := register.Tag{TS: ts, Owner: 2}
	return register.Record{
		Key:    key,
		Cur:    register.Write{Tag: tag, Value: value, Known: []register.Tag{{TS: 1, Owner: 1}}},
		Floor:  register.Tag{TS: ts / 2, Owner: 1},
		Orphan: ts / 3,
		Recs: []register.Rec{
			{Write: register.Write{Tag: tag}, Accepted: true, NoValue: true},
			{Write: register.Write{Tag: register.Tag{TS: 1, Owner: 3}, Deleted: true}},
		},
		Pending: &register.Pending{Write: register.Write{Tag: tag, Value: value}, Spec: tag},
	}
}
