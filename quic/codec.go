package quic

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"gus/register"
)

// The version of the batch format and its limits; WIRE.md states them.
const (
	batchVersion = 1
	// maxMessage is the size of the largest message: two writes with values
	// of register.MaxValue bytes, a key and some tags.
	maxMessage = 2*register.MaxValue + 64<<10
	// maxBatch is the size of the largest batch: one largest message and a
	// header. Batches of several messages are filled to batchFill only.
	maxBatch  = maxMessage + 1<<10
	batchFill = 1 << 20
	// maxBatchMessages is how many messages are in one batch at most.
	maxBatchMessages = 4096
	leastMessage     = 24               // bytes that hardly a message is smaller than
	maxElements      = register.MaxPage // of an array: ACK-LIST has the longest
	maxPairs         = 16               // of a map
	maxNesting       = 6                // a message, a write, its known tags, a tag: 4, and room
)

// Header is what each batch says of its sender.
type Header struct {
	Cluster       Cluster
	Configuration uint64 // the number of the sender's configuration
	Boot          uint64 // the sender's boot, raised at each of its starts
	// Progress is how far the sender knows voters to have come; of itself it says so only while it votes.
	// At most register.MaxVoters.
	Progress []register.Progress
}

// Batch is what one stream of the register lane carries. Whoever is given one
// owns it.
type Batch struct {
	Header
	Messages []register.Message
}

type wireHeader struct {
	_             struct{} `cbor:",toarray"`
	Version       uint64
	Cluster       []byte
	Configuration uint64
	Boot          uint64
	Progress      []register.Progress
}

// Both modes are built once and may be used by all at the same time.
var (
	encoding = mustEncoding()
	decoding = mustDecoding()
)

func mustEncoding() cbor.UserBufferEncMode {
	mode, err := cbor.CoreDetEncOptions().UserBufferEncMode()
	if err != nil {
		panic(err)
	}
	return mode
}

func mustDecoding() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  maxNesting,
		MaxArrayElements: maxElements,
		MaxMapPairs:      maxPairs,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}

// appendMessage appends m as it stands in a batch: its kind and its body. The
// same bytes serve for every receiver.
func appendMessage(b []byte, m register.Message) ([]byte, error) {
	n := len(b)
	b = append(b, byte(m.Kind())) // below 24, so this is the CBOR of the number
	b, ok := appendPlain(b, m)
	if !ok {
		var body bytes.Buffer
		if err := encoding.MarshalToBuffer(m, &body); err != nil {
			return b[:n], fmt.Errorf("encode %s: %w", m.Kind(), err)
		}
		b = append(b, body.Bytes()...)
	}
	if size := len(b) - n; size > maxMessage {
		return b[:n], fmt.Errorf("encode %s: %d bytes, the limit is %d", m.Kind(), size, maxMessage)
	}
	return b, nil
}

// encodeHeader returns the beginning of a batch; encoded messages follow it.
func encodeHeader(h Header) ([]byte, error) {
	progress := h.Progress
	if progress == nil {
		progress = []register.Progress{} // an empty array; nil would be null
	}
	b, err := encoding.Marshal(wireHeader{
		Version: batchVersion, Cluster: h.Cluster[:],
		Configuration: h.Configuration, Boot: h.Boot, Progress: progress,
	})
	if err != nil {
		return nil, fmt.Errorf("encode a batch's header: %w", err)
	}
	return b, nil
}

// DecodeBatch reads a whole batch under the limits of WIRE.md, or refuses all
// of it. It keeps nothing of b.
func DecodeBatch(b []byte) (Batch, error) {
	if len(b) > maxBatch {
		return Batch{}, fmt.Errorf("decode a batch: %d bytes, the limit is %d", len(b), maxBatch)
	}
	var h wireHeader
	rest, err := decoding.UnmarshalFirst(b, &h)
	if err != nil {
		return Batch{}, fmt.Errorf("decode a batch's header: %w", err)
	}
	if h.Version != batchVersion {
		return Batch{}, fmt.Errorf("decode a batch: version %d, this is version %d", h.Version, batchVersion)
	}
	batch := Batch{Header: Header{Configuration: h.Configuration, Boot: h.Boot}}
	if len(h.Cluster) != len(batch.Cluster) {
		return Batch{}, fmt.Errorf("decode a batch: a cluster id of %d bytes", len(h.Cluster))
	}
	if batch.Progress, err = checkProgress(h.Progress); err != nil {
		return Batch{}, fmt.Errorf("decode a batch's header: %w", err)
	}
	copy(batch.Cluster[:], h.Cluster)
	batch.Messages = make([]register.Message, 0, min(len(rest)/leastMessage+1, maxBatchMessages/4))
	for len(rest) > 0 {
		if len(batch.Messages) == maxBatchMessages {
			return Batch{}, fmt.Errorf("decode a batch: more than %d messages", maxBatchMessages)
		}
		var m register.Message
		if m, rest, err = decodeMessage(rest); err != nil {
			return Batch{}, err
		}
		batch.Messages = append(batch.Messages, m)
	}
	return batch, nil
}

// checkProgress returns what a header says of voters, nil where that is nothing.
func checkProgress(all []register.Progress) ([]register.Progress, error) {
	if all == nil {
		return nil, errors.New("its progress is null")
	}
	if len(all) > register.MaxVoters {
		return nil, fmt.Errorf("it speaks of %d voters, the limit is %d", len(all), register.MaxVoters)
	}
	for _, p := range all {
		if p.Voter < 1 || p.Voter > register.MaxVoter {
			return nil, fmt.Errorf("it speaks of voter %d, which cannot be", p.Voter)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

func decodeMessage(b []byte) (register.Message, []byte, error) {
	kind := register.Kind(b[0])
	m := register.NewMessage(kind)
	if m == nil {
		return nil, nil, fmt.Errorf("decode a message: kind %d is not known", b[0])
	}
	if len(b) < 2 || b[1]>>5 != 5 {
		return nil, nil, fmt.Errorf("decode %s: its body is not a map", kind)
	}
	rest, ok := readPlain(b[1:], m)
	if !ok {
		var err error
		m = register.NewMessage(kind) // the first may have been written to
		if rest, err = decoding.UnmarshalFirst(b[1:], m); err != nil {
			return nil, nil, fmt.Errorf("decode %s: %w", kind, err)
		}
	}
	if size := len(b) - len(rest); size > maxMessage {
		return nil, nil, fmt.Errorf("decode %s: %d bytes, the limit is %d", kind, size, maxMessage)
	}
	return m, rest, nil
}
