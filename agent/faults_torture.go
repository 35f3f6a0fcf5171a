//go:build torture

package agent

import (
	"os"
	"strings"
	"sync"
	"time"
)

// newClock returns a clock that is wrong by what the file says that
// GUS_TORTURE_CLOCK names: a duration as time.ParseDuration reads it. It looks
// at most ten times a second, and goes on as before where it can read nothing.
// Only binaries that cli/torture builds for itself have this clock.
func newClock() func() time.Time {
	file := os.Getenv("GUS_TORTURE_CLOCK")
	var mu sync.Mutex
	var looked time.Time
	var wrong time.Duration
	return func() time.Time {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if file != "" && (looked.IsZero() || now.Sub(looked) >= 100*time.Millisecond) {
			looked = now
			if b, err := os.ReadFile(file); err == nil {
				if d, err := time.ParseDuration(strings.TrimSpace(string(b))); err == nil {
					wrong = d
				}
			}
		}
		return now.Add(wrong)
	}
}
