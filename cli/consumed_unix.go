//go:build unix

package cli

import (
	"runtime"
	"syscall"
	"time"
)

// consumed returns what this process has used so far, zeros where the system
// does not say.
func consumed() consumption {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return consumption{}
	}
	perMiB := 1024.0 // of Maxrss
	if runtime.GOOS == "darwin" {
		perMiB = 1 << 20
	}
	return consumption{time.Duration(u.Utime.Nano() + u.Stime.Nano()), float64(u.Maxrss) / perMiB}
}
