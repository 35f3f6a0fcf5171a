package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"gus/quic"
	"gus/register"
)

// purposeCatchup is that of a stream on which a voter pulls what it lacks of
// another's writes; quic/WIRE.md states the bytes.
const purposeCatchup quic.Purpose = 4

// The limits of what passes on streams of catching up and of agreement.
const (
	streamVersion = 1
	// maxShown is how many keys are in a page; with the one that exceeds
	// maxShownBytes, of keys, it ends as well.
	maxShown      = 1000
	maxShownBytes = 256 << 10
	// maxAsk is the size of the largest frame of who asks: a page of keys.
	maxAsk = 512 << 10
	// fillAnswer is up to where a frame of several writes is filled, maxAnswer the
	// size of the largest: one write of the largest value.
	fillAnswer = 1 << 20
	maxAnswer  = register.MaxValue + 64<<10
	// stepTimeout is for each frame; who asks may take in as long what it was
	// told before.
	stepTimeout = time.Minute
	// answerTimeout is for each frame of an answer: who pulls holds up its other pulls meanwhile.
	answerTimeout = 5 * time.Second
)

// pullAsk is what who catches up asks: for the writes of some keys of the page
// before, and for the next page.
type pullAsk struct {
	Version  uint64       `cbor:"1,keyasint,omitempty"` // of the first one: streamVersion
	Database uint64       `cbor:"2,keyasint,omitempty"` // of the first one, with After: the cursor
	After    register.Seq `cbor:"3,keyasint,omitempty"`
	Wanted   []uint16     `cbor:"4,keyasint,omitempty"` // of the page before, ascending, from 0
	Last     bool         `cbor:"5,keyasint,omitempty"` // no page is asked for
}

// pullAnswer is part of the answer. The one with a page ends it.
type pullAnswer struct {
	Writes []register.MsgCatchup `cbor:"1,keyasint,omitempty"`
	Page   *pullPage             `cbor:"2,keyasint,omitempty"`
}

// pullPage is keys in the order in which they were changed last.
type pullPage struct {
	Database uint64           `cbor:"1,keyasint"`
	Keys     []register.Shown `cbor:"2,keyasint,omitempty"` // settled ones
	Upto     register.Seq     `cbor:"3,keyasint"`           // all changes up to it are in this page and those before
	Last     register.Seq     `cbor:"4,keyasint"`           // the highest saved one
	End      bool             `cbor:"5,keyasint,omitempty"` // there is no page after this one
}

// Both modes are built once and may be used by all at the same time.
var (
	streamEncoding = mustStreamEncoding()
	streamDecoding = mustStreamDecoding()
)

func mustStreamEncoding() cbor.UserBufferEncMode {
	mode, err := cbor.CoreDetEncOptions().UserBufferEncMode()
	if err != nil {
		panic(err)
	}
	return mode
}

func mustStreamDecoding() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  8, // an answer, writes, one of them, its write, known tags, a tag: 6, and room
		MaxArrayElements: maxShown,
		MaxMapPairs:      16,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}

// say writes v as one frame.
func say(s *quic.Stream, v any) error {
	var b bytes.Buffer
	if err := streamEncoding.MarshalToBuffer(v, &b); err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	if err := s.SetWriteDeadline(time.Now().Add(stepTimeout)); err != nil {
		return fmt.Errorf("write to %s: %w", s.Peer().Name, err)
	}
	return quic.WriteFrame(s, b.Bytes())
}

// hearFrame reads a frame of at most limit bytes into v. The error is io.EOF itself where the
// other side has ended.
func hearFrame(s *quic.Stream, limit int, v any) error {
	return hearWithin(s, 2*stepTimeout, limit, v)
}

// hearWithin is hearFrame with another deadline.
func hearWithin(s *quic.Stream, d time.Duration, limit int, v any) error {
	if err := s.SetReadDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("read from %s: %w", s.Peer().Name, err)
	}
	b, err := quic.ReadFrame(s, limit)
	if err != nil {
		return err
	}
	if err := streamDecoding.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

// errEnded: the other side has more to say and does not.
var errEnded = errors.New("it ended the stream too early")

// errNonsense is what a peer says that follows no protocol.
var errNonsense = errors.New("not what the protocol says")

func nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errNonsense, fmt.Sprintf(format, args...))
}

// checkShown refuses a page of keys that cannot be.
func checkShown(shown []register.Shown) error {
	for _, s := range shown {
		if err := register.CheckKey(s.Key); err != nil {
			return nonsense("%v", err)
		}
	}
	return nil
}

// bind has s closed when ctx ends. What it returns ends that.
func bind(ctx context.Context, s *quic.Stream) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.Close() })
}
