package sim

import "gus/register"

// watch holds what voters say against what must be so at any time.
type watch struct {
	versions map[version]contentsOf
	written  map[version]bool // by a complete write
}

type version struct {
	key string
	tag register.Tag
}

// contentsOf is what a version means, for ever.
type contentsOf struct {
	value digest // 0: not shown yet
	known digest
}

func newWatch() watch { return watch{map[version]contentsOf{}, map[version]bool{}} }

// said looks at a message that v hands out: the writes in it are what they
// always were, and nothing in it goes beyond what v's disk holds.
func (wa *watch) said(v *voter, m register.Message) {
	key := m.Register()
	disk := v.disk.Current(key)
	floor := disk.Floor
	if floor.Less(disk.Cur.Tag) {
		floor = disk.Cur.Tag
	}
	ok := true
	switch m := m.(type) {
	case *register.MsgWrite:
		wa.shows(v, key, m.Write, false)
		v.w.outcome.Marks.hit(MarkRelayedWrite, disk.Pending == nil)
		ok = !ownTop(v.id, disk).Less(m.Write.Tag)
	case *register.MsgAckWrite:
		ok = !floor.Less(m.Tag) && (!m.Clean || !disk.Cur.Tag.Less(m.Tag))
	case *register.MsgCommit:
		wa.shows(v, key, m.Write, m.NoValue)
		ok = !ownTop(v.id, disk).Less(m.Write.Tag)
	case *register.MsgAckCommit:
		ok = !disk.Cur.Tag.Less(m.Tag)
	case *register.MsgUpdateView:
		ok = !disk.Cur.Tag.Less(m.Tag)
	case *register.MsgAckRead:
		wa.shows(v, key, m.Cur, m.NoValue)
		ok = !disk.Cur.Tag.Less(m.Cur.Tag)
		if m.Floor != nil {
			wa.shows(v, key, *m.Floor, false)
			ok = ok && !floor.Less(m.Floor.Tag)
		}
	case *register.MsgForward:
		wa.shows(v, key, m.Write, false)
		ok = m.Write.Tag.Owner != v.id || !ownTop(v.id, disk).Less(m.Write.Tag)
	case *register.MsgCatchup:
		wa.shows(v, key, m.Write, false)
		ok = !disk.Cur.Tag.Less(m.Write.Tag)
	case *register.MsgAckList:
		for _, e := range m.Entries {
			ok = ok && !v.disk.Current(e.Key).Cur.Tag.Less(e.Tag)
		}
	}
	if !ok {
		v.w.fail("%s says what its disk does not hold: %s; on disk: %+v", v.name(), describe(m), disk)
	}
}

// shows looks at a write that v shows to others.
func (wa *watch) shows(v *voter, key string, w register.Write, noValue bool) {
	id := version{key, w.Tag}
	known := digest(1)
	for _, t := range w.Known { // a set: the order does not count
		known += digest(0).tag(t)
	}
	c, old := wa.versions[id]
	if !old {
		c.known = known
	}
	value := digest(1).text(string(w.Value)).bit(w.Deleted)
	switch {
	case c.known != known:
		v.w.fail("%s shows version %v of %s with another `known` than before: %v", v.name(), w.Tag, key, w.Known)
	case noValue:
	case c.value == 0:
		c.value = value
	case c.value != value:
		v.w.fail("%s shows version %v of %s with another value than before: %q", v.name(), w.Tag, key, w.Value)
	}
	wa.versions[id] = c
}

// ownTop is the highest tag of v's own that its disk holds.
func ownTop(v register.Voter, r register.Record) register.Tag {
	top := register.Tag{TS: r.Orphan, Owner: v}
	raise := func(t register.Tag) {
		if t.Owner == v && top.Less(t) {
			top = t
		}
	}
	raise(r.Cur.Tag)
	for _, x := range r.Recs {
		raise(x.Write.Tag)
	}
	if r.Pending != nil {
		raise(r.Pending.Write.Tag)
	}
	return top
}

// completed looks at the result of an operation at v: a write is on its own
// disk by then.
func (wa *watch) completed(v *voter, o *Operation) {
	if o.writes() && ownTop(v.id, v.disk.Current(o.Key)).Less(o.Tag) {
		v.w.fail("a result before it is durable: %v", o)
	}
}

// peek looks at what v knows of each key without asking: settled versions that
// never go back while it is up.
func (v *voter) peek() {
	for _, k := range v.w.keys {
		l := v.core.Peek(k)
		if l.Tag.Less(v.peeked[k]) {
			v.w.fail("%s knew version %v of %s to be settled, and now %v", v.name(), v.peeked[k], k, l.Tag)
		}
		if v.peeked[k] != l.Tag {
			v.peeked[k] = l.Tag
			v.w.peeked(v.id, k, l.Tag, string(l.Value), l.Found)
		}
	}
}

// peeked notes what a voter showed as settled, to be judged.
func (w *world) peeked(by register.Voter, key string, tag register.Tag, value string, found bool) {
	w.clock++
	w.peeks = append(w.peeks, &Operation{Voter: by, Key: key, Kind: Get, Value: value,
		Found: found, Fate: Done, Call: w.clock, Return: w.clock, Tag: tag})
}
