package snapshot

import (
	"gus/register"
	"gus/register/plain"
)

// appendPlain appends r to a CBOR sequence as the library would, at a fraction of what that costs
// by reflection. It is not ok, and b unchanged, where r has what only few records have.
func appendPlain(b []byte, r *register.Record) (_ []byte, ok bool) {
	if len(r.Heard) > 0 || r.Forgot != nil {
		return b, false
	}
	b = plain.AppendMap(b, 4, len(r.Recs) > 0, r.Pending != nil, r.Orphan != 0, r.Readable)
	b = plain.AppendText(append(b, 1), r.Key)
	b = plain.AppendWrite(append(b, 2), &r.Cur)
	b = plain.AppendTag(append(b, 3), r.Floor) // the library does not leave out a zero
	if len(r.Recs) > 0 {
		b = plain.AppendHead(append(b, 4), plain.Array, uint64(len(r.Recs)))
		for i := range r.Recs {
			rec := &r.Recs[i]
			b = plain.AppendMap(b, 1, rec.Accepted, rec.NoValue)
			b = plain.AppendWrite(append(b, 1), &rec.Write)
			b = plain.AppendTrue(b, 2, rec.Accepted)
			b = plain.AppendTrue(b, 3, rec.NoValue)
		}
	}
	if p := r.Pending; p != nil {
		b = plain.AppendWrite(append(b, 5, plain.Map|2, 1), &p.Write)
		b = plain.AppendTag(append(b, 2), p.Spec)
	}
	if r.Orphan != 0 {
		b = plain.AppendHead(append(b, 6), plain.Uint, r.Orphan)
	}
	b = plain.AppendTrue(b, 7, r.Readable)
	return plain.AppendTag(append(b, 8), r.Mark), true
}
