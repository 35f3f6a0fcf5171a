package register

import (
	"unicode"
	"unicode/utf8"
)

// MaxKey and MaxValue are the limits of keys and values in bytes.
const (
	MaxKey   = 1 << 10
	MaxValue = 1 << 20
)

// maxTags bounds a list of tags in a message: one an owner and a few.
const maxTags = int(MaxVoter) + 2

// CheckKey says whether key may be a key: 1 to MaxKey bytes of UTF-8 without
// control characters. It returns an InvalidError that says what is wrong.
func CheckKey(key string) error {
	switch {
	case key == "":
		return invalid("the key is empty: it must have 1 to %d bytes", MaxKey)
	case len(key) > MaxKey:
		return invalid("the key has %d bytes: it must have 1 to %d", len(key), MaxKey)
	case !utf8.ValidString(key):
		return invalid("the key %q is not UTF-8", key)
	}
	for _, c := range key {
		if unicode.IsControl(c) {
			return invalid("the key %q has the control character %U", key, c)
		}
	}
	return nil
}

// Step takes in a message from a voter, or refuses it with an InvalidError
// and is as before. r keeps m.
func (r *Replica) Step(from Voter, m Message) error {
	if !r.others.Has(from) {
		return invalid("%v from %d, which is not another voter", m.Kind(), from)
	}
	if r.observes() && m.Kind() != KindCatchup {
		return invalid("%v to an observer, which takes in CATCHUP alone", m.Kind())
	}
	if err := checkMessage(from, m); err != nil {
		return err
	}
	if r.stepVoters(from, m) || r.asking {
		return nil
	}
	switch m := m.(type) {
	case *MsgList:
		r.stepList(from, m)
		return nil
	case *MsgAckList:
		r.stepAckList(from, m)
		return nil
	case *MsgRead:
		if r.regs[m.Key] == nil {
			r.tell(SetOf(from), &MsgAckRead{Key: m.Key, Round: m.Round, Cur: r.zero.Write})
			return nil
		}
	}
	g := r.open(m.Register())
	r.handle(g, from, m)
	g.check()
	r.quieten(g)
	return nil
}

// stepVoters takes in a message about voters, and says whether m is one. While r
// asks it takes in no other.
func (r *Replica) stepVoters(from Voter, m Message) bool {
	switch m := m.(type) {
	case *MsgAsk:
		r.stepAsk(from, m)
	case *MsgHeard:
		r.stepHeard(from, m)
	case *MsgVotes:
		r.Resend(from)
	default:
		return false
	}
	return true
}

func (r *Replica) handle(g *register, from Voter, m Message) {
	switch m := m.(type) {
	case *MsgWrite:
		r.stepWrite(g, from, m)
	case *MsgAckWrite:
		r.stepAckWrite(g, from, m)
	case *MsgCommit:
		r.stepCommit(g, from, m)
	case *MsgNeed:
		r.stepNeed(g, from, m)
	case *MsgAckCommit:
		r.stepAckCommit(g, from, m)
	case *MsgUpdateView:
		r.stepUpdateView(g, from, m)
	case *MsgRead:
		r.stepRead(g, from, m)
	case *MsgAckRead:
		r.stepAckRead(g, from, m)
	case *MsgForward:
		r.stepForward(g, from, m)
	case *MsgCatchup:
		r.stepCatchup(g, m)
	}
}

// checkMessage refuses what no voter that follows the protocol says.
func checkMessage(from Voter, m Message) error {
	switch m := m.(type) {
	case *MsgList, *MsgAsk, *MsgHeard, *MsgVotes:
		return nil
	case *MsgAckList:
		return checkPage(m)
	}
	if err := CheckKey(m.Register()); err != nil {
		return err
	}
	switch m := m.(type) {
	case *MsgWrite:
		if m.Write.Tag.Owner != from {
			return invalid("WRITE of voter %d's tag from voter %d", m.Write.Tag.Owner, from)
		}
		return checkWrite(m.Write)
	case *MsgAckWrite:
		if m.MaxTS >= maxTS {
			return invalid("timestamp %d is not below 2^63", m.MaxTS)
		}
		return checkAck(m.Tag, m.Undone)
	case *MsgCommit:
		if m.Write.Tag.Owner != from || !m.Write.Decided {
			return invalid("COMMIT of voter %d's tag from voter %d, decided: %v", m.Write.Tag.Owner, from, m.Write.Decided)
		}
		if !m.Old.IsZero() && !checkTag(m.Old) {
			return invalid("the tag %v cannot be", m.Old)
		}
		return checkWrite(m.Write)
	case *MsgNeed:
		return checkAck(m.Tag, nil)
	case *MsgAckCommit:
		return checkAck(m.Tag, m.Undone)
	case *MsgUpdateView:
		return checkAck(m.Tag, nil)
	case *MsgAckRead:
		return checkAckRead(m)
	case *MsgForward:
		return checkWrite(m.Write)
	case *MsgCatchup:
		if !m.Write.Decided && !m.Held {
			return invalid("CATCHUP of %v, which is not settled", m.Write.Tag)
		}
		return checkWrite(m.Write)
	}
	return nil
}

// checkPage wants keys in order, once each, and Next to be the last of them.
func checkPage(m *MsgAckList) error {
	if len(m.Entries) > MaxPage {
		return invalid("a page of %d keys: at most %d", len(m.Entries), MaxPage)
	}
	last := ""
	for _, e := range m.Entries {
		if err := CheckKey(e.Key); err != nil {
			return err
		}
		if e.Key <= last {
			return invalid("a page with the key %q after %q", e.Key, last)
		}
		if !e.Tag.IsZero() && !checkTag(e.Tag) {
			return invalid("the tag %v cannot be", e.Tag)
		}
		last = e.Key
	}
	if m.Next != "" && m.Next != last {
		return invalid("a page that ends with the key %q and goes on after %q", last, m.Next)
	}
	return nil
}

func checkAckRead(m *MsgAckRead) error {
	if m.Floor != nil {
		if err := checkWrite(*m.Floor); err != nil {
			return err
		}
	}
	if m.Cur.Tag.IsZero() {
		return nil
	}
	return checkWrite(m.Cur)
}

func checkWrite(w Write) error {
	if len(w.Value) > MaxValue {
		return invalid("a value of %d bytes: at most %d", len(w.Value), MaxValue)
	}
	if !checkTag(w.Tag) {
		return invalid("the tag %v cannot be", w.Tag)
	}
	return checkTags(w.Known)
}

func checkAck(t Tag, undone []Tag) error {
	if !checkTag(t) {
		return invalid("the tag %v cannot be", t)
	}
	return checkTags(undone)
}

func checkTags(tags []Tag) error {
	if len(tags) > maxTags {
		return invalid("a list of %d tags: at most %d", len(tags), maxTags)
	}
	for _, t := range tags {
		if !checkTag(t) {
			return invalid("the tag %v cannot be", t)
		}
	}
	return nil
}

func checkTag(t Tag) bool {
	return t.TS >= 1 && t.TS < maxTS && t.Owner >= 1 && t.Owner <= MaxVoter
}
