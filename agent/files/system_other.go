//go:build !unix

package files

import (
	"io/fs"
	"os"
	"os/exec"
)

// lock is nothing here: whoever starts two jobs for a directory has both.
func lock(string) (unlock func(), err error) { return func() {}, nil }

// giveTo is nothing here: a new file belongs to whom the directory says.
func giveTo(*os.File, fs.FileInfo) error { return nil }

// syncDir is nothing here: a directory cannot be synced.
func syncDir(*os.File) error { return nil }

// group is nothing here.
func group(*exec.Cmd) {}

// endGroup ends the command alone.
func endGroup(c *exec.Cmd, _ bool) error { return c.Process.Kill() }
