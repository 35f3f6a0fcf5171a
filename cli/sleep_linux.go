package cli

import (
	"syscall"
	"time"
)

// sleepUntil returns within a tenth of a millisecond after t. It takes a thread
// while it sleeps.
func sleepUntil(t time.Time) {
	for {
		d := time.Until(t)
		if d <= 0 {
			return
		}
		ts := syscall.NsecToTimespec(d.Nanoseconds())
		_ = syscall.Nanosleep(&ts, nil) // interrupted: the loop goes on
	}
}
