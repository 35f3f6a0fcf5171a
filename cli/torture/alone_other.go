//go:build unix && !linux

package torture

import (
	"errors"
	"syscall"
)

// attributes are those of agents.
func attributes() *syscall.SysProcAttr { return nil }

// alone is for Linux.
func alone() (code int, done bool) { return 0, false }

// mountSmall is for Linux.
func mountSmall(string, int64) error { return errors.New("small file systems are made on Linux only") }

func unmount(string) error { return nil }
