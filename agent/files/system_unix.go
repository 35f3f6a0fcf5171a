//go:build unix

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// lock sees to it that no second job writes into dir. The lock is on the
// directory itself, and goes with the process.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrTaken
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// giveTo gives f the owner and the group of old.
func giveTo(f *os.File, old fs.FileInfo) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	now, ok1 := fi.Sys().(*syscall.Stat_t)
	then, ok2 := old.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 || now.Uid == then.Uid && now.Gid == then.Gid {
		return nil
	}
	if err := f.Chown(int(then.Uid), int(then.Gid)); err != nil {
		return fmt.Errorf("keep its owner %s: %w: run as root, or give the file to the user that this runs as", nameOf(then.Uid), err)
	}
	return nil
}

func nameOf(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// syncDir makes what was renamed in f durable.
func syncDir(f *os.File) error { return f.Sync() }

// group has c run in a process group of its own.
func group(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup asks c's process group to end, or ends it.
func endGroup(c *exec.Cmd, now bool) error {
	sig := syscall.SIGTERM
	if now {
		sig = syscall.SIGKILL
	}
	return syscall.Kill(-c.Process.Pid, sig)
}
