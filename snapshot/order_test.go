package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"gus/register"
)

// agrees says why got is not what Changes may yield after a save: all that was
// changed since, at a number that is not below the change, and besides that only what an epoch
// has given a later number.
func (m model) agrees(got map[string]register.Seq, since, end register.Seq) string {
	want := m.changes(since, end)
	for key, seq := range got {
		if len(m[key]) == 0 || seq < max(want[key], since+1, m[key][0]) {
			return fmt.Sprintf("%s comes at %d, and was changed at %v", key, seq, m[key])
		}
	}
	for key := range want {
		if got[key] == 0 {
			return key + " is missing"
		}
	}
	return ""
}

// model is the order of changes in its plainest form: of each key, the numbers
// of all saves that have changed it.
type model map[string][]register.Seq

// modelled is the model of the workload up to last.
func modelled(last register.Seq) model {
	m := model{}
	for seq := register.Seq(1); seq <= last; seq++ {
		for _, r := range workload(seq) {
			m[r.Key] = append(m[r.Key], seq)
		}
	}
	return m
}

// changes is what Changes must yield after a save, up to end.
func (m model) changes(since, end register.Seq) map[string]register.Seq {
	want := map[string]register.Seq{}
	for key, seqs := range m {
		for _, seq := range seqs {
			if seq > since && seq <= end {
				want[key] = seq
			}
		}
	}
	return want
}

// taken takes in all changes, which are in order, each key once up to end.
func taken(t testing.TB, changes func(func(Change, error) bool), end register.Seq) map[string]register.Seq {
	t.Helper()
	got := map[string]register.Seq{}
	var last register.Seq
	for c, err := range changes {
		must(t, err)
		if c.Seq < last {
			t.Fatalf("save %d comes after %d", c.Seq, last)
		}
		if was, ok := got[c.Key]; ok && c.Seq <= end || c.Key == "" {
			t.Fatalf("%q comes with save %d and with %d", c.Key, was, c.Seq)
		}
		got[c.Key], last = c.Seq, c.Seq
	}
	return got
}

// mustShow compares all that s says of keys with the model, nobody saving.
func mustShow(t testing.TB, s *Store, m model) {
	t.Helper()
	last := s.Last()
	for _, since := range []register.Seq{0, 1, last / 2, last - min(last, 3), last, last + 7, 1 << 63, ^register.Seq(0)} {
		changes, end := s.Changes(since)
		if end != last {
			t.Fatalf("the end is %d after save %d", end, last)
		}
		got, want := taken(t, changes, end), m.changes(since, last)
		if wrong := m.agrees(got, since, last); wrong != "" || len(got) < len(want) || slices.Max(append(slices.Collect(maps.Values(got)), 0)) > end {
			t.Fatalf("changes after %d of %d are\n%v, want\n%v: %s", since, last, got, want, wrong)
		}
	}
	all := slices.Sorted(maps.Keys(m.changes(0, last)))
	for part := range register.Partitions {
		want := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return register.Partition(key) != part })
		if got := keysOf(t, s, part); !slices.Equal(got, want) {
			t.Fatalf("partition %d has keys\n%v, want\n%v", part, got, want)
		}
	}
}

func keysOf(t testing.TB, s *Store, part int) (keys []string) {
	t.Helper()
	for key, err := range s.Keys(part) {
		must(t, err)
		keys = append(keys, key)
	}
	return keys
}

// The order of changes and the keys are as in the model after each save, and
// after each start.
func TestOrderOfChanges(t *testing.T) {
	dir := freshDir(t)
	m := modelled(120)
	s := begin(t, dir, small)
	mustShow(t, s.Store, m)
	for seq := register.Seq(1); seq <= 120; seq++ {
		must(t, s.save(seq, workload(seq)))
		if seq%6 == 0 {
			mustShow(t, s.Store, m)
		}
		if seq%40 == 0 {
			s.end(t)
			s = begin(t, dir, small)
			mustShow(t, s.Store, m)
		}
	}
}

// While saves and epochs go on, no key is missed. One that is changed again meanwhile may
// come with a number above end, or with both.
func TestOrderOfChangesBesideWriter(t *testing.T) {
	const saves = 400
	var s *Store
	finished := make(chan error, 1)
	s, err := Open(freshDir(t), Options{Cluster: cluster, bounds: small, Done: func(seq register.Seq, err error) {
		if err != nil || seq == saves {
			finished <- err
			return
		}
		s.Save(seq+1, workload(seq+1))
	}})
	must(t, err)
	m := modelled(saves)
	rng := rand.New(rand.NewPCG(5, 6))
	s.Save(1, workload(1))
	for s.Last() < saves {
		since := register.Seq(rng.Uint64N(uint64(s.Last()) + 1))
		changes, end := s.Changes(since)
		got := taken(t, changes, end)
		if wrong := m.agrees(got, since, end); wrong != "" {
			t.Fatalf("changes from %d to %d: %s", since, end, wrong)
		}
		part := rng.IntN(register.Partitions)
		before := m.changes(0, s.Last())
		keys := keysOf(t, s, part)
		for key := range before {
			if register.Partition(key) == part && !slices.Contains(keys, key) {
				t.Fatalf("partition %d does not have %s", part, key)
			}
		}
		if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
			t.Fatalf("partition %d has %v", part, keys)
		}
	}
	must(t, <-finished)
	mustShow(t, s, m)
	must(t, s.Close())
}

