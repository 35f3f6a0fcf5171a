//go:build unix

package quic

import (
	"net"
	"syscall"
)

// bufferSizes returns the sizes of the socket's buffers as the kernel has
// them, 0 where conn is no socket. Linux counts its own overhead: twice what
// was asked for.
func bufferSizes(conn net.PacketConn) (receive, send int) {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return 0, 0
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, 0
	}
	err = raw.Control(func(fd uintptr) {
		receive, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
		send, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
	})
	if err != nil {
		return 0, 0
	}
	return receive, send
}
