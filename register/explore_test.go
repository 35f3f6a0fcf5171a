package register

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var exploreStates = flag.Int("explore", 0, "explore each world up to this many states, in place of what fits in a minute")
var exploreWorld = flag.String("explore.world", "", "explore only the worlds whose names have this in them")

// A world is a few voters with a few operations on one key. explore visits all
// its states: every order in which operations begin, messages arrive, saves end,
// voters crash and come back.
type world struct {
	name    string
	n       int
	ops     []worldOp
	crashes int  // at most so many in all; the crashed may come back
	abandon bool // clients of writes may give up
	fails   int  // at most so many saves fail cleanly, to be tried again after a tick
	saves   bool // a save takes time, and a crash loses what was not saved; otherwise it is part of the step
	pulls   int  // at most so many times a voter pulls what it lacks from another
	asks    bool // who comes back asks before it votes
	clocks  []int64
	max     int // states in go test; 0: complete
}

type worldOp struct {
	voter   Voter
	write   bool
	deletes bool
}

// site is one voter of a world; it is not changed once it is in a state.
type site struct {
	voter  Voter
	r      *Replica // nil: down
	boot   uint64
	disk   *Record // what is saved
	flying []Record
	seq    Seq
	hash   uint64
}

// opState is what the monitor knows of an operation.
type opState struct {
	begun, over bool // over: has its result, or its client has gone
	start       Tag  // the highest tag of what was complete when it began
	spec, final Tag  // a write's tags
	read        bool // a reader has returned the write
	kept        bool // its client was told that nothing changed
}

// post is a message under way.
type post struct {
	from, to Voter
	m        Message
	hash     uint64
}

// state is one state of a world.
type state struct {
	sites   []*site // by voter-1
	net     []post
	ops     []opState
	done    Tag // the highest tag of a complete operation
	crashes int
	fails   int
	pulls   int
}

// outcome is what one step makes of one site, and what it gives away. Sites that
// encode alike step alike, so each outcome is worked out once.
type outcome struct {
	site    *site
	sent    []post
	results []Result
	pending []opTags
	refused error
}

// opTags are the tags under which a write of op is pending.
type opTags struct {
	op          Op
	spec, final Tag
}

// explorer visits the states of a world depth first.
type explorer struct {
	world
	visited  map[uint64]struct{}
	outcomes map[[2]uint64]*outcome
	states   int
	ends     int // states in which nothing more can show
	path     []string
	bad      string
	cut      bool

	script func(format string, args ...any) // tells what is sent and what comes of it; nothing is left out or remembered then
}

func (x *explorer) fail(format string, args ...any) {
	if x.bad == "" {
		x.bad = fmt.Sprintf(format, args...)
	}
}

func (x *explorer) config(v Voter, boot uint64, saved Seq) Config {
	c := Config{Self: v, Boot: boot, Saved: saved, Ask: x.asks && boot > 1}
	for i := range x.n {
		c.Voters = append(c.Voters, Voter(i+1))
	}
	return c
}

func (x *explorer) begin() *state {
	s := &state{ops: make([]opState, len(x.ops))}
	for i := range x.n {
		t := &site{voter: Voter(i + 1), boot: 1}
		t.r = x.replica(t)
		x.rehash(t)
		s.sites = append(s.sites, t)
	}
	return s
}

func (x *explorer) replica(t *site) *Replica {
	r, err := New(x.config(t.voter, t.boot, Seq(t.boot*1000)), func(yield func(Record, error) bool) {
		if t.disk != nil {
			yield(*t.disk, nil)
		}
	})
	if err != nil {
		panic(err)
	}
	if x.clocks != nil {
		r.clock = uint64(x.clocks[t.voter-1]) // as a timestamp: small numbers are good to read
	}
	return r
}

func (x *explorer) rehash(t *site) {
	e := encoder{reads: x.reads(t.voter)}
	e.num(uint64(t.voter), t.boot)
	e.flag(t.r != nil, t.disk != nil)
	if t.r != nil {
		e.replica(t.r)
	}
	if t.disk != nil && (x.crashes > 0 || t.r == nil) {
		e.record(*t.disk)
	}
	for _, rec := range t.flying {
		e.record(rec)
	}
	t.hash = e.sum()
}

// reads says whether any read is ever begun at v, or anything is pulled: if not, who has
// accepted what does not matter there.
func (x *explorer) reads(v Voter) bool {
	return x.pulls > 0 || slices.ContainsFunc(x.ops, func(o worldOp) bool { return o.voter == v && !o.write })
}

