//go:build !unix

package quic

import "net"

// bufferSizes returns 0: the sizes are not known here.
func bufferSizes(net.PacketConn) (receive, send int) { return 0, 0 }
