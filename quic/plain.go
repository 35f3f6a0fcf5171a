package quic

import (
	"gus/register"
	"gus/register/plain"
)

// The messages that a set and a get consist of are laid and read by hand, at a fraction of
// what the library costs, which goes by reflection. The bytes are the library's, and
// what is not read here is read by the library: a message of another kind, a field that
// was added since, anything that is odd in the least.

func appendRound(b []byte, r register.Round) []byte {
	return plain.AppendHead(plain.AppendHead(append(b, plain.Array|2), plain.Uint, r.Boot), plain.Uint, r.Count)
}

// appendPlain appends the body of m, or says that it is for the library.
func appendPlain(b []byte, m register.Message) ([]byte, bool) {
	switch m := m.(type) {
	case *register.MsgWrite:
		b = plain.AppendText(append(b, plain.Map|2, 1), m.Key)
		return plain.AppendWrite(append(b, 2), &m.Write), true
	case *register.MsgAckWrite:
		if m.Own != nil {
			return b, false
		}
		b = plain.AppendMap(b, 3, m.Clean, m.Blind != 0, len(m.Undone) > 0)
		b = plain.AppendText(append(b, 1), m.Key)
		b = plain.AppendTag(append(b, 2), m.Tag)
		b = plain.AppendTrue(b, 3, m.Clean)
		if m.Blind != 0 {
			b = plain.AppendHead(append(b, 4), plain.Uint, uint64(m.Blind))
		}
		b = plain.AppendHead(append(b, 6), plain.Uint, m.MaxTS)
		return plain.AppendTags(b, 7, m.Undone), true
	case *register.MsgUpdateView:
		b = plain.AppendText(append(plain.AppendMap(b, 2, m.Decided), 1), m.Key)
		return plain.AppendTrue(plain.AppendTag(append(b, 2), m.Tag), 3, m.Decided), true
	case *register.MsgRead:
		b = plain.AppendText(append(b, plain.Map|3, 1), m.Key)
		b = appendRound(append(b, 2), m.Round)
		return plain.AppendTag(append(b, 3), m.Have), true // the library does not leave out a zero
	case *register.MsgAckRead:
		b = plain.AppendText(append(plain.AppendMap(b, 3, m.NoValue, m.Floor != nil), 1), m.Key)
		b = appendRound(append(b, 2), m.Round)
		b = plain.AppendWrite(append(b, 3), &m.Cur)
		b = plain.AppendTrue(b, 4, m.NoValue)
		if m.Floor != nil {
			b = plain.AppendWrite(append(b, 5), m.Floor)
		}
		return b, true
	}
	return b, false
}

// plainReader reads what appendPlain has laid.
type plainReader struct{ plain.Reader }

// readPlain reads into m, which is new, the body that b begins with. Where it is not ok, it is for
// the library, and m may be anything.
func readPlain(b []byte, m register.Message) (rest []byte, ok bool) {
	d := plainReader{plain.Reader{Data: b, OK: true}}
	switch m := m.(type) {
	case *register.MsgWrite:
		d.Fields(func(field uint64) {
			switch field {
			case 1:
				m.Key = d.Text()
			case 2:
				m.Write = d.Write()
			default:
				d.OK = false
			}
		})
	case *register.MsgAckWrite:
		d.ackWrite(m)
	case *register.MsgUpdateView:
		d.Fields(func(field uint64) {
			switch field {
			case 1:
				m.Key = d.Text()
			case 2:
				m.Tag = d.Tag()
			case 3:
				m.Decided = d.Yes()
			default:
				d.OK = false
			}
		})
	case *register.MsgRead:
		d.Fields(func(field uint64) {
			switch field {
			case 1:
				m.Key = d.Text()
			case 2:
				m.Round = d.round()
			case 3:
				m.Have = d.Tag()
			default:
				d.OK = false
			}
		})
	case *register.MsgAckRead:
		d.ackRead(m)
	default:
		d.OK = false
	}
	return d.Data, d.OK
}

func (d *plainReader) ackWrite(m *register.MsgAckWrite) {
	d.Fields(func(field uint64) {
		switch field {
		case 1:
			m.Key = d.Text()
		case 2:
			m.Tag = d.Tag()
		case 3:
			m.Clean = d.Yes()
		case 4:
			m.Blind = register.Set(d.Head(plain.Uint))
		case 6:
			m.MaxTS = d.Head(plain.Uint)
		case 7:
			m.Undone = d.Tags()
		default:
			d.OK = false
		}
	})
}

func (d *plainReader) ackRead(m *register.MsgAckRead) {
	d.Fields(func(field uint64) {
		switch field {
		case 1:
			m.Key = d.Text()
		case 2:
			m.Round = d.round()
		case 3:
			m.Cur = d.Write()
		case 4:
			m.NoValue = d.Yes()
		case 5:
			w := d.Write()
			m.Floor = &w
		default:
			d.OK = false
		}
	})
}

func (d *plainReader) round() register.Round {
	boot, count := d.Two()
	return register.Round{Boot: boot, Count: count}
}
