package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"gus/agent/client"
)

// operation is one entry of a history.
type operation struct {
	key        string
	read       bool
	unknown    bool          // a write whose outcome nobody knows
	begin, end time.Duration // since the load began
	version    client.Version
	value      [minSize]byte // zero: a read found none
}

// judgement is what checkHistory found.
type judgement struct {
	Operations int      `json:"operations"`
	Keys       int      `json:"keys"`
	Unknown    int      `json:"unknown_outcomes"`
	Violations []string `json:"violations"` // the first of each key
}

// String says it in a line.
func (j *judgement) String() string {
	if len(j.Violations) > 0 {
		return fmt.Sprintf("check: NOT linearizable: %d keys violate it, first: %s", len(j.Violations), j.Violations[0])
	}
	return fmt.Sprintf("check: linearizable: %d operations on %d keys, %d with an unknown outcome", j.Operations, j.Keys, j.Unknown)
}

// checkHistory judges the histories of all workers, key by key.
//
// The versions make it easy: operations are to be ordered by them, a write
// before the reads that return it. Such an order is the proof of
// linearizability if it agrees with time and the values, which one pass over
// each key shows.
func checkHistory(workers []*worker) *judgement {
	j := &judgement{Violations: []string{}}
	byKey := map[string][]operation{}
	for _, w := range workers {
		for _, op := range w.history {
			byKey[op.key] = append(byKey[op.key], op)
			j.Operations++
			if op.unknown {
				j.Unknown++
			}
		}
	}
	j.Keys = len(byKey)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if err := checkKey(byKey[key]); err != nil {
			j.Violations = append(j.Violations, fmt.Sprintf("key %s: %v", key, err))
		}
	}
	return j
}

func checkKey(ops []operation) error {
	if err := checkValues(ops); err != nil {
		return err
	}
	return checkTimes(ops)
}

// checkValues wants each read to return what was written under its version.
// Writes that one site has under way at once may share a version, the last
// one's; then its value is one of theirs.
func checkValues(ops []operation) error {
	written := map[client.Version][][minSize]byte{}
	unknown := map[[minSize]byte]bool{}
	var first client.Version
	for _, op := range ops {
		switch {
		case op.read:
		case op.unknown:
			unknown[op.value] = true
		default:
			written[op.version] = append(written[op.version], op.value)
			if first == "" || op.version.Compare(first) < 0 {
				first = op.version
			}
		}
	}
	for _, op := range ops {
		if !op.read || slices.Contains(written[op.version], op.value) || unknown[op.value] {
			continue
		}
		if len(written[op.version]) == 0 && (first == "" || op.version.Compare(first) < 0) {
			continue // from before the load
		}
		return fmt.Errorf("a read of version %q returned a value that was not written under it", op.version)
	}
	return nil
}

// checkTimes wants what began after another operation had ended to come after
// it: a read to return no older version, a write to have a newer one.
func checkTimes(ops []operation) error {
	known := slices.DeleteFunc(slices.Clone(ops), func(op operation) bool { return op.unknown })
	byBegin := slices.SortedFunc(slices.Values(known), func(a, b operation) int { return cmp.Compare(a.begin, b.begin) })
	byEnd := slices.SortedFunc(slices.Values(known), func(a, b operation) int { return cmp.Compare(a.end, b.end) })
	var newest operation // of those that ended before op began
	for _, op := range byBegin {
		for len(byEnd) > 0 && byEnd[0].end < op.begin {
			if newest.version == "" || byEnd[0].version.Compare(newest.version) > 0 {
				newest = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		switch c := op.version.Compare(newest.version); {
		case c < 0:
			return fmt.Errorf("version %q at %v after %q, which was complete at %v", op.version, op.begin, newest.version, newest.end)
		case c == 0 && !op.read && newest.version != "":
			return fmt.Errorf("a write at %v has version %q, which was complete at %v", op.begin, op.version, newest.end)
		}
	}
	return nil
}
