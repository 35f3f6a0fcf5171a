//go:build linux || darwin || freebsd

package agent

import "golang.org/x/sys/unix"

// diskSize returns the size of the file system of path in bytes; 0: it is not known.
func diskSize(path string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0
	}
	return int64(fs.Blocks) * int64(fs.Bsize)
}
