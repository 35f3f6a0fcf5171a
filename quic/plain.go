package quic

import (
	"encoding/binary"
	"unicode/utf8"

	"gus/register"
)

// The messages that a set and a get consist of are laid and read by hand, at a fraction of
// what the library costs, which goes by reflection. The bytes are the library's, and
// what is not read here is read by the library: a message of another kind, a field that
// was added since, anything that is odd in the least.

// The major types of CBOR, in the place of a head's upper bits.
const (
	cborUint  = 0 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborMap   = 5 << 5
	cborTrue  = 0xf5
)

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

// appendMap begins a map of the fields that are always there and those that may be.
func appendMap(b []byte, always int, may ...bool) []byte {
	for _, there := range may {
		if there {
			always++
		}
	}
	return append(b, cborMap|byte(always))
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, cborText, uint64(len(s))), s...)
}

func appendTag(b []byte, t register.Tag) []byte {
	return appendHead(appendHead(append(b, cborArray|2), cborUint, t.TS), cborUint, uint64(t.Owner))
}

func appendTags(b []byte, field byte, tags []register.Tag) []byte {
	if len(tags) == 0 {
		return b
	}
	b = appendHead(append(b, field), cborArray, uint64(len(tags)))
	for _, t := range tags {
		b = appendTag(b, t)
	}
	return b
}

func appendRound(b []byte, r register.Round) []byte {
	return appendHead(appendHead(append(b, cborArray|2), cborUint, r.Boot), cborUint, r.Count)
}

// appendTrue appends a field that is there only where it is true.
func appendTrue(b []byte, field byte, yes bool) []byte {
	if yes {
		b = append(b, field, cborTrue)
	}
	return b
}

func appendWrite(b []byte, w *register.Write) []byte {
	b = appendMap(b, 1, len(w.Value) > 0, w.Deleted, len(w.Known) > 0, w.Decided)
	b = appendTag(append(b, 1), w.Tag)
	if len(w.Value) > 0 {
		b = append(appendHead(append(b, 2), cborBytes, uint64(len(w.Value))), w.Value...)
	}
	b = appendTrue(b, 3, w.Deleted)
	b = appendTags(b, 4, w.Known)
	return appendTrue(b, 5, w.Decided)
}

// appendPlain appends the body of m, or says that it is for the library.
func appendPlain(b []byte, m register.Message) ([]byte, bool) {
	switch m := m.(type) {
	case *register.MsgWrite:
		b = appendText(append(b, cborMap|2, 1), m.Key)
		return appendWrite(append(b, 2), &m.Write), true
	case *register.MsgAckWrite:
		if m.Own != nil {
			return b, false
		}
		b = appendMap(b, 3, m.Clean, m.Blind != 0, len(m.Undone) > 0)
		b = appendText(append(b, 1), m.Key)
		b = appendTag(append(b, 2), m.Tag)
		b = appendTrue(b, 3, m.Clean)
		if m.Blind != 0 {
			b = appendHead(append(b, 4), cborUint, uint64(m.Blind))
		}
		b = appendHead(append(b, 6), cborUint, m.MaxTS)
		return appendTags(b, 7, m.Undone), true
	case *register.MsgUpdateView:
		b = appendText(append(appendMap(b, 2, m.Decided), 1), m.Key)
		return appendTrue(appendTag(append(b, 2), m.Tag), 3, m.Decided), true
	case *register.MsgRead:
		b = appendText(append(b, cborMap|3, 1), m.Key)
		b = appendRound(append(b, 2), m.Round)
		return appendTag(append(b, 3), m.Have), true // the library does not leave out a zero
	case *register.MsgAckRead:
		b = appendText(append(appendMap(b, 3, m.NoValue, m.Floor != nil), 1), m.Key)
		b = appendRound(append(b, 2), m.Round)
		b = appendWrite(append(b, 3), &m.Cur)
		b = appendTrue(b, 4, m.NoValue)
		if m.Floor != nil {
			b = appendWrite(append(b, 5), m.Floor)
		}
		return b, true
	}
	return b, false
}

// plain reads what appendPlain has laid.
type plain struct {
	data []byte
	ok   bool
}