func (x *explorer) hash(s *state) uint64 {
	var e encoder
	for _, t := range s.sites {
		e.num(t.hash)
	}
	var sum uint64
	for _, p := range s.net {
		sum += p.hash
	}
	e.num(sum, uint64(s.crashes), uint64(s.fails), uint64(s.pulls))
	e.tag(s.done)
	for _, o := range s.ops {
		e.flag(o.begun, o.over, o.read)
		if !o.over {
			e.tag(o.start)
		}
		e.tag(o.spec, o.final)
	}
	return e.sum()
}

// run explores the world from its beginning.
func (x *explorer) run() {
	x.visited = map[uint64]struct{}{}
	x.outcomes = map[[2]uint64]*outcome{}
	s := x.begin()
	x.isNew(s)
	x.visit(s)
}

func (x *explorer) isNew(s *state) bool {
	h := x.hash(s)
	if _, ok := x.visited[h]; ok {
		return false
	}
	x.visited[h] = struct{}{}
	x.states++
	if x.max > 0 && x.states >= x.max {
		x.cut = true
	}
	return true
}

func (x *explorer) visit(s *state) {
	if x.forget(s) && !x.isNew(s) {
		return
	}
	if !slices.ContainsFunc(s.ops, func(o opState) bool { return !o.over }) {
		x.ends++ // nobody looks any more
		return
	}
	moved := false
	for i := range s.ops {
		if x.canBegin(s, i) {
			moved = true
			x.try(s, func(s *state) { x.start(s, i) })
		}
	}
	for i, p := range s.net {
		if s.sites[p.to-1].r != nil && !slices.ContainsFunc(s.net[:i], func(q post) bool { return q.hash == p.hash }) {
			moved = true
			x.try(s, func(s *state) { x.deliver(s, i) })
		}
	}
	for i, t := range s.sites {
		if t.r != nil && t.seq != 0 {
			moved = true
			x.try(s, func(s *state) { x.step(s, i, actSaved, x.write) })
			if s.fails < x.fails {
				x.try(s, func(s *state) { s.fails++; x.step(s, i, actFails, x.unwrite) })
			}
		}
		if t.r != nil && s.crashes < x.crashes {
			x.try(s, func(s *state) { x.crash(s, i) })
		}
		if t.r == nil {
			x.try(s, func(s *state) { x.recover(s, i) })
		}
	}
	x.pull(s)
	for i, o := range s.ops {
		if x.abandon && o.begun && !o.over && x.ops[i].write && s.sites[x.ops[i].voter-1].r != nil {
			x.try(s, func(s *state) { x.giveUp(s, i) })
		}
	}
	if !moved {
		x.end(s)
	}
}

// pull lets any voter pull what it lacks from any other.
func (x *explorer) pull(s *state) {
	for i, from := range s.sites {
		for j, to := range s.sites {
			if s.pulls == x.pulls || i == j || from.r == nil || to.r == nil || !to.r.Lacks(from.r.show(worldKey)) {
				continue
			}
			x.try(s, func(s *state) {
				s.pulls++
				x.path = append(x.path, fmt.Sprintf("%d pulls from %d", j+1, i+1))
				for _, m := range from.r.Catchup([]string{worldKey}) {
					var e encoder
					e.num(uint64(from.voter))
					e.message(SetOf(to.voter), m)
					s.net = append(s.net, post{from.voter, to.voter, m, e.sum()})
				}
			})
		}
	}
}

// forget takes out the messages whose arrival changes nothing, now or later: what
// is kept only grows as long as nobody crashes. It says whether there were any.
func (x *explorer) forget(s *state) bool {
	if s.crashes < x.crashes || s.fails < x.fails || x.abandon || slices.ContainsFunc(s.sites, func(t *site) bool { return t.r == nil }) {
		return false
	}
	n := len(s.net)
	s.net = slices.DeleteFunc(s.net, func(p post) bool {
		t := s.sites[p.to-1]
		o := x.outcome(t, p.hash, func(t *site) error { return t.r.Step(p.from, p.m) })
		return o.site.hash == t.hash && len(o.sent) == 0 && len(o.results) == 0
	})
	return len(s.net) < n
}

// canBegin says whether op i may begin: those of one voter begin in order.
func (x *explorer) canBegin(s *state, i int) bool {
	if s.ops[i].begun || s.sites[x.ops[i].voter-1].r == nil {
		return false
	}
	for j := range i {
		if x.ops[j] == x.ops[i] && !s.ops[j].begun {
			return false
		}
	}
	return true
}

