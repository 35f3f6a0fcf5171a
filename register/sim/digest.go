package sim

import (
	"fmt"

	"gus/register"
)

// digest is a hash that depends on nothing but what is put in: the trace's,
// and what shows that a message or a record was changed after it was handed
// out. Written out by hand, since each message of each run passes through it.
type digest uint64

func (d digest) num(n uint64) digest {
	d = (d ^ digest(n)) * 0x9e3779b97f4a7c15
	return d ^ d>>29
}

func (d digest) bit(b bool) digest {
	if b {
		return d.num(1)
	}
	return d.num(2)
}

func (d digest) text(s string) digest {
	d = d.num(uint64(len(s)))
	for i := range len(s) {
		d = (d ^ digest(s[i])) * 0x100000001b3
	}
	return d.num(0)
}

func (d digest) tag(t register.Tag) digest { return d.num(t.TS).num(uint64(t.Owner)) }

func (d digest) tags(ts []register.Tag) digest {
	d = d.num(uint64(len(ts)))
	for _, t := range ts {
		d = d.tag(t)
	}
	return d
}

func (d digest) write(w register.Write) digest {
	return d.tag(w.Tag).text(string(w.Value)).bit(w.Deleted).tags(w.Known).bit(w.Decided)
}

func (d digest) entries(es []register.Entry) digest {
	d = d.num(uint64(len(es)))
	for _, e := range es {
		d = d.text(e.Key).tag(e.Tag).bit(e.Deleted).num(uint64(e.Size)).bit(e.Aside)
	}
	return d
}

func (d digest) message(m register.Message) digest {
	d = d.num(uint64(m.Kind())).text(m.Register())
	switch m := m.(type) {
	case *register.MsgWrite:
		return d.write(m.Write)
	case *register.MsgAckWrite:
		d = d.tag(m.Tag).bit(m.Clean).num(uint64(m.Blind)).num(m.MaxTS).tags(m.Undone)
		if m.Own != nil {
			d = d.bit(m.Own.Free).num(uint64(m.Own.Excl))
		}
		return d
	case *register.MsgCommit:
		return d.tag(m.Old).write(m.Write).bit(m.NoValue)
	case *register.MsgNeed:
		return d.tag(m.Tag)
	case *register.MsgAckCommit:
		return d.tag(m.Tag).tags(m.Undone)
	case *register.MsgUpdateView:
		return d.tag(m.Tag).bit(m.Decided)
	case *register.MsgRead:
		return d.num(m.Round.Boot).num(m.Round.Count).tag(m.Have)
	case *register.MsgAckRead:
		d = d.num(m.Round.Boot).num(m.Round.Count).write(m.Cur).bit(m.NoValue)
		if m.Floor != nil {
			d = d.write(*m.Floor)
		}
		return d
	case *register.MsgForward:
		return d.num(m.Round.Boot).num(m.Round.Count).write(m.Write)
	case *register.MsgList:
		return d.num(m.Round.Boot).num(m.Round.Count).text(m.Prefix).text(m.After).num(uint64(m.Limit))
	case *register.MsgAckList:
		return d.num(m.Round.Boot).num(m.Round.Count).entries(m.Entries).text(m.Next)
	case *register.MsgCatchup:
		return d.write(m.Write).bit(m.Held)
	case *register.MsgVotes:
		return d
	case *register.MsgAsk:
		return d.num(m.Boot).num(uint64(m.Saved))
	case *register.MsgHeard:
		return d.num(m.Asked).num(m.Boot).num(uint64(m.Saved))
	}
	panic(fmt.Sprintf("sim: a message of unknown type %T", m))
}

func (d digest) record(r register.Record) digest {
	d = d.text(r.Key).write(r.Cur).tag(r.Floor).num(r.Orphan).bit(r.Readable).tag(r.Mark)
	for _, x := range r.Recs {
		d = d.write(x.Write).bit(x.Accepted).bit(x.NoValue)
	}
	if r.Pending != nil {
		d = d.write(r.Pending.Write).tag(r.Pending.Spec)
	}
	for _, p := range r.Heard {
		d = d.num(uint64(p.Voter)).num(p.Boot).num(uint64(p.Saved))
	}
	return d
}

func (d digest) records(rs []register.Record) digest {
	for _, r := range rs {
		d = d.record(r)
	}
	return d
}
