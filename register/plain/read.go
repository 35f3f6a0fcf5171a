package plain

import (
	"unicode/utf8"

	"gus/register"
)

// Reader reads what the functions of this package have laid. Once something is not as they lay it, OK is
// false, and all that was read may be anything: it is for the library.
type Reader struct {
	Data []byte // what is to be read still
	OK   bool
}

// Fields calls each with the fields of a map, in ascending order.
func (r *Reader) Fields(each func(field uint64)) {
	last := uint64(0)
	for range r.Head(Map) {
		field := r.Head(Uint)
		r.OK = r.OK && field > last
		if !r.OK {
			return
		}
		last = field
		each(field)
	}
}

// Write reads a write. Its value is a copy.
func (r *Reader) Write() (w register.Write) {
	r.Fields(func(field uint64) {
		switch field {
		case 1:
			w.Tag = r.Tag()
		case 2:
			w.Value = append([]byte(nil), r.take(r.Head(Bytes))...)
			r.OK = r.OK && len(w.Value) > 0
		case 3:
			w.Deleted = r.Yes()
		case 4:
			w.Known = r.Tags()
		case 5:
			w.Decided = r.Yes()
		default:
			r.OK = false
		}
	})
	return w
}

// maxTags is how many tags in a row are read here.
const maxTags = 64

// Tags reads an array of tags, 1 to 64.
func (r *Reader) Tags() []register.Tag {
	n := r.Head(Array)
	if n == 0 || n > maxTags {
		r.OK = false
		return nil
	}
	tags := make([]register.Tag, n)
	for i := range tags {
		tags[i] = r.Tag()
	}
	return tags
}

// Tag reads a tag.
func (r *Reader) Tag() register.Tag {
	ts, owner := r.Two()
	r.OK = r.OK && owner <= uint64(register.MaxVoter)
	return register.Tag{TS: ts, Owner: register.Voter(owner)}
}

// Two reads an array of two numbers.
func (r *Reader) Two() (uint64, uint64) {
	r.OK = r.Head(Array) == 2 && r.OK
	a := r.Head(Uint)
	return a, r.Head(Uint)
}

// Yes reads a true: where it is false a field is left out.
func (r *Reader) Yes() bool {
	b := r.take(1)
	r.OK = r.OK && b[0] == True
	return r.OK
}

// Text reads a text.
func (r *Reader) Text() string {
	b := r.take(r.Head(Text))
	r.OK = r.OK && utf8.Valid(b)
	return string(b)
}

// take takes n bytes.
func (r *Reader) take(n uint64) []byte {
	if !r.OK || n > uint64(len(r.Data)) {
		r.OK = false
		return nil
	}
	b := r.Data[:n]
	r.Data = r.Data[n:]
	return b
}

// Head takes a head of the major type and returns its number.
func (r *Reader) Head(major byte) (n uint64) {
	b := r.take(1)
	if !r.OK || b[0]&0xe0 != major {
		r.OK = false
		return 0
	}
	info := b[0] & 0x1f
	if info < 24 {
		return uint64(info)
	}
	if info > 27 {
		r.OK = false
		return 0
	}
	for _, b := range r.take(1 << (info - 24)) {
		n = n<<8 | uint64(b)
	}
	return n
}
