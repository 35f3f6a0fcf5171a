// Package plain lays and reads by hand the CBOR that messages (package quic) and records
// (package snapshot) have in common, at a fraction of what the library costs, which goes by
// reflection. The bytes are the library's. What is odd in the least, such as a field that was added
// since, is not read here but by the library: nothing depends on what this leaves out.
//
// Functions whose names begin with Append append to b as those of encoding/binary do. Nothing here may
// be used concurrently with the same slice or Reader.
package plain

import (
	"encoding/binary"

	"gus/register"
)

// The major types of CBOR (RFC 8949, section 3.1), in the place of a head's upper bits, and the value true.
const (
	Uint  = 0 << 5
	Bytes = 2 << 5
	Text  = 3 << 5
	Array = 4 << 5
	Map   = 5 << 5
	True  = 0xf5
)

// AppendHead appends the shortest head of the major type with the number n.
func AppendHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n < 1<<8:
		return append(b, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

// AppendMap begins a map of so many fields that are always there and those that may be: fewer than 24.
func AppendMap(b []byte, always int, may ...bool) []byte {
	for _, there := range may {
		if there {
			always++
		}
	}
	return append(b, Map|byte(always))
}

// AppendText appends s, which is UTF-8.
func AppendText(b []byte, s string) []byte {
	return append(AppendHead(b, Text, uint64(len(s))), s...)
}

// AppendTag appends t.
func AppendTag(b []byte, t register.Tag) []byte {
	return AppendHead(AppendHead(append(b, Array|2), Uint, t.TS), Uint, uint64(t.Owner))
}

// AppendTags appends a field that is there only where there are tags.
func AppendTags(b []byte, field byte, tags []register.Tag) []byte {
	if len(tags) == 0 {
		return b
	}
	b = AppendHead(append(b, field), Array, uint64(len(tags)))
	for _, t := range tags {
		b = AppendTag(b, t)
	}
	return b
}

// AppendTrue appends a field that is there only where it is true.
func AppendTrue(b []byte, field byte, yes bool) []byte {
	if yes {
		b = append(b, field, True)
	}
	return b
}

// AppendWrite appends w.
func AppendWrite(b []byte, w *register.Write) []byte {
	b = AppendMap(b, 1, len(w.Value) > 0, w.Deleted, len(w.Known) > 0, w.Decided)
	b = AppendTag(append(b, 1), w.Tag)
	if len(w.Value) > 0 {
		b = append(AppendHead(append(b, 2), Bytes, uint64(len(w.Value))), w.Value...)
	}
	b = AppendTrue(b, 3, w.Deleted)
	b = AppendTags(b, 4, w.Known)
	return AppendTrue(b, 5, w.Decided)
}