// A key that is changed and folded again before it is read comes nevertheless: who goes on
// with what is told from then on, and is told of no more than what is new, would never hear of it.
func TestOrderOfChangesThatAreFoldedMeanwhile(t *testing.T) {
	s, m := begin(t, freshDir(t), small), modelled(120)
	s.fill(t, 1, 60)
	changes, end := s.Changes(0)
	s.fill(t, 61, 120)
	if wrong := m.agrees(taken(t, changes, end), 0, end); wrong != "" {
		t.Error(wrong)
	}
}

// More keys than a page, many of them changed by one save, some folded and
// some not: the pages fit together.
func TestOrderOfChangesHasPages(t *testing.T) {
	s := begin(t, freshDir(t), bounds{rows: 20, bytes: 1 << 30, keys: 500, piece: 1 << 20})
	m := model{}
	for seq := register.Seq(1); seq <= 6; seq++ {
		var records []register.Record
		for i := range 1700 {
			key := fmt.Sprint(i * int(seq) % 4001)
			records = append(records, record(key, uint64(seq), 1))
			if n := len(m[key]); n == 0 || m[key][n-1] != seq {
				m[key] = append(m[key], seq)
			}
		}
		must(t, s.save(seq, records))
		mustShow(t, s.Store, m)
	}
}

// Whoever takes in changes may stop.
func TestChangesMayBeLeft(t *testing.T) {
	s := begin(t, freshDir(t), small)
	s.fill(t, 1, 30)
	changes, _ := s.Changes(0)
	for range changes {
		break
	}
	for range s.Keys(3) {
		break
	}
	must(t, s.save(31, workload(31)))
}

// A record with the empty key is the voter's own: it is kept as any other, and
// is no key to be shown.
func TestEmptyKey(t *testing.T) {
	dir := freshDir(t)
	want := state{}
	save := func(s *session, first register.Seq) {
		for seq := first; seq < first+30; seq++ {
			own := record("", uint64(seq), 10)
			mark := register.Record{Mark: own.Cur.Tag, Readable: true}
			records := append(workload(seq), own, mark)
			must(t, s.save(seq, records))
			want.apply(workload(seq)...)
			want[""] = register.Fold(own, mark)
		}
	}
	read := func(s *session) state {
		got := state{}
		for r, err := range s.Records() {
			must(t, err)
			got[r.Key] = register.Fold(got[r.Key], r)
		}
		return got
	}
	s := begin(t, dir, small)
	save(s, 1)
	mustEqual(t, read(s), want)
	if n := ask(t, s.conn, "SELECT count(*) FROM records WHERE key = x''"); n != 1 {
		t.Errorf("there are %d records of the empty key", n)
	}
	mustShow(t, s.Store, modelled(30))
	s.end(t)
	s = begin(t, dir, small)
	mustEqual(t, read(s), want)
	mustShow(t, s.Store, modelled(30))
	save(s, 31)
	mustEqual(t, read(s), want)
	mustShow(t, s.Store, modelled(60))
}

// A wrong bit in the order of changes is found, though no body is read.
func TestDamagedOrder(t *testing.T) {
	for _, set := range []string{"seq = seq + 1", "key = CAST(x'20' || key AS BLOB)", "sum = sum + 4294967296"} {
		s := begin(t, freshDir(t), small)
		s.fill(t, 1, 40)
		tamper(t, dirOf(s), "UPDATE records SET "+set)
		changes, _ := s.Changes(0)
		var last error
		for _, err := range changes {
			last = err
		}
		if !errors.Is(last, ErrDamaged) {
			t.Errorf("after %s it ends with %v", set, last)
		}
		last = nil
		for part := range register.Partitions {
			for _, err := range s.Keys(part) {
				last = errors.Join(last, err)
			}
		}
		if !errors.Is(last, ErrDamaged) {
			t.Errorf("after %s the keys end with %v", set, last)
		}
	}
}

// Keys that are written again and again are remembered once, not for each time:
// what is remembered stays small, and still is the order of changes.
func TestRecentChangesAreCompacted(t *testing.T) {
	s := begin(t, freshDir(t), never)
	m := model{}
	for seq := register.Seq(1); seq <= 20; seq++ {
		var records []register.Record
		for i := range 1000 {
			key := fmt.Sprint("key/", i%10+int(seq)%7)
			records = append(records, record(key, uint64(seq)<<16+uint64(i), 1))
			if n := len(m[key]); n == 0 || m[key][n-1] != seq {
				m[key] = append(m[key], seq)
			}
		}
		must(t, s.save(seq, records))
	}
	if n := len(s.recent); n > 3*minCompact {
		t.Errorf("of 16 keys %d changes are remembered", n)
	}
	mustShow(t, s.Store, m)
}
