package sim

import (
	"fmt"
	"strings"

	"gus/register"
)

// The kinds of events, as they go into the trace's hash.
const (
	traceMessage = iota + 1
	traceInvoke
	traceReturn
	traceDrop
	traceSaved
	traceSaveFailed
	traceCrash
	traceStart
	traceConnect
	traceBreak
	traceCut
	traceHeal
	traceFail
	tracePull
	traceReread
	traceRollback
	traceCursor
)

// log puts an event into the trace's hash and, for one who listens, in words.
func (w *world) log(kind int, what uint64, words func() string) {
	w.outcome.Trace = uint64(digest(w.outcome.Trace).num(uint64(w.line.now)).num(uint64(kind)).num(what))
	if w.cfg.Trace != nil {
		w.cfg.Trace(fmt.Sprintf("%12v %s", w.line.now, words()))
	}
}

// describe puts a message into words.
func describe(m register.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", m.Kind(), m.Register())
	switch m := m.(type) {
	case *register.MsgWrite:
		b.WriteString(describeWrite(m.Write, false))
	case *register.MsgAckWrite:
		fmt.Fprintf(&b, " %v clean=%v blind=%v", m.Tag, m.Clean, voters(m.Blind))
		if m.Own != nil {
			fmt.Fprintf(&b, " own={free=%v excl=%v}", m.Own.Free, voters(m.Own.Excl))
		}
		fmt.Fprintf(&b, " max=%d undone=%v", m.MaxTS, m.Undone)
	case *register.MsgCommit:
		fmt.Fprintf(&b, " %v =>%s", m.Old, describeWrite(m.Write, m.NoValue))
	case *register.MsgNeed:
		fmt.Fprintf(&b, " %v", m.Tag)
	case *register.MsgAckCommit:
		fmt.Fprintf(&b, " %v undone=%v", m.Tag, m.Undone)
	case *register.MsgUpdateView:
		fmt.Fprintf(&b, " %v decided=%v", m.Tag, m.Decided)
	case *register.MsgRead:
		fmt.Fprintf(&b, " %d.%d have=%v", m.Round.Boot, m.Round.Count, m.Have)
	case *register.MsgAckRead:
		fmt.Fprintf(&b, " %d.%d%s", m.Round.Boot, m.Round.Count, describeWrite(m.Cur, m.NoValue))
		if m.Floor != nil {
			fmt.Fprintf(&b, " floor:%s", describeWrite(*m.Floor, false))
		}
	case *register.MsgForward:
		fmt.Fprintf(&b, " %d.%d%s", m.Round.Boot, m.Round.Count, describeWrite(m.Write, false))
	case *register.MsgList:
		fmt.Fprintf(&b, "%d.%d %q after %q, up to %d", m.Round.Boot, m.Round.Count, m.Prefix, m.After, m.Limit)
	case *register.MsgAckList:
		fmt.Fprintf(&b, "%d.%d %+v next=%q", m.Round.Boot, m.Round.Count, m.Entries, m.Next)
	case *register.MsgCatchup:
		fmt.Fprintf(&b, "%s held=%v", describeWrite(m.Write, false), m.Held)
	case *register.MsgHeard:
		fmt.Fprintf(&b, "boot=%d saved=%d", m.Boot, m.Saved)
	}
	return b.String()
}

func describeWrite(w register.Write, noValue bool) string {
	v := fmt.Sprintf("%q", w.Value)
	switch {
	case noValue:
		v = "(value left out)"
	case w.Deleted:
		v = "(deleted)"
	}
	d := ""
	if w.Decided {
		d = " decided"
	}
	return fmt.Sprintf(" %v %s known=%v%s", w.Tag, v, w.Known, d)
}

func voters(s register.Set) []register.Voter {
	var out []register.Voter
	for v := range s.All {
		out = append(out, v)
	}
	return out
}
