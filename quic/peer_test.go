package quic

import (
	"testing"
	"time"
)

// Of one dialler's connections the later one stays, in whatever order the two
// come to stand at an end: one way alone, or each end would close what the
// other keeps.
func TestOfOneDiallerTheLaterStays(t *testing.T) {
	now := time.Now()
	for _, dialled := range []bool{true, false} {
		first := &conn{boot: 7, dialled: dialled, attempt: 1, since: now}
		second := &conn{boot: 7, dialled: dialled, attempt: 2, since: now}
		if !second.replaces(first) || first.replaces(second) {
			t.Errorf("dialled %v: second for first %v, first for second %v", dialled, second.replaces(first), first.replaces(second))
		}
	}
}
