package sim

import (
	"math/rand/v2"

	"gus/register"
)

// follower is who follows the settled writes of a voter, as watches and
// observers do: what has changed since a cursor from the voter's disk, and then
// the news as it is told. The voter's crashes do not change what it remembers; it does not
// remember a voter whose disk was put back.
type follower struct {
	v      *voter
	rng    *rand.Rand // of its own: runs with and without it are the same
	cursor register.Seq
	seen   map[string]register.Tag
	take   func(register.News) // who is told; nil: nobody

	listening bool
	until     register.Seq            // the cursor stays where it is before that save
	at        int                     // what of the news it has taken in
	news      []told                  // of the voter's life
	last      map[string]register.Tag // in the news
}

// told is what a voter told at one call of Settled.
type told struct {
	news         []register.News
	upto, before register.Seq
}

// turn is called in each turn of the voter, before Drive.
func (f *follower) turn() {
	if f.v.w.cfg.unwatched {
		return
	}
	var t told
	t.upto, t.before = f.v.core.Settled(func(n register.News) {
		if n.Tag.Less(f.last[n.Key]) {
			f.v.w.fail("%s tells version %v of %s after %v", f.v.name(), n.Tag, n.Key, f.last[n.Key])
		}
		t.news, f.last[n.Key] = append(t.news, n), n.Tag
	})
	f.news = append(f.news, t)
	switch f.rng.IntN(8) {
	case 0:
		f.listening = false // a connection that broke
	case 1, 2:
		f.follow()
	}
}

// crashed is called when the voter has.
func (f *follower) crashed() {
	f.news, f.last, f.listening = nil, map[string]register.Tag{}, false
}

// forget forgets all of a voter whose disk is put back: numbers of saves mean nothing any more.
func (f *follower) forget() { f.cursor, f.seen = 0, map[string]register.Tag{} }

// follow takes in all that there is. What the disk and the replica show now is
// newer than news from before, so that of each key only the last of the news counts; and what
// is shown has been told by the end of the turn.
func (f *follower) follow() {
	v := f.v
	if !f.listening {
		end := v.core.Durable()
		f.until = 0
		for _, k := range v.disk.Changed(f.cursor) {
			if n, ok := v.core.Told(k); ok {
				f.deliver(n)
			} else {
				f.until = v.core.Covers()
			}
		}
		for f.at = 0; f.at < len(f.news) && f.news[f.at].before <= end; f.at++ {
		}
		f.listening = true
		f.reach(end)
	}
	for ; f.at < len(f.news); f.at++ {
		for _, n := range f.news[f.at].news {
			if n.Tag == f.last[n.Key] {
				f.deliver(n)
			}
		}
		f.reach(f.news[f.at].upto)
	}
}

// reach moves the cursor on: all up to that save is taken in. What was about to be told when
// the disk was read may be in the saves up to end as well, or an older version of it: a crash would leave that.
func (f *follower) reach(upto register.Seq) {
	if upto >= f.until {
		f.cursor = max(f.cursor, upto)
	}
}

func (f *follower) deliver(n register.News) {
	v := f.v
	switch {
	case n.Tag.Less(f.seen[n.Key]):
		v.w.fail("%s told its follower version %v of %s, and now %v", v.name(), f.seen[n.Key], n.Key, n.Tag)
	case !n.Held && !n.Decided:
		v.w.fail("%s told its follower version %v of %s, which is not settled", v.name(), n.Tag, n.Key)
	}
	if f.seen[n.Key] != n.Tag {
		f.seen[n.Key] = n.Tag
		v.w.peeked(v.id, n.Key, n.Tag, string(n.Value), !n.Deleted)
	}
	if f.take != nil {
		f.take(n)
	}
}

// complete checks, when all is over, that nothing was missed.
func (f *follower) complete() {
	f.follow()
	for _, k := range f.v.w.keys {
		if f.seen[k] != f.v.w.finals[k] {
			f.v.w.fail("who follows %s has version %v of %s, and reads gave %v", f.v.name(), f.seen[k], k, f.v.w.finals[k])
		}
	}
}

// observer is a site without a vote: its replica learns what a voter that it
// follows tells, now from this one and now from that. It is the replica's store.
type observer struct {
	w    *world
	rng  *rand.Rand
	core *register.Replica
	disk Disk
	seen map[string]register.Tag
	now  int // the voter that it follows now
}

func (w *world) newObserver() *observer {
	o := &observer{w: w, rng: rand.New(rand.NewPCG(w.cfg.Seed, 4)), seen: map[string]register.Tag{}}
	for i, v := range w.voters {
		v.follower.take = func(n register.News) { o.learn(i, n) }
	}
	o.start()
	return o
}

func (o *observer) start() {
	core, err := o.w.cfg.New(register.Config{
		Voters: o.w.ids, ReadQuorum: o.w.cfg.ReadQuorum, WriteQuorum: o.w.cfg.WriteQuorum, Boot: o.disk.Open(), Saved: o.disk.Last(),
	}, o.disk.Records())
	if err != nil {
		o.w.fail("an observer does not start from its own disk: %v", err)
		return
	}
	o.core = core
}

// learn takes in what voter i tells its followers.
func (o *observer) learn(i int, n register.News) {
	if i != o.now || o.core == nil {
		return
	}
	m := &register.MsgCatchup{Key: n.Key, Write: n.Write, Held: n.Held}
	if err := o.core.Step(o.w.voters[i].id, m); err != nil {
		o.w.fail("an observer refuses what a voter tells: %v", err)
		return
	}
	register.Drive(o.core, o, nil, nil)
	for _, k := range o.w.keys {
		l := o.core.Peek(k)
		if l.Tag.Less(o.seen[k]) || l.Newer || l.Pending {
			o.w.fail("an observer knew version %v of %s, and now %+v", o.seen[k], k, l)
		}
		o.seen[k] = l.Tag
	}
}

// Save implements register.Store: it is done at once, and now and then it ends in a
// crash, after which the observer follows some other voter.
func (o *observer) Save(seq register.Seq, records []register.Record) {
	o.disk.Save(seq, records)
	if o.rng.IntN(20) > 0 {
		o.core.Saved(o.disk.Complete())
		return
	}
	o.disk.Crash(o.rng.IntN(2) == 0)
	o.start()
	o.seen = map[string]register.Tag{}
	o.now = o.rng.IntN(len(o.w.voters))
}

// complete checks, when all is over, that an observer lacks nothing of what a
// voter shows, once it has asked.
func (o *observer) complete(v *voter) {
	for _, s := range v.core.Show(o.w.keys) {
		for o.core.Lacks(s) { // again after a crash
			o.now = v.pos
			w := v.core.Catchup([]string{s.Key})[0]
			o.learn(v.pos, register.News{Key: w.Key, Held: w.Held, Write: w.Write})
		}
	}
	for _, k := range o.w.keys {
		if l := o.core.Peek(k); l.Tag != o.w.finals[k] {
			o.w.fail("an observer has version %v of %s, and reads gave %v", l.Tag, k, o.w.finals[k])
		}
	}
	if o.core.Digests() != v.core.Digests() {
		o.w.fail("an observer's digests are %x, and those of %s %x", o.core.Digests(), v.name(), v.core.Digests())
	}
	if s := o.core.Status(); s.Active != 0 {
		o.core.Tick()
		if s = o.core.Status(); s.Active != 0 {
			o.w.fail("an observer does not come to rest: %+v", s)
		}
	}
}
