//go:build !torture

package agent

import "time"

// newClock returns the clock that the replica is told and that peers compare.
func newClock() func() time.Time { return time.Now }
