package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A pipe is a connection to the local API that carries operations on keys as
// frames, many at a time, rather than as requests of HTTP (API.md beside the agent
// has the format). Agent and client share what is in this file.

// The request that makes a connection a pipe: GET PipePath with this Upgrade.
const (
	PipePath    = "/v1/pipe"
	PipeUpgrade = "gus-pipe/1"
)

// Limits of a pipe.
const (
	// MaxPipeValue is the size in bytes of the largest value that a pipe takes; it
	// answers with values of any size.
	MaxPipeValue = 64 << 10
	// MaxPipeRequest is the size in bytes of the largest request, its length included.
	MaxPipeRequest = MaxPipeValue + 4<<10
	// MaxPipeRequests is how many requests of one pipe can be under way.
	MaxPipeRequests = 1024

	maxPipeReply = MaxValue + 64<<10
)

// PipeKind says what a request of a pipe is for.
type PipeKind byte

// The kinds of requests.
const (
	PipeGet   PipeKind = 1 // read, linearizably
	PipeLocal PipeKind = 2 // read what this site knows
	PipeSet   PipeKind = 3 // write
	PipeDel   PipeKind = 4 // remove
	PipeDrop  PipeKind = 5 // forget the request of that ID: its client is gone
)

// PipeRequest is one request of a pipe.
type PipeRequest struct {
	ID      uint64 // chosen by the client, of no other request that is under way
	Kind    PipeKind
	Timeout time.Duration // in whole microseconds; above zero but for a PipeDrop
	Key     []byte
	Value   []byte
}

// The lengths of what each frame begins with.
const (
	requestHead = 4 + 8 + 1 + 8 + 2
	replyHead   = 4 + 8 + 2 + 1 + 2 + 8 + 1 + 1
)

// The bits of a reply's flags.
const (
	flagNewer = 1 << iota
	flagPending
)

var errFrame = errors.New("a frame that cannot be")

// AppendPipeRequest appends r to b. Key and value must be within the limits.
func AppendPipeRequest(b []byte, r PipeRequest) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(requestHead-4+len(r.Key)+len(r.Value)))
	b = binary.BigEndian.AppendUint64(b, r.ID)
	b = append(b, byte(r.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Timeout.Microseconds()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.Key)))
	b = append(b, r.Key...)
	return append(b, r.Value...)
}

// PipeRequestSize is the size in bytes of the request that begins with the four
// bytes b, or an error where there can be no such request.
func PipeRequestSize(b []byte) (int, error) { return frameSize(b, requestHead, MaxPipeRequest) }

func frameSize(b []byte, least, most int) (int, error) {
	n := int64(binary.BigEndian.Uint32(b)) + 4
	if n < int64(least) || n > int64(most) {
		return 0, fmt.Errorf("%w: %d bytes, where %d to %d can be", errFrame, n, least, most)
	}
	return int(n), nil
}

// ParsePipeRequest reads the request that b, of its PipeRequestSize, is. Its key and
// value are pieces of b.
func ParsePipeRequest(b []byte) (PipeRequest, error) {
	r := PipeRequest{ID: binary.BigEndian.Uint64(b[4:]), Kind: PipeKind(b[12])}
	us := binary.BigEndian.Uint64(b[13:])
	key := int(binary.BigEndian.Uint16(b[21:]))
	rest := b[requestHead:]
	switch {
	case r.Kind < PipeGet || r.Kind > PipeDrop:
		return r, fmt.Errorf("%w: kind %d is not known", errFrame, r.Kind)
	case key > len(rest):
		return r, fmt.Errorf("%w: a key of %d bytes in %d", errFrame, key, len(rest))
	case r.Kind != PipeSet && key < len(rest):
		return r, fmt.Errorf("%w: %d bytes too many", errFrame, len(rest)-key)
	case us == 0 && r.Kind != PipeDrop:
		return r, fmt.Errorf("%w: no timeout", errFrame)
	}
	r.Timeout = time.Duration(min(us, uint64(time.Hour/time.Microsecond))) * time.Microsecond
	r.Key, r.Value = rest[:key:key], rest[key:]
	return r, nil
}

// AppendPipeReply appends the reply r to the request id to b. What it says of
// version and voter is cut at 255 bytes.
func AppendPipeReply(b []byte, id uint64, r *Reply) []byte {
	version, via := r.Version[:min(len(r.Version), 255)], r.Via[:min(len(r.Via), 255)]
	b = binary.BigEndian.AppendUint32(b, uint32(replyHead-4+len(version)+len(via)+len(r.Body)))
	b = binary.BigEndian.AppendUint64(b, id)
	b = binary.BigEndian.AppendUint16(b, uint16(r.Status))
	var flags byte
	if r.Newer {
		flags |= flagNewer
	}
	if r.Pending {
		flags |= flagPending
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(min(max(r.RoundTrips, 0), 1<<16-1)))
	b = binary.BigEndian.AppendUint64(b, uint64(max(r.Age.Milliseconds(), 0)))
	b = append(b, byte(len(version)), byte(len(via)))
	b = append(b, version...)
	b = append(b, via...)
	return append(b, r.Body...)
}

// parsePipeReply reads the reply that b, of its frameSize, is. It keeps nothing of b.
func parsePipeReply(b []byte) (id uint64, r Reply, err error) {
	id = binary.BigEndian.Uint64(b[4:])
	r.Status = int(binary.BigEndian.Uint16(b[12:]))
	r.Newer, r.Pending = b[14]&flagNewer != 0, b[14]&flagPending != 0
	r.RoundTrips = int(binary.BigEndian.Uint16(b[15:]))
	r.Age = time.Duration(min(binary.BigEndian.Uint64(b[17:]), 1<<43)) * time.Millisecond
	version, via := int(b[25]), int(b[26])
	rest := b[replyHead:]
	if version+via > len(rest) {
		return id, r, fmt.Errorf("%w: %d bytes too few", errFrame, version+via-len(rest))
	}
	r.Version, r.Via = Version(rest[:version]), string(rest[version:version+via])
	r.Body = append([]byte{}, rest[version+via:]...)
	return id, r, nil
}