// try makes one step from a copy of s and visits what comes of it, if it is new.
func (x *explorer) try(s *state, step func(*state)) {
	if x.bad != "" || x.cut {
		return
	}
	c := &state{slices.Clone(s.sites), slices.Clone(s.net), slices.Clone(s.ops), s.done, s.crashes, s.fails, s.pulls}
	n := len(x.path)
	step(c)
	if x.bad == "" && x.isNew(c) {
		x.visit(c)
	}
	if x.bad == "" { // otherwise the path stays, to be shown
		x.path = x.path[:n]
	}
}

// What happens at a site but the arrival of a message, as it stands in the key of an outcome.
const (
	actSaved = iota
	actFails
	actRecover
	actResend // + voter
	actBegin  = 100
	actGiveUp = 200
)

// outcome returns what act makes of t.
func (x *explorer) outcome(t *site, key uint64, act func(*site) error) *outcome {
	k := [2]uint64{t.hash, key}
	if o := x.outcomes[k]; o != nil && x.script == nil {
		return o
	}
	c := *t
	if c.r != nil {
		c.r = c.r.clone()
	}
	o := &outcome{site: &c}
	o.refused = act(&c)
	x.drive(&c, o)
	x.rehash(&c)
	x.outcomes[k] = o
	return o
}

// step lets act happen at site i of s.
func (x *explorer) step(s *state, i int, key uint64, act func(*site) error) {
	x.path = append(x.path, fmt.Sprintf("%d: act %d", i+1, key))
	x.apply(s, i, x.outcome(s.sites[i], key, act))
}

func (x *explorer) apply(s *state, i int, o *outcome) {
	if o.refused != nil {
		x.fail("refused: %v", o.refused)
	}
	s.sites[i] = o.site
	for _, p := range o.sent {
		if x.matters(s, p) {
			s.net = append(s.net, p)
		}
	}
	if x.script != nil {
		x.tell(o)
	}
	for _, t := range o.pending {
		x.pending(s, t)
	}
	for _, res := range o.results {
		x.result(s, res)
	}
}

// matters leaves out the UPDATE-VIEWs of undecided tags to voters that have no
// operation to begin or to end: all that comes of them there is a higher seen.
func (x *explorer) matters(s *state, p post) bool {
	m, ok := p.m.(*MsgUpdateView)
	if !ok || m.Decided || x.pulls > 0 || x.script != nil {
		return true
	}
	for i, o := range s.ops {
		if x.ops[i].voter == p.to && !o.over {
			return true
		}
	}
	return false
}

const worldKey = "k"

func (x *explorer) start(s *state, i int) {
	op := x.ops[i]
	s.ops[i].begun, s.ops[i].start = true, s.done
	x.step(s, int(op.voter-1), actBegin+uint64(i), func(t *site) error {
		if op.write {
			t.r.Set(Op(i+1), worldKey, []byte{byte('a' + i)}, false)
		} else {
			t.r.Get(Op(i+1), worldKey)
		}
		return nil
	})
}

func (x *explorer) deliver(s *state, i int) {
	p := s.net[i]
	s.net = slices.Delete(s.net, i, i+1)
	x.path = append(x.path, fmt.Sprintf("%d -> %d: %v %+v", p.from, p.to, p.m.Kind(), p.m))
	x.apply(s, int(p.to-1), x.outcome(s.sites[p.to-1], p.hash, func(t *site) error { return t.r.Step(p.from, p.m) }))
}

// write makes what flies durable.
func (x *explorer) write(t *site) error {
	for _, rec := range t.flying {
		var old Record
		if t.disk != nil {
			old = *t.disk
		}
		rec = Fold(old, rec)
		t.disk = &rec
	}
	seq := t.seq
	t.flying, t.seq = nil, 0
	t.r.Saved(seq)
	return nil
}

// unwrite lets the save of what flies fail, and a second pass.
func (x *explorer) unwrite(t *site) error {
	seq := t.seq
	t.flying, t.seq = nil, 0
	t.r.SaveFailed(seq)
	t.r.Tick()
	return nil
}

func (x *explorer) crash(s *state, i int) {
	x.path = append(x.path, fmt.Sprintf("%d: crash", i+1))
	t := *s.sites[i]
	t.r, t.flying, t.seq = nil, nil, 0
	x.rehash(&t)
	s.sites[i] = &t
	s.crashes++
	for j := range s.ops {
		if x.ops[j].voter == t.voter && s.ops[j].begun {
			s.ops[j].over = true
		}
	}
}

