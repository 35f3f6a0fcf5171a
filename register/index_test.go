package register

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// The index is in order and complete, whatever the order of insertions and removals.
func TestIndex(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var x index
		keys := map[string]bool{}
		for range 5000 {
			key := fmt.Sprintf("%04d", rng.IntN(3000))
			if seed%2 == 0 {
				key = fmt.Sprintf("%06d", len(keys)*7)
			}
			switch {
			case !keys[key]:
				x.insert(&register{key: key})
				keys[key] = true
			case rng.IntN(3) == 0:
				x.remove(key)
				delete(keys, key)
			}
		}
		sorted := slices.Sorted(maps.Keys(keys))
		for range 100 {
			after := fmt.Sprintf("%06d", rng.IntN(30000))[rng.IntN(6):]
			var got []string
			for g := range x.after(after) {
				got = append(got, g.key)
			}
			i, found := slices.BinarySearch(sorted, after)
			if found {
				i++
			}
			if !slices.Equal(got, sorted[i:]) {
				t.Fatalf("seed %d: after %q: %d keys, want %d", seed, after, len(got), len(sorted)-i)
			}
		}
	}
}
