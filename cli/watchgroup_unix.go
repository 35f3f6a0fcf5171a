//go:build unix

package cli

import (
	"os/exec"
	"syscall"
	"time"
)

// runGroup runs c in a process group of its own. When c's context ends, all of the group is
// told to end, waited for, and killed after c.WaitDelay.
func runGroup(c *exec.Cmd) error {
	var told time.Time // when the context ended; zero: it has not
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error {
		told = time.Now()
		return syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
	}
	err := c.Run()
	if !told.IsZero() {
		for syscall.Kill(-c.Process.Pid, 0) == nil {
			if time.Since(told) > c.WaitDelay {
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return err
}