// readPlain reads into m, which is new, the body that b begins with. Where it is not ok, it is for
// the library, and m may be anything.
func readPlain(b []byte, m register.Message) (rest []byte, ok bool) {
	d := plain{b, true}
	switch m := m.(type) {
	case *register.MsgWrite:
		d.fields(func(field uint64) {
			switch field {
			case 1:
				m.Key = d.text()
			case 2:
				m.Write = d.write()
			default:
				d.ok = false
			}
		})
	case *register.MsgAckWrite:
		d.ackWrite(m)
	case *register.MsgUpdateView:
		d.fields(func(field uint64) {
			switch field {
			case 1:
				m.Key = d.text()
			case 2:
				m.Tag = d.tag()
			case 3:
				m.Decided = d.yes()
			default:
				d.ok = false
			}
		})
	case *register.MsgRead:
		d.fields(func(field uint64) {
			switch field {
			case 1:
				m.Key = d.text()
			case 2:
				m.Round = d.round()
			case 3:
				m.Have = d.tag()
			default:
				d.ok = false
			}
		})
	case *register.MsgAckRead:
		d.ackRead(m)
	default:
		d.ok = false
	}
	return d.data, d.ok
}

func (d *plain) ackWrite(m *register.MsgAckWrite) {
	d.fields(func(field uint64) {
		switch field {
		case 1:
			m.Key = d.text()
		case 2:
			m.Tag = d.tag()
		case 3:
			m.Clean = d.yes()
		case 4:
			m.Blind = register.Set(d.head(cborUint))
		case 6:
			m.MaxTS = d.head(cborUint)
		case 7:
			m.Undone = d.tags()
		default:
			d.ok = false
		}
	})
}

func (d *plain) ackRead(m *register.MsgAckRead) {
	d.fields(func(field uint64) {
		switch field {
		case 1:
			m.Key = d.text()
		case 2:
			m.Round = d.round()
		case 3:
			m.Cur = d.write()
		case 4:
			m.NoValue = d.yes()
		case 5:
			w := d.write()
			m.Floor = &w
		default:
			d.ok = false
		}
	})
}

func (d *plain) write() (w register.Write) {
	d.fields(func(field uint64) {
		switch field {
		case 1:
			w.Tag = d.tag()
		case 2:
			w.Value = append([]byte(nil), d.take(d.head(cborBytes))...)
			d.ok = d.ok && len(w.Value) > 0
		case 3:
			w.Deleted = d.yes()
		case 4:
			w.Known = d.tags()
		case 5:
			w.Decided = d.yes()
		default:
			d.ok = false
		}
	})
	return w
}

// maxPlainTags is how many tags in a row are read here.
const maxPlainTags = 64

func (d *plain) tags() []register.Tag {
	n := d.head(cborArray)
	if n == 0 || n > maxPlainTags {
		d.ok = false
		return nil
	}
	tags := make([]register.Tag, n)
	for i := range tags {
		tags[i] = d.tag()
	}
	return tags
}

func (d *plain) tag() register.Tag {
	ts, owner := d.two()
	d.ok = d.ok && owner <= uint64(register.MaxVoter)
	return register.Tag{TS: ts, Owner: register.Voter(owner)}
}

func (d *plain) round() register.Round {
	boot, count := d.two()
	return register.Round{Boot: boot, Count: count}
}

// two reads an array of two numbers.
func (d *plain) two() (uint64, uint64) {
	d.ok = d.head(cborArray) == 2 && d.ok
	a := d.head(cborUint)
	return a, d.head(cborUint)
}

// fields calls each with the fields of a map, in ascending order.
func (d *plain) fields(each func(field uint64)) {
	last := uint64(0)
	for range d.head(cborMap) {
		field := d.head(cborUint)
		d.ok = d.ok && field > last
		if !d.ok {
			return
		}
		last = field
		each(field)
	}
}

func (d *plain) yes() bool {
	b := d.take(1)
	d.ok = d.ok && b[0] == cborTrue
	return d.ok
}

func (d *plain) text() string {
	b := d.take(d.head(cborText))
	d.ok = d.ok && utf8.Valid(b)
	return string(b)
}

// take takes n bytes.
func (d *plain) take(n uint64) []byte {
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
	b := d.take(1)
	if !d.ok || b[0]&0xe0 != major {
		d.ok = false
		return 0
	}
	info := b[0] & 0x1f
	if info < 24 {
		return uint64(info)
	}
	if info > 27 {
		d.ok = false
		return 0
	}
	for _, b := range d.take(1 << (info - 24)) {
		n = n<<8 | uint64(b)
	}
	return n
}