func (x *explorer) recover(s *state, i int) {
	x.step(s, i, actRecover, func(t *site) error {
		t.boot++
		t.r = x.replica(t)
		return nil
	})
	for j := range s.sites {
		if j != i && s.sites[j].r != nil {
			x.step(s, j, actResend+uint64(i), func(t *site) error {
				t.r.Resend(Voter(i + 1))
				return nil
			})
		}
	}
}

var errKept = errors.New("nothing changed")

func (x *explorer) giveUp(s *state, i int) {
	s.ops[i].over = true
	v := int(x.ops[i].voter - 1)
	o := x.outcome(s.sites[v], actGiveUp+uint64(i), func(t *site) error {
		if !t.r.Drop(Op(i + 1)) {
			return errKept
		}
		return nil
	})
	x.path = append(x.path, fmt.Sprintf("give up %d: %v", i, o.refused))
	if o.refused != nil && s.ops[i].read {
		x.fail("op %d was said to have changed nothing", i+1)
	}
	c := *o
	c.refused = nil
	s.ops[i].kept = o.refused != nil
	x.apply(s, v, &c)
}

// drive performs what the replica wants done.
func (x *explorer) drive(t *site, o *outcome) {
	for {
		o.observe(t.r)
		rd := t.r.Ready()
		for _, env := range rd.Messages {
			for to := range env.To.All {
				var e encoder
				e.num(uint64(t.voter))
				e.message(SetOf(to), env.Message)
				o.sent = append(o.sent, post{t.voter, to, env.Message, e.sum()})
			}
		}
		o.results = append(o.results, rd.Results...)
		if len(rd.Records) == 0 {
			return
		}
		t.flying, t.seq = rd.Records, rd.Seq
		if x.saves {
			return
		}
		x.write(t)
	}
}

// observe looks at the pending write for its tags.
func (o *outcome) observe(r *Replica) {
	g := r.regs[worldKey]
	if g == nil || g.live == nil || g.live.pending == nil {
		return
	}
	p := g.live.pending
	for _, op := range p.ops {
		t := opTags{op: op, spec: p.spec}
		if p.phase2() {
			t.final = p.write.Tag
		}
		o.pending = append(o.pending, t)
	}
}

func (x *explorer) pending(s *state, t opTags) {
	o := &s.ops[t.op-1]
	o.spec = t.spec
	if t.final.IsZero() || o.final == t.final {
		return
	}
	o.final = t.final
	for _, q := range s.ops {
		if q.read && q.spec == t.spec {
			x.fail("op %d is retagged from %v, which a reader has returned", t.op, t.spec)
		}
	}
}

func (x *explorer) result(s *state, res Result) {
	i := int(res.Op - 1)
	o := &s.ops[i]
	if o.over {
		x.fail("op %d has two results", i+1)
	}
	o.over = true
	if res.Err != nil {
		o.kept = true
		return
	}
	if x.ops[i].write {
		if !o.start.Less(res.Tag) {
			x.fail("write %d completes as %v, not above %v, which was complete before it began", i+1, res.Tag, o.start)
		}
		o.final = res.Tag
	} else {
		if res.Tag.Less(o.start) {
			x.fail("read %d returns %v, below %v, which was complete before it began", i+1, res.Tag, o.start)
		}
		x.returned(s, i, res)
	}
	s.done = maxTag(s.done, res.Tag)
}

// returned checks what a read returned: a tag of the write whose value it is,
// which that write has not given up.
func (x *explorer) returned(s *state, i int, res Result) {
	if !res.Found {
		deleted := func(o opState) bool { return o.spec == res.Tag || o.final == res.Tag }
		if j := slices.IndexFunc(s.ops, deleted); !res.Tag.IsZero() && (j < 0 || !x.ops[j].deletes) {
			x.fail("read %d returns nothing as %v", i+1, res.Tag)
		}
		return
	}
	w := &s.ops[res.Value[0]-'a']
	switch {
	case w.kept:
		x.fail("read %d returns the value of a write that was said to have changed nothing", i+1)
	case !w.final.IsZero() && res.Tag != w.final:
		x.fail("read %d returns %v, which its writer had replaced by %v", i+1, res.Tag, w.final)
	case w.final.IsZero() && res.Tag != w.spec:
		x.fail("read %d returns %v with the value of %v", i+1, res.Tag, w.spec)
	}
	w.read = true
}

// end is called where nothing can happen any more but a crash: every client
// that waits at a voter that is up must have its result.
func (x *explorer) end(s *state) {
	x.ends++
	for i, o := range s.ops {
		if o.begun && !o.over && s.sites[x.ops[i].voter-1].r != nil {
			x.fail("op %d at voter %d never ends", i+1, x.ops[i].voter)
		}
	}
}

