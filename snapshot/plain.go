package snapshot

import (
	"gus/register"
	"gus/register/plain"
)

// plainReader decodes the CBOR of records as nearly all of them are, at a fraction of
// what decoding in general costs, since a start decodes millions. It knows only
// some fields, and only as they are written here (in order, no empty ones).
// Whatever it does not know, such as a field that was added since, is not ok
// and for the decoder in general: nothing depends on what it leaves out.
type plainReader struct {
	plain.Reader

	ahead int            // for how many there is made room at a time in spare
	spare []register.Rec // room for those of the next records
}

// record decodes a body that is one plain record into r, which is zero. Where
// it is not ok, r may be anything.
func (d *plainReader) record(body []byte, r *register.Record) (ok bool) {
	d.Data, d.OK = body, true
	d.Fields(func(field uint64) {
		switch field {
		case 1:
			r.Key = d.Text()
		case 2:
			r.Cur = d.Write()
		case 3:
			r.Floor = d.Tag()
		case 4:
			r.Recs = d.recs()
		case 6:
			r.Orphan = d.Head(plain.Uint)
		case 7:
			r.Readable = d.Yes()
		case 8:
			r.Mark = d.Tag()
		default:
			d.OK = false
		}
	})
	return d.OK && len(d.Data) == 0
}

func (d *plainReader) recs() []register.Rec {
	n := d.Head(plain.Array)
	if n == 0 || n > uint64(register.MaxVoter) {
		d.OK = false
		return nil
	}
	if n > uint64(len(d.spare)) {
		d.spare = make([]register.Rec, max(int(n), d.ahead))
	}
	recs := d.spare[:n:n]
	d.spare = d.spare[n:]
	for i := range recs {
		rec := &recs[i]
		d.Fields(func(field uint64) {
			switch field {
			case 1:
				rec.Write = d.Write()
			case 2:
				rec.Accepted = d.Yes()
			case 3:
				rec.NoValue = d.Yes()
			default:
				d.OK = false
			}
		})
	}
	return recs
}
