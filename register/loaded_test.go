package register

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// However a store orders what it holds, keys again and again among it, a replica
// holds the newest record of each key, counted once, and lists the keys in order.
func TestRecordsInAnyOrder(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var records []Record
		newest := map[string]Record{}
		for range 1 + rng.IntN(600) {
			w := Write{Tag: Tag{TS: uint64(len(records) + 1), Owner: 1}, Value: make([]byte, rng.IntN(9)), Decided: true}
			r := Record{Key: fmt.Sprintf("%03d", rng.IntN(300)), Cur: w, Readable: true}
			records, newest[r.Key] = append(records, r), r
		}
		folded := rng.IntN(len(records) + 1)
		if seed%4 > 0 { // an epoch, partition by partition in the order of keys, and then a log
			slices.SortStableFunc(records[:folded], func(a, b Record) int {
				return cmp.Or(cmp.Compare(Partition(a.Key), Partition(b.Key)), cmp.Compare(a.Key, b.Key))
			})
		}
		r := fromRecords(t, records)
		sorted := slices.Sorted(maps.Keys(newest))
		var listed []string
		for g := range r.index.after("") {
			listed = append(listed, g.key)
		}
		if !slices.Equal(listed, sorted) {
			t.Fatalf("seed %d: it lists %v, want %v", seed, listed, sorted)
		}
		var apart []Record
		for _, key := range sorted {
			apart = append(apart, newest[key])
			if got := r.Peek(key); got.Tag != newest[key].Cur.Tag {
				t.Fatalf("seed %d: %s is %v, want %v", seed, key, got.Tag, newest[key].Cur.Tag)
			}
		}
		s := fromRecords(t, apart)
		if r.Status() != s.Status() || r.Digests() != s.Digests() {
			t.Fatalf("seed %d: %+v of %d records, %+v of the newest", seed, r.Status(), len(records), s.Status())
		}
	}
}

// fromRecords is a replica that holds records.
func fromRecords(t *testing.T, records []Record) *Replica {
	t.Helper()
	r, err := New(Config{Self: 1, Voters: []Voter{1}, Boot: 1}, func(yield func(Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
