package quic

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// Purpose is the first byte of a bidirectional stream: it says what the stream
// is for, and so who handles it. Each purpose belongs to the package that
// declares it, and is listed in WIRE.md.
type Purpose byte

// purposeHello is for the first stream of a connection, and only for that.
const purposeHello Purpose = 0

// Handler serves one incoming stream, on a goroutine of its own; the stream is
// closed when it returns. The context ends with the connection.
type Handler func(ctx context.Context, from Site, s *Stream)

// Stream codes tell the other side why a stream was broken off.
const (
	streamDone    quicgo.StreamErrorCode = 0 // nobody reads or writes on
	streamRefused quicgo.StreamErrorCode = 1 // what it carries is not acceptable
)

// Stream is a bidirectional stream to one site. It is a net.Conn, with
// deadlines; one goroutine may read while another writes, and any may close.
type Stream struct {
	qs   *quicgo.Stream
	conn *quicgo.Conn
	peer Site

	writing sync.Mutex
	closed  bool // guarded by writing
}

// Peer returns the site at the other end.
func (s *Stream) Peer() Site { return s.peer }

// Context ends when nothing that is written arrives any more: the stream or its
// connection was closed, or the other side has stopped reading.
func (s *Stream) Context() context.Context { return s.qs.Context() }

// Read reads as io.Reader does; io.EOF says that the other side has closed
// the stream after writing everything.
func (s *Stream) Read(p []byte) (int, error) { return s.qs.Read(p) }

// Write writes as io.Writer does. What it took may be lost with the
// connection.
func (s *Stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	return s.qs.Write(p)
}

// CloseWrite ends the writing side only: the other side reads io.EOF.
func (s *Stream) CloseWrite() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.qs.Close()
}

// Close ends both directions: what was written is still delivered to a side
// that reads on, what arrives is discarded. Both must end, or the stream counts
// against the connection's limit for ever. It returns nil.
func (s *Stream) Close() error {
	s.qs.CancelRead(streamDone)
	if !s.writing.TryLock() { // a Write is under way, perhaps for ever
		s.qs.CancelWrite(streamDone)
		s.writing.Lock()
		defer s.writing.Unlock()
		s.closed = true
		return nil
	}
	defer s.writing.Unlock()
	if !s.closed {
		s.closed = true
		_ = s.qs.Close() // fails only where the other side has stopped reading
	}
	return nil
}

// abort breaks both directions off; nothing more is delivered.
func (s *Stream) abort(code quicgo.StreamErrorCode) {
	s.qs.CancelRead(code)
	s.qs.CancelWrite(code)
}

// LocalAddr returns the address of this end.
func (s *Stream) LocalAddr() net.Addr { return s.conn.LocalAddr() }

// RemoteAddr returns the address of the other end, which proves nothing.
func (s *Stream) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// SetDeadline sets both deadlines; the zero time is none.
func (s *Stream) SetDeadline(t time.Time) error { return s.qs.SetDeadline(t) }

// SetReadDeadline sets when reading fails; the zero time is never.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.qs.SetReadDeadline(t) }

// SetWriteDeadline sets when writing fails; the zero time is never.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.qs.SetWriteDeadline(t) }

// readPurpose reads the first byte of an incoming stream.
func readPurpose(s *Stream) (Purpose, error) {
	var b [1]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return 0, fmt.Errorf("read a stream's purpose: %w", err)
	}
	return Purpose(b[0]), nil
}
