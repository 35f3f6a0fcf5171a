package register

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts tells the stories of testdata, each about one paragraph of
// PROTOCOL.md: what the voters are given, and every word that they say. Run
// with -rewrite to accept what they say now.
//
//	voters n=3 [clocks=(5,5,0)]   a new world; what else is there is gone
//	hold                          from now on saves take until "saved" or "save-fails"
//	clock at=1 ts=7               what the clock of voter 1 says, as a timestamp
//	set at=1, delete at=1         a client at voter 1 writes: operation 1 writes "a", operation 2 "b"
//	get at=1                      a client at voter 1 reads
//	give-up op=1                  the client of operation 1 loses patience
//	deliver [kind=WRITE] [from=1] [to=2] [again]   what is under way arrives; again: and stays under way
//	lose [kind=WRITE] [from=1] [to=2]              what is under way is lost
//	stabilize                     everything arrives until nothing is under way
//	saved at=1, save-fails at=1
//	crash at=1, recover at=1      what is under way to a crashed voter waits there
//	resend at=1 to=2, tick at=1
//	state at=1, peek at=1
//	end                           whoever still waits is told
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		p := &play{}
		datadriven.RunTest(t, path, p.run)
	})
}

// play is a world whose steps a script chooses.
type play struct {
	x   *explorer
	s   *state
	out strings.Builder
}

