package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/fxamacker/cbor/v2"

	"gus/register"
)

// codec turns records into CBOR and back. Safe for concurrent use.
type codec struct {
	enc cbor.UserBufferEncMode
	dec cbor.DecMode
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
	return codec{enc, dec}, nil
}

// append appends r to a CBOR sequence.
func (c codec) append(body *bytes.Buffer, r register.Record) error {
	if b, ok := appendPlain(body.AvailableBuffer(), &r); ok {
		body.Write(b)
		return nil
	}
	odd := r // it goes to the heap, as r must not
	if err := c.enc.MarshalToBuffer(&odd, body); err != nil {
		return fmt.Errorf("encode the record of %q: %w", r.Key, err)
	}
	return nil
}

// decode returns the records of a CBOR sequence.
func (c codec) decode(body []byte) ([]register.Record, error) {
	var records []register.Record
	for len(body) > 0 {
		r, rest, err := c.first(body)
		if err != nil {
			return nil, err
		}
		records, body = append(records, r), rest
	}
	return records, nil
}

// first decodes the first record of a CBOR sequence.
func (c codec) first(body []byte) (r register.Record, rest []byte, err error) {
	rest, err = c.dec.UnmarshalFirst(body, &r)
	if err != nil {
		return r, nil, fmt.Errorf("decode a record: %w", err)
	}
	return r, rest, nil
}

var errChecksum = errors.New("checksum does not match")

// open checks a row of the log and decodes its body.
func (c codec) open(seq register.Seq, sum int64, body []byte) ([]register.Record, error) {
	if logSum(seq, body) != sum {
		return nil, errChecksum
	}
	return c.decode(body)
}

// openRecord checks a row of the current records and decodes its body into r,
// which is zero.
func (c codec) openRecord(d *plainReader, r *register.Record, key []byte, seq register.Seq, epoch, sum int64, body []byte) error {
	if recordSum(key, seq, epoch, body) != sum {
		return errChecksum
	}
	if d.record(body, r) && r.Key == string(key) {
		return nil
	}
	var rest []byte
	var err error
	*r, rest, err = c.first(body)
	if err == nil && (len(rest) > 0 || r.Key != string(key)) {
		err = errors.New("it is not one record of that key")
	}
	return err
}

// logSum is the sum of a row of the log: of its save's number, eight bytes
// with the highest first, and its body.
func logSum(seq register.Seq, body []byte) int64 {
	sum := crc32.Checksum(binary.BigEndian.AppendUint64(nil, uint64(seq)), castagnoli)
	return int64(crc32.Update(sum, castagnoli, body))
}
