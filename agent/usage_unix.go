//go:build unix

package agent

import (
	"runtime"
	"syscall"
	"time"
)

// usage returns the processor time that this process has used, and the most memory that
// it has had at once in bytes.
func usage() (cpu time.Duration, resident int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	unit := int64(1024) // of Maxrss
	if runtime.GOOS == "darwin" {
		unit = 1
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(u.Maxrss) * unit
}