func w(v Voter) worldOp { return worldOp{v, true, false} }
func r(v Voter) worldOp { return worldOp{v, false, false} }

// worlds are complete in go test but where max cuts them; further ones are for
// make explore.
var worlds = []world{
	{name: "n1/2writers-reader-saves-crashes", n: 1, ops: []worldOp{w(1), w(1), r(1)}, crashes: 2, saves: true, abandon: true},
	{name: "n2/2writers-reader", n: 2, ops: []worldOp{w(1), w(2), r(1)}},
	{name: "n3/2writers", n: 3, ops: []worldOp{w(1), w(2)}},
	{name: "n3/2writers-abandon", n: 3, ops: []worldOp{w(1), w(2)}, abandon: true, max: 500_000},
	{name: "n3/2writers-saves", n: 3, ops: []worldOp{w(1), w(2)}, saves: true},
	{name: "n3/2writers-saves-fail", n: 3, ops: []worldOp{w(1), w(2)}, saves: true, fails: 1, max: 500_000},
	{name: "n3/2writers-crash", n: 3, ops: []worldOp{w(1), w(2)}, crashes: 1, max: 500_000},
	{name: "n3/2writers-saves-crash", n: 3, ops: []worldOp{w(1), w(2)}, crashes: 1, saves: true, max: 500_000},
	{name: "n3/writer-reader-crash", n: 3, ops: []worldOp{w(1), r(2)}, crashes: 1, max: 500_000},
	{name: "n3/2writers-reader", n: 3, ops: []worldOp{w(1), w(2), r(3)}, max: 500_000},
	{name: "n3/2writers-pull", n: 3, ops: []worldOp{w(1), w(2)}, pulls: 2, max: 200_000},
	{name: "n3/2writers-reader-pull", n: 3, ops: []worldOp{w(1), w(2), r(3)}, pulls: 1, max: 200_000},
	{name: "n3/2writers-crash-asks", n: 3, ops: []worldOp{w(1), w(2)}, crashes: 1, asks: true, max: 200_000},
	{name: "n3/2writers-reader-at-writer", n: 3, ops: []worldOp{w(1), w(2), r(2)}, max: 500_000},
}

var further = []world{
	{name: "n3/2writers-2readers", n: 3, ops: []worldOp{w(1), w(2), r(3), r(3)}},
	{name: "n3/2writers-readers-at-two", n: 3, ops: []worldOp{w(1), w(2), r(2), r(3)}},
	{name: "n3/3writers-two-of-one", n: 3, ops: []worldOp{w(1), w(1), w(2)}},
	{name: "n3/3writers", n: 3, ops: []worldOp{w(1), w(2), w(3)}},
	{name: "n3/3writers-two-of-one-crash", n: 3, ops: []worldOp{w(1), w(1), w(2)}, crashes: 1},
	{name: "n3/2writers-reader-crash", n: 3, ops: []worldOp{w(1), w(2), r(3)}, crashes: 1},
	{name: "n3/2writers-reader-crash-pull", n: 3, ops: []worldOp{w(1), w(2), r(3)}, crashes: 1, pulls: 1},
	{name: "n3/2writers-saves-crash-asks", n: 3, ops: []worldOp{w(1), w(2)}, crashes: 1, saves: true, asks: true},
	{name: "n5/2writers-pull", n: 5, ops: []worldOp{w(1), w(2)}, pulls: 1},
	{name: "n5/2writers", n: 5, ops: []worldOp{w(1), w(2)}},
	{name: "n5/2writers-clocks", n: 5, ops: []worldOp{w(1), w(2)}, clocks: []int64{1, 2, 0, 0, 0}},
}

func TestExplore(t *testing.T) {
	all := worlds
	if *exploreStates > 0 {
		all = slices.Concat(worlds, further)
	}
	for _, w := range all {
		if !strings.Contains(w.name, *exploreWorld) {
			continue
		}
		switch {
		case *exploreStates > 0:
			w.max = *exploreStates
		case testing.Short():
			w.max = 20_000
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			x := &explorer{world: w}
			x.run()
			if x.bad != "" {
				t.Fatalf("%s\nafter:\n%s", x.bad, strings.Join(x.path, "\n"))
			}
			how := "complete"
			if x.cut {
				how = "cut"
			}
			t.Logf("%d states, %d ends, %s", x.states, x.ends, how)
		})
	}
}
