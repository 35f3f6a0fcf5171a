package quic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the largest frame's payload in bytes.
const MaxFrame = maxBatch

// ErrFrameTooLarge is returned by ReadFrame and WriteFrame for a frame beyond
// the limit, before any of it is read or written.
var ErrFrameTooLarge = errors.New("frame too large")

const frameHeader = 4 // bytes: the payload's length, big endian

// WriteFrame writes p as one frame: its length in four bytes, then p.
func WriteFrame(w io.Writer, p []byte) error {
	if len(p) > MaxFrame {
		return fmt.Errorf("write a frame: %w: %d bytes, the limit is %d", ErrFrameTooLarge, len(p), MaxFrame)
	}
	b := make([]byte, frameHeader, frameHeader+len(p))
	binary.BigEndian.PutUint32(b, uint32(len(p)))
	if _, err := w.Write(append(b, p...)); err != nil {
		return fmt.Errorf("write a frame: %w", err)
	}
	return nil
}

// ReadFrame reads one frame of at most limit bytes (at most MaxFrame). The
// error is io.EOF itself where r ends before a frame begins. Memory grows with
// what arrives, not with what the length promises.
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	size, err := FrameSize(r, limit)
	if err != nil {
		return nil, err
	}
	return FramePayload(r, size)
}

// FrameSize reads the beginning of a frame and returns the size of its payload, which
// is to be read next; its errors are ReadFrame's. It is for who has to make room first.
func FrameSize(r io.Reader, limit int) (int, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err == io.EOF {
		return 0, io.EOF
	} else if err != nil {
		return 0, fmt.Errorf("read a frame: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if limit = min(limit, MaxFrame); uint64(size) > uint64(max(limit, 0)) {
		return 0, fmt.Errorf("read a frame: %w: %d bytes, the limit is %d", ErrFrameTooLarge, size, limit)
	}
	return int(size), nil
}

// FramePayload reads the payload of a frame that FrameSize has found to be of that
// size.
func FramePayload(r io.Reader, size int) ([]byte, error) {
	p, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil {
		return nil, fmt.Errorf("read a frame: %w", err)
	}
	if len(p) < size {
		return nil, fmt.Errorf("read a frame: %w", io.ErrUnexpectedEOF)
	}
	return p, nil
}