func (p *play) say(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

func (p *play) run(t *testing.T, d *datadriven.TestData) string {
	p.out.Reset()
	at := 0
	if d.HasArg("at") {
		d.ScanArgs(t, "at", &at)
		if p.s.sites[at-1].r == nil && d.Cmd != "recover" {
			d.Fatalf(t, "voter %d is down", at)
		}
	}
	p.command(t, d, at)
	if p.x.bad != "" {
		p.say("VIOLATION: %s", p.x.bad)
		p.x.bad = ""
	}
	if p.out.Len() == 0 {
		return "ok\n"
	}
	return p.out.String()
}

func (p *play) command(t *testing.T, d *datadriven.TestData, at int) {
	act := func(f func(*Replica)) {
		p.x.step(p.s, at-1, 0, func(t *site) error { f(t.r); return nil })
	}
	switch d.Cmd {
	case "voters":
		p.voters(t, d)
	case "hold":
		p.x.saves = true
	case "clock":
		var ts int64
		d.ScanArgs(t, "ts", &ts)
		p.x.clocks[at-1] = ts
		act(func(r *Replica) { r.clock = uint64(ts) })
	case "set", "delete", "get":
		p.begin(t, d, Voter(at))
	case "give-up":
		var op int
		d.ScanArgs(t, "op", &op)
		p.x.giveUp(p.s, op-1)
		p.say("sent: %v", !p.s.ops[op-1].kept)
	case "deliver", "lose":
		p.deliver(t, d)
	case "stabilize":
		for i := 0; i < len(p.s.net); {
			if p.s.sites[p.s.net[i].to-1].r == nil {
				i++
				continue
			}
			p.arrive(i)
			i = 0
		}
	case "saved":
		p.x.step(p.s, at-1, actSaved, p.x.write)
	case "save-fails":
		p.x.step(p.s, at-1, 0, func(t *site) error {
			seq := t.seq
			t.flying, t.seq = nil, 0
			t.r.SaveFailed(seq)
			return nil
		})
	case "crash":
		p.x.crash(p.s, at-1)
	case "recover":
		p.x.recover(p.s, at-1)
	case "resend":
		var to Voter
		d.ScanArgs(t, "to", &to)
		act(func(r *Replica) { r.Resend(to) })
	case "tick":
		act((*Replica).Tick)
	case "state":
		p.state(p.s.sites[at-1].r)
	case "peek":
		l := p.s.sites[at-1].r.Peek(worldKey)
		p.say("%v %q found=%v newer=%v pending=%v", l.Tag, l.Value, l.Found, l.Newer, l.Pending)
	case "end":
		p.x.end(p.s)
	default:
		d.Fatalf(t, "unknown command")
	}
}

func (p *play) voters(t *testing.T, d *datadriven.TestData) {
	p.x = &explorer{outcomes: map[[2]uint64]*outcome{}, script: p.say}
	d.ScanArgs(t, "n", &p.x.n)
	p.x.crashes = 1000
	p.x.clocks = make([]int64, p.x.n)
	if d.HasArg("clocks") {
		for i, arg := range d.CmdArgs[len(d.CmdArgs)-1].Vals {
			fmt.Sscan(arg, &p.x.clocks[i])
		}
	}
	p.s = p.x.begin()
}

func (p *play) begin(t *testing.T, d *datadriven.TestData, at Voter) {
	op := len(p.x.ops)
	p.x.ops = append(p.x.ops, worldOp{at, d.Cmd != "get", d.Cmd == "delete"})
	p.s.ops = append(p.s.ops, opState{begun: true, start: p.s.done})
	p.say("op %d", op+1)
	p.x.step(p.s, int(at-1), 0, func(t *site) error {
		switch d.Cmd {
		case "set":
			t.r.Set(Op(op+1), worldKey, []byte{byte('a' + op)}, false)
		case "delete":
			t.r.Set(Op(op+1), worldKey, nil, true)
		default:
			t.r.Get(Op(op+1), worldKey)
		}
		return nil
	})
}

// deliver lets what is under way and fits arrive, or loses it.
func (p *play) deliver(t *testing.T, d *datadriven.TestData) {
	var kind string
	var from, to Voter
	d.MaybeScanArgs(t, "kind", &kind)
	d.MaybeScanArgs(t, "from", &from)
	d.MaybeScanArgs(t, "to", &to)
	n := 0
	for i, left := 0, len(p.s.net); left > 0; left-- {
		m := p.s.net[i]
		down := p.s.sites[m.to-1].r == nil && d.Cmd == "deliver"
		if kind != "" && m.m.Kind().String() != kind || from != 0 && m.from != from || to != 0 && m.to != to || down {
			i++
			continue
		}
		n++
		if d.Cmd == "lose" {
			p.s.net = append(p.s.net[:i:i], p.s.net[i+1:]...)
			continue
		}
		p.arrive(i)
		if d.HasArg("again") {
			p.s.net = append(p.s.net, m)
		}
	}
	if n == 0 && d.Cmd == "deliver" {
		d.Fatalf(t, "nothing of the kind is under way")
	}
}

func (p *play) arrive(i int) {
	m := p.s.net[i]
	p.say("%d->%d %s", m.from, m.to, show(m.m))
	p.x.deliver(p.s, i)
}

// tell shows what came of a step.
func (x *explorer) tell(o *outcome) {
	if o.site.seq != 0 {
		x.script("  %d saves", o.site.voter)
	}
	for _, p := range o.sent {
		x.script("  %d to %d: %s", p.from, p.to, show(p.m))
	}
	for _, res := range o.results {
		if res.Err != nil {
			x.script("  op %d: %v", res.Op, res.Err)
			continue
		}
		what := "written as"
		if !x.ops[res.Op-1].write {
			what = fmt.Sprintf("reads %q,", res.Value)
		}
		x.script("  op %d: %s %v in %d round trips", res.Op, what, res.Tag, res.RoundTrips)
	}
}

func (p *play) state(r *Replica) {
	g := r.regs[worldKey]
	if g == nil {
		p.say("no register")
		return
	}
	p.say("cur %s", showWrite(g.cur.Write, false))
	if g.floor != g.cur {
		p.say("floor %v", g.floor.Tag)
	}
	p.say("readable %v", g.readable.Tag)
	for _, v := range g.recs {
		p.say("rec %s accepted=%v value=%v", showWrite(v.Write, true), v.accepted, v.hasValue)
	}
	if g.orphanTS > 0 {
		p.say("orphan %v", Tag{TS: g.orphanTS, Owner: r.self})
	}
	if g.live == nil {
		p.say("at rest")
		return
	}
	if q := g.live.pending; q != nil {
		p.say("pending %s", showWrite(q.write, false))
	}
	for _, h := range g.live.heard {
		p.say("heard %v free=%v excl=%v", h.tag, h.Free, members(h.Excl))
	}
}

func showWrite(w Write, bare bool) string {
	s := w.Tag.String()
	switch {
	case bare:
	case w.Deleted:
		s += "=none"
	default:
		s += fmt.Sprintf("=%q", w.Value)
	}
	if len(w.Known) > 0 {
		s += fmt.Sprintf(" known=%v", w.Known)
	}
	if w.Decided {
		s += " decided"
	}
	return s
}

func members(s Set) []Voter {
	out := []Voter{}
	for v := range s.All {
		out = append(out, v)
	}
	return out
}

// show is a message in one line, without what is empty.
func show(m Message) string {
	s := m.Kind().String()
	part := func(ok bool, format string, args ...any) {
		if ok {
			s += " " + fmt.Sprintf(format, args...)
		}
	}
	switch m := m.(type) {
	case *MsgWrite:
		part(true, "%s", showWrite(m.Write, false))
	case *MsgAckWrite:
		part(true, "%v", m.Tag)
		part(m.Clean, "clean")
		part(!m.Clean, "stale")
		part(m.Blind != 0, "blind=%v", members(m.Blind))
		if m.Own != nil {
			part(true, "own(free=%v excl=%v)", m.Own.Free, members(m.Own.Excl))
		}
		part(true, "max=%d", m.MaxTS)
		part(len(m.Undone) > 0, "undone=%v", m.Undone)
	case *MsgCommit:
		part(true, "%v as %s", m.Old, showWrite(m.Write, m.NoValue))
	case *MsgNeed:
		part(true, "%v", m.Tag)
	case *MsgAckCommit:
		part(true, "%v", m.Tag)
		part(len(m.Undone) > 0, "undone=%v", m.Undone)
	case *MsgUpdateView:
		part(true, "%v", m.Tag)
		part(m.Decided, "decided")
	case *MsgRead:
		part(true, "%d/%d", m.Round.Boot, m.Round.Count)
		part(!m.Have.IsZero(), "have=%v", m.Have)
	case *MsgAckRead:
		part(true, "%d/%d %s", m.Round.Boot, m.Round.Count, showWrite(m.Cur, m.NoValue))
		if m.Floor != nil {
			part(true, "floor=%s", showWrite(*m.Floor, false))
		}
	case *MsgForward:
		part(true, "%d/%d %s", m.Round.Boot, m.Round.Count, showWrite(m.Write, false))
	}
	return s
}
