package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncAll writes out all that f's file system holds back. It is no proof that all
// went well, and makes the syncs cheap that are.
func syncAll(f *os.File) { _ = unix.Syncfs(int(f.Fd())) }
