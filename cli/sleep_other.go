//go:build !linux

package cli

import "time"

// sleepUntil returns about a millisecond after t at the latest.
func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
