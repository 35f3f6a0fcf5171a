package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/fxamacker/cbor/v2"

	"gus/register"
)

// codec turns records into CBOR and back.
type codec struct {
	enc   cbor.UserBufferEncMode
	dec   cbor.DecMode
	table *crc32.Table
}

func newCodec() (codec, error) {
	enc, err := cbor.CoreDetEncOptions().UserBufferEncMode()
	if err != nil {
		return codec{}, fmt.Errorf("set up encoding: %w", err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  16,
		MaxArrayElements: 1 << 10, // tags and owners, at most a few for each voter that ever was
		MaxMapPairs:      1 << 6,
		// Keys were checked at the door. The disk gives back what it was given:
		// a record that can be written but not read would end the site.
		UTF8: cbor.UTF8DecodeInvalid,
	}.DecMode()
	if err != nil {
		return codec{}, fmt.Errorf("set up decoding: %w", err)
	}
	return codec{enc, dec, crc32.MakeTable(crc32.Castagnoli)}, nil
}

// append appends r to a CBOR sequence.
func (c codec) append(body *bytes.Buffer, r register.Record) error {
	if err := c.enc.MarshalToBuffer(&r, body); err != nil {
		return fmt.Errorf("encode the record of %q: %w", r.Key, err)
	}
	return nil
}

// decode returns the records of a CBOR sequence.
func (c codec) decode(body []byte) ([]register.Record, error) {
	var records []register.Record
	for len(body) > 0 {
		var r register.Record
		rest, err := c.dec.UnmarshalFirst(body, &r)
		if err != nil {
			return nil, fmt.Errorf("decode a record: %w", err)
		}
		records, body = append(records, r), rest
	}
	return records, nil
}

// open checks a row's sum and decodes its body.
func (c codec) open(seq register.Seq, sum int64, body []byte) ([]register.Record, error) {
	if c.checksum(seq, body) != sum {
		return nil, fmt.Errorf("checksum does not match")
	}
	return c.decode(body)
}

// checksum is the CRC-32C of a row's save number, eight bytes with the highest
// first, and its body.
func (c codec) checksum(seq register.Seq, body []byte) int64 {
	sum := crc32.Checksum(binary.BigEndian.AppendUint64(nil, uint64(seq)), c.table)
	return int64(crc32.Update(sum, c.table, body))
}

// partition is the partition of a key, 0 to 15: the lowest bits of the key's
// CRC-32C. It is part of the format.
func (c codec) partition(key string) int64 {
	return int64(crc32.Checksum([]byte(key), c.table) % 16)
}
