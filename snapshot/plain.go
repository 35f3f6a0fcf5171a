package snapshot

import "gus/register"

// plain decodes the CBOR of records as nearly all of them are, at a fraction of
// what decoding in general costs, since a start decodes millions. It knows only
// some fields, and only as they are written here (in order, no empty ones).
// Whatever it does not know, such as a field that was added since, is not ok
// and for the decoder in general: nothing depends on what it leaves out.
type plain struct {
	data []byte
	ok   bool

	ahead int            // for how many there is made room at a time in spare
	spare []register.Rec // room for those of the next records
}

// CBOR's major types that it knows, in the place of a head's upper bits.
const (
	plainUint  = 0 << 5
	plainBytes = 2 << 5
	plainText  = 3 << 5
	plainArray = 4 << 5
	plainMap   = 5 << 5
	plainTrue  = 0xf5
)

// record decodes a body that is one plain record into r, which is zero. Where
// it is not ok, r may be anything.
func (d *plain) record(body []byte, r *register.Record) (ok bool) {
	d.data, d.ok = body, true
	d.fields(func(field uint64) {
		switch field {
		case 1:
			r.Key = string(d.bytes(plainText))
		case 2:
			r.Cur = d.write()
		case 3:
			r.Floor = d.tag()
		case 4:
			r.Recs = d.recs()
		case 6:
			r.Orphan = d.head(plainUint)
		case 7:
			r.Readable = d.yes()
		case 8:
			r.Mark = d.tag()
		default:
			d.ok = false
		}
	})
	return d.ok && len(d.data) == 0
}

func (d *plain) write() (w register.Write) {
	d.fields(func(field uint64) {
		switch field {
		case 1:
			w.Tag = d.tag()
		case 2:
			if value := d.bytes(plainBytes); len(value) > 0 {
				w.Value = append([]byte(nil), value...)
			} else {
				d.ok = false
			}
		case 3:
			w.Deleted = d.yes()
		case 5:
			w.Decided = d.yes()
		default:
			d.ok = false
		}
	})
	return w
}

func (d *plain) recs() []register.Rec {
	n := d.head(plainArray)
	if n == 0 || n > uint64(register.MaxVoter) {
		d.ok = false
		return nil
	}
	if n > uint64(len(d.spare)) {
		d.spare = make([]register.Rec, max(int(n), d.ahead))
	}
	recs := d.spare[:n:n]
	d.spare = d.spare[n:]
	for i := range recs {
		rec := &recs[i]
		d.fields(func(field uint64) {
			switch field {
			case 1:
				rec.Write = d.write()
			case 2:
				rec.Accepted = d.yes()
			case 3:
				rec.NoValue = d.yes()
			default:
				d.ok = false
			}
		})
	}
	return recs
}

func (d *plain) tag() register.Tag {
	if d.head(plainArray) != 2 {
		d.ok = false
		return register.Tag{}
	}
	ts, owner := d.head(plainUint), d.head(plainUint)
	if owner > uint64(register.MaxVoter) {
		d.ok = false
	}
	return register.Tag{TS: ts, Owner: register.Voter(owner)}
}

// fields calls each with the fields of a map, in ascending order.
func (d *plain) fields(each func(field uint64)) {
	last := uint64(0)
	for range d.head(plainMap) {
		field := d.head(plainUint)
		if field <= last {
			d.ok = false
		}
		if !d.ok {
			return
		}
		last = field
		each(field)
	}
}

// yes takes a true; a false is left out where it is written.
func (d *plain) yes() bool {
	if !d.ok || len(d.data) == 0 || d.data[0] != plainTrue {
		d.ok = false
		return false
	}
	d.data = d.data[1:]
	return true
}

func (d *plain) bytes(major byte) []byte {
	n := d.head(major)
	if !d.ok || n > uint64(len(d.data)) {
		d.ok = false
		return nil
	}
	b := d.data[:n]
	d.data = d.data[n:]
	return b
}

// head takes a head of the major type and returns its number.
func (d *plain) head(major byte) (n uint64) {
	if !d.ok || len(d.data) == 0 || d.data[0]&0xe0 != major {
		d.ok = false
		return 0
	}
	info := d.data[0] & 0x1f
	d.data = d.data[1:]
	if info < 24 {
		return uint64(info)
	}
	size := 1 << (info - 24)
	if info > 27 || size > len(d.data) {
		d.ok = false
		return 0
	}
	for _, b := range d.data[:size] {
		n = n<<8 | uint64(b)
	}
	d.data = d.data[size:]
	return n
}
