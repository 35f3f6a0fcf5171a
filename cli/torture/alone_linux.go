package torture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// attributes are those of agents: they do not outlive the harness.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// mayMount is set where the harness has a namespace of its own for mounts, which
// go with it.
const mayMount = "GUS_TORTURE_MAY_MOUNT"

// alone runs this program again with a namespace of its own for mounts, and
// returns its exit code. It returns false where it is that already, and where
// the system does not allow it.
func alone() (code int, done bool) {
	if os.Getenv(mayMount) != "" {
		return 0, false
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), mayMount+"=yes")
	cmd.SysProcAttr = attributes()
	cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // which makes all mounts private
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), true
	}
	return 0, err == nil
}

// mountSmall mounts a file system of its own of size bytes at dir. It goes with
// the harness.
func mountSmall(dir string, size int64) error {
	if os.Getenv(mayMount) == "" {
		return errors.New("the system gives the harness no namespace for mounts")
	}
	if err := syscall.Mount("torture", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		return fmt.Errorf("mount a small file system at %s: %w", dir, err)
	}
	return nil
}

// unmount takes away what mountSmall mounted.
func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
