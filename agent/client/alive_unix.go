//go:build unix

package client

import "syscall"

// alive says whether an idle connection may be used: an agent that was stopped
// meanwhile has closed it, and a write that was sent into it would have an
// unknown outcome for no good reason.
func (c *conn) alive() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:])
		alive = err == syscall.EAGAIN // nothing to read, not even the end
		return true
	})
	return err == nil && alive
}
