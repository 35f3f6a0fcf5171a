package snapshot

import (
	"encoding/binary"

	"gus/register"
)

// appendPlain appends r to a CBOR sequence as the library would, at a fraction of what that costs
// by reflection. It is not ok, and b unchanged, where r has what only few records have.
func appendPlain(b []byte, r *register.Record) (_ []byte, ok bool) {
	if len(r.Heard) > 0 || r.Forgot != nil {
		return b, false
	}
	b = appendMap(b, 4, len(r.Recs) > 0, r.Pending != nil, r.Orphan != 0, r.Readable)
	b = append(appendHead(append(b, 1), plainText, uint64(len(r.Key))), r.Key...)
	b = appendWrite(append(b, 2), &r.Cur)
	b = appendTag(append(b, 3), r.Floor) // the library does not leave out a zero
	if len(r.Recs) > 0 {
		b = appendHead(append(b, 4), plainArray, uint64(len(r.Recs)))
		for i := range r.Recs {
			rec := &r.Recs[i]
			b = appendMap(b, 1, rec.Accepted, rec.NoValue)
			b = appendWrite(append(b, 1), &rec.Write)
			b = appendTrue(b, 2, rec.Accepted)
			b = appendTrue(b, 3, rec.NoValue)
		}
	}
	if p := r.Pending; p != nil {
		b = appendWrite(append(b, 5, plainMap|2, 1), &p.Write)
		b = appendTag(append(b, 2), p.Spec)
	}
	if r.Orphan != 0 {
		b = appendHead(append(b, 6), plainUint, r.Orphan)
	}
	b = appendTrue(b, 7, r.Readable)
	return appendTag(append(b, 8), r.Mark), true
}

func appendWrite(b []byte, w *register.Write) []byte {
	b = appendMap(b, 1, len(w.Value) > 0, w.Deleted, len(w.Known) > 0, w.Decided)
	b = appendTag(append(b, 1), w.Tag)
	if len(w.Value) > 0 {
		b = append(appendHead(append(b, 2), plainBytes, uint64(len(w.Value))), w.Value...)
	}
	b = appendTrue(b, 3, w.Deleted)
	if len(w.Known) > 0 {
		b = appendHead(append(b, 4), plainArray, uint64(len(w.Known)))
		for _, t := range w.Known {
			b = appendTag(b, t)
		}
	}
	return appendTrue(b, 5, w.Decided)
}

func appendTag(b []byte, t register.Tag) []byte {
	return appendHead(appendHead(append(b, plainArray|2), plainUint, t.TS), plainUint, uint64(t.Owner))
}

// appendMap begins a map of the fields that are always there and those that may be.
func appendMap(b []byte, always int, may ...bool) []byte {
	for _, there := range may {
		if there {
			always++
		}
	}
	return append(b, plainMap|byte(always))
}

// appendTrue appends a field that is there only where it is true.
func appendTrue(b []byte, field byte, yes bool) []byte {
	if yes {
		b = append(b, field, plainTrue)
	}
	return b
}

func appendHead(b []byte, major byte, n uint64) []byte {
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
