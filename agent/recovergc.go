package agent

import "runtime/debug"

// recoverGC is the garbage collector's percentage while a replica is made of what
// the disk holds. Then nearly all that is allocated stays: collecting as often
// as ever would mark the same millions of keys again and again.
const recoverGC = 400

// easeGC sets it and returns what sets it back. Where it is higher, off, or set by
// another agent in this process, which then sets it back, it stays as it is.
func easeGC() (restore func()) {
	old := debug.SetGCPercent(recoverGC)
	if old < 0 || old >= recoverGC {
		debug.SetGCPercent(old)
		return func() {}
	}
	return func() { debug.SetGCPercent(old) }
}
