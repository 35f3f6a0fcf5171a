package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// brokenRule is a rule of the protocol, how to break it, and where to look for
// what goes wrong then: in random runs, or for what no search finds in
// reasonable time in a script of register/testdata.
type brokenRule struct {
	name     string
	edits    []edit
	scenario func(seed uint64) Config
	script   string
}

// Any of the rules is caught by one in a few thousand seeds, so that a change
// to the register may well shift which.
const (
	huntSeeds  = 40_000
	cleanSeeds = 2_000
)

// edit replaces old, which occurs once in file, by text that keeps to the rule
// unless broken says otherwise.
type edit struct{ file, old, text string }

var brokenRules = []brokenRule{
	{
		name:   "known", // `known` follows recs instead of cur
		edits:  []edit{{"read.go", "\tif have == g.cur.Tag &&", "\tif broken(\"known\") && g.rec(g.cur.Tag.Owner) != g.cur {\n\t\tm.Cur.Known = nil\n\t}\n\tif have == g.cur.Tag &&"}},
		script: "known_stays_with_cur",
	},
	{
		name:   "phase-2", // a write of phase 2 cut off by a crash is not an orphan
		edits:  []edit{{"recover.go", "if p := rec.Pending; p != nil {", "if p := rec.Pending; p != nil && (p.Write.Tag == p.Spec || !broken(\"phase-2\")) {"}},
		script: "recover_decided",
	},
	{
		name:   "ask", // a reader that is told of a tag does not ask for its value
		edits:  []edit{{"learn.go", "if p := g.live.pending; g.atHand(m.Tag) == nil &&", "if p := g.live.pending; !broken(\"ask\") && g.atHand(m.Tag) == nil &&"}},
		script: "read_asks",
	},
	{
		name: "views", // only the view of an owner's latest tag is kept
		edits: []edit{
			{"state.go", "if !latest && g.atHand(t) == nil {", "if !latest && (broken(\"views\") || g.atHand(t) == nil) {"},
			{"state.go", "v.tag.Less(t) && g.atHand(v.tag) == nil", "v.tag.Less(t) && (broken(\"views\") || g.atHand(v.tag) == nil)"},
		},
		script: "views_at_hand",
	},
	{
		name:   "aside", // what was kept aside for a write that is taken back stays aside
		edits:  []edit{{"gate.go", "if p.floor.Less(g.floor.Tag) &&", "if !broken(\"aside\") && p.floor.Less(g.floor.Tag) &&"}},
		script: "save_fails_with_a_write_aside",
	},
	{
		name:     "relay", // a reader relays an abandoned write of its own before that is saved
		edits:    []edit{{"read.go", "\tif w.Tag.Owner == r.self {\n", "\tif w.Tag.Owner == r.self && !broken(\"relay\") {\n"}},
		scenario: savedLate(contended(2, 0)),
	},
	{
		name:     "phase-2-stays", // a write of phase 2 is not abandoned
		edits:    []edit{{"write.go", "\tcase len(p.ops) > 0:\n", "\tcase len(p.ops) > 0 || p.phase2() && broken(\"phase-2-stays\"):\n"}},
		scenario: readsOnly(abandoned(contended(7, 0))),
	},
	{
		name:     "shut", // a voter comes back with what is not settled and does not read it
		edits:    []edit{{"recover.go", "if g := r.regs[key]; g.readable != g.cur || g.floor != g.cur {", "if g := r.regs[key]; !broken(\"shut\") && (g.readable != g.cur || g.floor != g.cur) {"}},
		scenario: lossy(slowDisks(contended(3, 0))),
	},
	{
		name:     "paper-any", // any stale acknowledgement retags
		edits:    []edit{{"write.go", "\tswitch {\n\tcase keep:\n\t\tr.complete(", "\tif broken(\"paper-any\") && never.Without(r.self) != 0 {\n\t\tr.retag(g)\n\t\treturn\n\t}\n\tswitch {\n\tcase keep:\n\t\tr.complete("}},
		scenario: contended(5, 0),
	},
	{
		name: "paper-owner", // stale unless the highest tag's owner says that its write is not complete
		edits: []edit{
			{"write.go", "\tkeep := true\n", "\tkeep := true\n\tif broken(\"paper-owner\") {\n\t\tfor _, a := range p.acks {\n\t\t\tif a.own != nil && a.own.Free {\n\t\t\t\tr.complete(g, 1)\n\t\t\t\treturn\n\t\t\t}\n\t\t}\n\t}\n"},
		},
		scenario: contended(5, 0),
	},
	{
		name:     "tag-along", // a later read shares a round that is in flight
		edits:    []edit{{"read.go", "n > 0 && !g.live.rounds[n-1].handed", "n > 0 && (!g.live.rounds[n-1].handed || broken(\"tag-along\"))"}},
		scenario: contended(3, 0),
	},
	{
		name:     "dirty", // an owner accepts writes below its own pending one
		edits:    []edit{{"learn.go", "p != nil && !p.write.Tag.Less(t)", "p != nil && !p.write.Tag.Less(t) && !broken(\"dirty\")"}},
		scenario: contended(5, 0),
	},
	{
		name:     "floor", // a stale acknowledgement does not raise the floor
		edits:    []edit{{"learn.go", "case g.floor.Tag.Less(w.Tag): // stale", "case g.floor.Tag.Less(w.Tag) && !broken(\"floor\"): // stale"}},
		scenario: contended(3, 0),
	},
	{
		name:     "forget", // a crash forgets the pending write
		edits:    []edit{{"recover.go", "if p := r.pending[key]; p != nil {", "if p := r.pending[key]; p != nil && !broken(\"forget\") {"}},
		scenario: contended(3, 3),
	},
	{
		name:     "excl", // no excl: a write hangs with two of five down
		edits:    []edit{{"write.go", "\t\t\tnever |= a.own.Excl\n", "\t\t\tif !broken(\"excl\") {\n\t\t\t\tnever |= a.own.Excl\n\t\t\t}\n"}},
		scenario: contended(5, 0),
	},
	{
		name:     "asked", // the verdict is taken when asked
		edits:    []edit{{"learn.go", "\tif h := g.heardOf(t.Owner); h != nil && h.tag == t {", "\tif broken(\"asked\") {\n\t\tv := r.verdict(g, t)\n\t\treturn &v\n\t}\n\tif h := g.heardOf(t.Owner); h != nil && h.tag == t {"}},
		scenario: contended(5, 0),
	},
	{
		name:     "orphan", // an abandoned write is not an orphan
		edits:    []edit{{"write.go", "\tg.orphanTS = max(g.orphanTS, p.write.Tag.TS)\n", "\tif !broken(\"orphan\") {\n\t\tg.orphanTS = max(g.orphanTS, p.write.Tag.TS)\n\t}\n"}},
		scenario: abandoned(contended(3, 0)),
	},
	{
		name:     "old-known", // a retag takes no `known` of its own
		edits:    []edit{{"write.go", "p.write.Tag, p.write.Known, p.write.Decided = t, g.known(), true\n", "p.write.Tag, p.write.Known, p.write.Decided = t, g.known(), true\n\tif broken(\"old-known\") {\n\t\tp.write.Known = nil\n\t}\n"}},
		scenario: contended(5, 0),
	},
	{
		name:     "undone", // a clean acknowledgement carries no `undone`
		edits:    []edit{{"learn.go", "\ta.MaxTS, a.Undone = g.live.seen, g.undone(t)\n", "\ta.MaxTS, a.Undone = g.live.seen, g.undone(t)\n\tif a.Clean && broken(\"undone\") {\n\t\ta.Undone = nil\n\t}\n"}},
		scenario: contended(5, 0),
	},
	{
		name:     "up-to", // decided marks of an owner are taken as "up to"
		edits:    []edit{{"learn.go", "decided := w.Decided ||", "decided := w.Decided || broken(\"up-to\") && g.decidedUpTo(w.Tag) ||"}},
		scenario: contended(5, 0),
	},
	{
		name:     "resend", // nothing is sent again
		edits:    []edit{{"replica.go", "\tage--\n", "\tif broken(\"resend\") {\n\t\treturn false\n\t}\n\tage--\n"}},
		scenario: lossy(contended(3, 0)),
	},
	{
		name:     "gate", // what is not durable is said
		edits:    []edit{{"gate.go", "\tcase r.durable(g):\n\t\tr.release(&h)", "\tcase r.durable(g) || broken(\"gate\"):\n\t\tr.release(&h)"}},
		scenario: slowDisks(contended(3, 0)),
	},
	{
		name: "unsaved-read", // a voter counts its own answer, and returns what it read, before that is durable
		edits: []edit{
			{"read.go", "Without(r.self).Len() >= r.readQuorum\n", "Without(r.self).Len() >= r.readQuorum || broken(\"unsaved-read\")\n"},
			{"learn.go", "\tr.after(g, held{note: v.Tag})\n", "\tif broken(\"unsaved-read\") {\n\t\tr.note(g, v.Tag, r.self, false)\n\t}\n\tr.after(g, held{note: v.Tag})\n"},
		},
		scenario: slowDisks(contended(3, 0)),
	},
	{
		name:     "unheard", // voters not heard from are not counted as holders
		edits:    []edit{{"write.go", "holders := r.n - 1 - len(p.acks)\n", "holders := r.n - 1 - len(p.acks)\n\tif broken(\"unheard\") {\n\t\tholders = 0\n\t}\n"}},
		scenario: contended(5, 0),
	},
	{
		name:     "target", // a read does not begin with what its own voter has acknowledged
		edits:    []edit{{"read.go", "\t\td.target = g.floor.Tag\n", "\t\tif d.target = g.floor.Tag; broken(\"target\") {\n\t\t\td.target = Tag{}\n\t\t}\n"}},
		scenario: contended(3, 0),
	},
	{
		name:     "heard", // verdicts go once all that is at hand is decided
		edits:    []edit{{"state.go", "\t\tif v == nil || v.Tag.Less(h.tag) ||", "\t\tif broken(\"heard\") {\n\t\t\tbreak\n\t\t}\n\t\tif v == nil || v.Tag.Less(h.tag) ||"}},
		scenario: contended(5, 0),
	},
	{
		name:     "free", // an owner always says that it is free
		edits:    []edit{{"learn.go", "Free: done.Less(t) && orphan.Less(t)", "Free: broken(\"free\") || done.Less(t) && orphan.Less(t)"}},
		scenario: abandoned(contended(3, 0)),
	},
	{
		name:     "settled", // what is seen to be settled is marked as decided
		edits:    []edit{{"learn.go", "\tg.readable = w\n", "\tg.readable = w\n\tif broken(\"settled\") {\n\t\tr.markDecided(g, w.Tag)\n\t}\n"}},
		scenario: contended(5, 0),
	},
	{
		name:     "held", // what a read quorum is said to hold is marked as decided
		edits:    []edit{{"catchup.go", "\t\tr.setReadable(g, w)\n", "\t\tr.setReadable(g, w)\n\t\tif broken(\"held\") {\n\t\t\tr.markDecided(g, w.Tag)\n\t\t}\n"}},
		scenario: catchingUp(contended(5, 0)),
	},
	{
		name:     "caught-early", // what is not settled is shown as held
		edits:    []edit{{"content.go", "Held: g.readable == g.cur}", "Held: g.readable == g.cur || broken(\"caught-early\")}"}},
		scenario: catchingUp(contended(5, 0)),
	},
	{
		name: "old-start", // what an earlier start of a voter has said counts, though a later one has asked
		edits: []edit{
			{"progress.go", "if boot < r.boots[from] {", "if boot < r.boots[from] && !broken(\"old-start\") {"},
			{"progress.go", "|| p.Saved >= r.next || earlier:", "|| !broken(\"old-start\") && (p.Saved >= r.next || earlier):"},
			{"progress.go", "case p.Boot > r.boot:", "case p.Boot > r.boot && !broken(\"old-start\"):"},
		},
		scenario: overtaken(rolledBack(3)),
	},
	{
		name:     "caught-unsaved", // what is not durable is shown as settled
		edits:    []edit{{"content.go", "\tcase !r.durable(g):\n", "\tcase !r.durable(g) && !broken(\"caught-unsaved\"):\n"}},
		scenario: watched(catchingUp(slowDisks(contended(3, 0)))),
	},
	{
		name:     "told-early", // what is not durable is told to followers
		edits:    []edit{{"settled.go", "if f.rest > r.saved {", "if f.rest > r.saved && !broken(\"told-early\") {"}},
		scenario: watched(catchingUp(slowDisks(contended(3, 0)))),
	},
	{
		name:     "told-lower", // what may have been told before a crash is forgotten
		edits:    []edit{{"settled.go", "if w == r.zero || w.Tag.Less(r.maybe[g.key]) {", "if w == r.zero || !broken(\"told-lower\") && w.Tag.Less(r.maybe[g.key]) {"}},
		scenario: watched(catchingUp(slowDisks(contended(3, 0)))),
	},
	{
		name:     "told-before", // a follower listens from where settled marks may still be missing in the saves that it has read
		edits:    []edit{{"settled.go", "if f.g.marked {", "if f.g.marked && !broken(\"told-before\") {"}},
		scenario: watched(contended(3, 0)),
	},
	{
		name:     "told-once", // what becomes settled while older news waits for the same save is not told
		edits:    []edit{{"settled.go", "\t\tr.fresh[last] = f\n", "\t\tif !broken(\"told-once\") {\n\t\t\tr.fresh[last] = f\n\t\t}\n"}},
		scenario: watched(catchingUp(slowDisks(contended(3, 0)))),
	},
	{
		name:     "mark-dropped", // a mark that went with a write goes where that is dropped
		edits:    []edit{{"recover.go", "r.marking = append(r.marking, g)", "if broken(\"mark-dropped\") && g.rest == r.next {\n\t\t\tcontinue\n\t\t}\n\t\tr.marking = append(r.marking, g)"}},
		scenario: watched(fullDisks(contended(3, 0))),
	},
	{
		name:     "own-pending", // cursors are passed on while a write of its own is pending, which it does not learn from others
		edits:    []edit{{"settled.go", "p != nil && p.saved && !yield(", "p != nil && p.saved && !broken(\"own-pending\") && !yield("}},
		scenario: unacknowledged(moving(contended(3, 0))),
	},
	{
		name:     "covers", // a cursor passes over a key that is about to be saved
		edits:    []edit{{"catchup.go", "if len(r.dirty) > 0 {", "if broken(\"covers\") {\n\t\treturn r.saved\n\t}\n\tif len(r.dirty) > 0 {"}},
		scenario: watched(savedLate(contended(3, 0))),
	},
	{
		name:     "mixed-starts", // the records of one start go with the number of an earlier one
		edits:    []edit{{"progress.go", "max(m.Boot, r.boots[from])", "map[bool]uint64{false: max(m.Boot, r.boots[from]), true: r.boots[from]}[broken(\"mixed-starts\")]"}},
		scenario: startedAgain(contended(3, 0)),
	},
	{
		name:     "stays-open", // what stays open is not read
		edits:    []edit{{"read.go", "l.quiet++; due(l.quiet) {", "l.quiet++; due(l.quiet) && !broken(\"stays-open\") {"}},
		scenario: contended(3, 0),
	},
	{
		name: "votes-at-once", // a voter with an older directory does not ask, and does not listen
		edits: []edit{
			{"replica.go", "standing{asking: cfg.Ask &&", "standing{asking: cfg.Ask && !broken(\"votes-at-once\") &&"},
			{"progress.go", "\t\tcase p.Voter == r.self:\n", "\t\tcase p.Voter == r.self && broken(\"votes-at-once\"):\n\t\tcase p.Voter == r.self:\n"},
		},
		scenario: rolledBack(3),
	},
	{
		name:     "deaf", // what others have heard of a voter does not count
		edits:    []edit{{"progress.go", "\th := r.progressOf(p.Voter)\n", "\tif broken(\"deaf\") {\n\t\treturn\n\t}\n\th := r.progressOf(p.Voter)\n"}},
		scenario: rolledBack(3),
	},
	{
		name: "page", // a page does not wait for the disk
		edits: []edit{
			{"list.go", "\tif last == nil {\n\t\tr.tell(", "\tif last == nil || broken(\"page\") {\n\t\tr.tell("},
			{"list.go", "\tif last == nil {\n\t\tr.gotPage(", "\tif last == nil || broken(\"page\") {\n\t\tr.gotPage("},
		},
		scenario: listing(1, fragile(slowDisks(contended(3, 0)))),
	},
	{
		name:     "next", // pages are compared up to the greatest next
		edits:    []edit{{"list.go", "(l.next == \"\" || p.next < l.next)", "(l.next == \"\" || (p.next < l.next) != broken(\"next\"))"}},
		scenario: listing(9, lossy(contended(3, 0))),
	},
	{
		name:     "beyond", // what lies beyond the least next is shown as well
		edits:    []edit{{"list.go", "if l.next != \"\" && e.Key > l.next ||", "if l.next != \"\" && e.Key > l.next && !broken(\"beyond\") ||"}},
		scenario: listing(3, contended(3, 0)),
	},
	{
		name:     "disagree", // a key is read off though the pages have different versions of it
		edits:    []edit{{"list.go", "if e.Tag != shown[0].Tag ||", "if e.Tag != shown[0].Tag && !broken(\"disagree\") ||"}},
		scenario: listing(3, contended(3, 0)),
	},
	{
		name:     "few", // or though some do not have it
		edits:    []edit{{"list.go", "if len(shown) < quorum {", "if len(shown) < quorum && !broken(\"few\") {"}},
		scenario: listing(3, contended(3, 0)),
	},
	{
		name:     "above", // or though there is something above it
		edits:    []edit{{"list.go", "|| e.Aside {", "|| e.Aside && !broken(\"above\") {"}},
		scenario: listing(1, contended(3, 0)),
	},
	{
		name:     "list-forgets", // a listing does not wait for the keys that it reads
		edits:    []edit{{"list.go", "\tif l.waiting > 0 {", "\tif l.waiting > 0 && !broken(\"list-forgets\") {"}},
		scenario: listing(3, contended(3, 0)),
	},
	{
		name:     "list-once", // LIST is not sent again
		edits:    []edit{{"list.go", "!due(l.age) ||", "!due(l.age) || broken(\"list-once\") ||"}},
		scenario: listing(3, lossy(contended(3, 0))),
	},
}

// contended is a short run about one key with timestamps that are counters,
// long overtaking, and up to so many crashes.
func contended(voters, crashes int) func(seed uint64) Config {
	return func(seed uint64) Config {
		r := rand.New(rand.NewPCG(seed, 3))
		c := Config{
			Seed: seed, Voters: voters, Keys: 1, Ops: 3 + r.IntN(9), Sets: 0.4 + 0.4*r.Float64(), Writers: voters,
			Unit: time.Millisecond, Queue: 1000, LossAtBreak: r.Float64(), Clocks: Clocks(r.IntN(2)),
			TickEvery: time.Second, QuorumFirst: true, Outage: 50 * time.Millisecond, unwatched: true,
		}
		c.Pace = time.Duration(float64(c.Unit) * []float64{0.3, 2, 8, 40}[r.IntN(4)])
		if r.IntN(2) == 0 {
			c.Tail = 2 + 6*r.Float64()
		}
		if crashes > 0 {
			c.Crashes = r.IntN(crashes + 1)
			c.Restart = c.Unit * time.Duration(1+r.IntN(100))
		}
		return c
	}
}

// savedLate has the clients of s give up while their writes are saved, and voters crash.
func savedLate(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.GiveUp, c.Patience, c.SaveTime = 0.7, 3*c.Unit, 10*c.Unit
		c.Crashes, c.Restart = 6, 2*c.Unit
		c.Ops, c.Sets, c.Pace, c.Tail = 20, 0.5, 3*c.Unit, 3
		return c
	}
}

// readsOnly ends s with no more voters up than reads need.
func readsOnly(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.ReadsOnly = true
		return c
	}
}

// abandoned lets the clients of s lose patience.
func abandoned(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.GiveUp, c.Patience = 0.5, 20*c.Unit
		return c
	}
}

// catchingUp lets connections of s break, and voters pull what they lack when
// they meet again, and at times in between.
func catchingUp(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.Catchup, c.Pulls, c.Breaks = true, 20, 3
		c.Ops += 10
		return c
	}
}

// watched holds what the voters of s say against their disks.
func watched(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.unwatched = false
		return c
	}
}

// rolledBack puts an older image of a voter's disk back once.
func rolledBack(voters int) func(uint64) Config {
	return func(seed uint64) Config {
		c := contended(voters, 0)(seed)
		c.Ask, c.Rollback, c.TickEvery = true, true, 20*c.Unit
		c.Ops, c.Keys = 30, 1
		return c
	}
}

// overtaken has messages of s arrive long after they were sent, also where the connection has
// gone meanwhile.
func overtaken(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.Tail, c.LossAtBreak, c.Pace = 5, 0, 4*c.Unit
		return c
	}
}

// moving has voters of s pull from each other by their cursors, and observers go from one to another;
// few writes, so that what one of these was not told is seldom made up for by the next.
func moving(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		r := rand.New(rand.NewPCG(seed, 5))
		c := watched(s)(seed)
		c.Adopt, c.QuorumFirst, c.Ask = 150, false, r.IntN(2) == 0
		c.Ops, c.Sets, c.Pace = 8+r.IntN(20), 0.1+0.3*r.Float64(), c.Unit*time.Duration(2+r.IntN(20))
		c.Loss, c.Tail, c.SaveTime = 0.4*r.Float64(), float64(r.IntN(6)), c.Unit*time.Duration(r.IntN(4))
		c.Crashes, c.Restart = r.IntN(5), c.Unit*time.Duration(5+r.IntN(200))
		c.GiveUp, c.Patience = 0.5*float64(r.IntN(2)), c.Unit*time.Duration(1+r.IntN(100))
		c.TickEvery = c.Unit * time.Duration([]int{20, 100, 1000}[r.IntN(3)])
		return c
	}
}

// unacknowledged has writes of s stay pending for long, while reads need one voter less.
func unacknowledged(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.ReadQuorum, c.WriteQuorum, c.Loss, c.TickEvery = 2, 3, 0.25, 1000*c.Unit
		c.Adopt, c.Ops, c.Sets, c.Pace = 300, 2*c.Ops, c.Sets/2, 8*c.Unit
		c.GiveUp, c.SaveTime, c.Ask = 0, 0, false
		return c
	}
}

// lossy lets messages of s be lost.
func lossy(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.Loss = 0.2
		return c
	}
}

// listing lets clients of s list so many keys, some of which are deleted.
func listing(keys int, s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.Keys, c.Lists, c.Deletes = keys, 0.4, 0.3
		c.Ops += 3 * keys
		return c
	}
}

// slowDisks lets the saves of s take their time, and many reads and crashes see
// it.
func slowDisks(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.SaveTime = 10 * c.Unit
		c.Ops, c.Sets, c.Pace = 20, 0.3, 2*c.Unit
		c.Crashes, c.Restart = 3, 5*c.Unit
		return c
	}
}

// fullDisks lets the disks of s be full for a while.
func fullDisks(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.SaveTime, c.FullDisks, c.Ops = 2*c.Unit, 4, 20
		return c
	}
}

// startedAgain lets a few voters of s start again and again, with all that they ever said still under way.
func startedAgain(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.Ask, c.Crashes, c.Restart, c.TickEvery = true, 6, 20*c.Unit, 20*c.Unit
		c.Tail, c.LossAtBreak, c.Ops, c.Pace = 6.5, 0, 60, 8*c.Unit
		return c
	}
}

// fragile lets the voters of s crash again and again, mostly while they save.
func fragile(s func(uint64) Config) func(uint64) Config {
	return func(seed uint64) Config {
		c := s(seed)
		c.Crashes, c.Restart, c.SaveTime, c.Tail = 10, c.Unit, 40*c.Unit, 1
		c.Ops, c.Sets, c.Writers = 60, 0.2, 1
		return c
	}
}

// TestBrokenRules judges the judges: a register with any one rule broken must
// be caught, and the same runs with no rule broken must be clean. The register
// has no switches for this; they are put into its source text for this test,
// through the go command's overlay.
func TestBrokenRules(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a changed register")
	}
	binary, scripts := buildBroken(t, "."), buildBroken(t, "..")
	clean := map[string]bool{} // which runs are played with no rule broken: many rules share them
	for _, b := range brokenRules {
		var runs string
		if b.scenario != nil {
			runs = fmt.Sprint(b.scenario(1), b.scenario(2))
		}
		first := !clean[runs]
		clean[runs] = true
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			if b.script != "" {
				play(t, scripts, b)
				return
			}
			if found := hunt(t, binary, b.name, b.name); !strings.HasPrefix(found, "caught") {
				t.Errorf("not caught: %s", found)
			} else {
				t.Log(found)
			}
			if !first {
				return
			}
			if found := hunt(t, binary, b.name, ""); !strings.HasPrefix(found, "clean") {
				t.Errorf("with no rule broken: %s", found)
			}
		})
	}
}

// switches is the file that is added to the register.
const switches = `package register

import "os"

var rule = os.Getenv("GUS_BROKEN")

func broken(name string) bool { return name == rule }

func (g *register) decidedUpTo(t Tag) bool {
	for _, v := range g.live.views {
		if v.tag.Owner == t.Owner && !v.tag.Less(t) && v.decided {
			return true
		}
	}
	return false
}
`

// hunt has the runs of one rule played with that rule, or none, broken.
func hunt(t *testing.T, binary, rule, broken string) string {
	cmd := exec.Command(binary, "-test.run=^TestHunt$", "-test.v")
	cmd.Env = append(os.Environ(), "GUS_HUNT="+rule, "GUS_BROKEN="+broken)
	out, err := cmd.CombinedOutput()
	_, found, ok := strings.Cut(string(out), "HUNT: ")
	if !ok {
		t.Fatalf("the hunt ended with %v: %s", err, out)
	}
	found, _, _ = strings.Cut(found, "\n")
	return found
}

// play has the script of one rule told with that rule, and with none, broken:
// told to its end, whatever it says meanwhile.
func play(t *testing.T, binary string, b brokenRule) {
	name := filepath.Join("testdata", b.script+".txt")
	script := readFile(t, filepath.Join("..", name))
	for _, broken := range []string{b.name, ""} {
		cmd := exec.Command(binary, "-test.run=^TestScripts$", "-rewrite")
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "GUS_BROKEN="+broken)
		if err := os.Mkdir(filepath.Join(cmd.Dir, "testdata"), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(cmd.Dir, name), []byte(script))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		told := readFile(t, filepath.Join(cmd.Dir, name))
		if caught := strings.Contains(told, "VIOLATION"); caught != (broken != "") {
			t.Errorf("broken %q: caught is %v:\n%s", broken, caught, told)
		}
	}
}

// TestHunt plays the runs of the broken rule GUS_HUNT until one is caught.
// TestBrokenRules calls it, in another binary.
func TestHunt(t *testing.T) {
	name := os.Getenv("GUS_HUNT")
	if name == "" {
		t.Skip("is called by TestBrokenRules")
	}
	for _, b := range brokenRules {
		if b.name != name {
			continue
		}
		for seed := range uint64(huntSeeds) {
			if o := Run(b.scenario(seed)); o.Err != nil {
				why, _, _ := strings.Cut(o.Err.Error(), "\n")
				fmt.Printf("HUNT: caught by seed %d: %s\n", seed, why)
				return
			}
			if seed >= cleanSeeds && os.Getenv("GUS_BROKEN") == "" {
				break
			}
		}
	}
	fmt.Println("HUNT: clean")
}

// buildBroken builds the tests of a package over a register with switches.
func buildBroken(t *testing.T, pkg string) string {
	dir, source := t.TempDir(), t.TempDir()
	texts := map[string]string{}
	for _, b := range brokenRules {
		for _, e := range b.edits {
			if texts[e.file] == "" {
				texts[e.file] = readFile(t, filepath.Join("..", e.file))
			}
			if n := strings.Count(texts[e.file], e.old); n != 1 {
				t.Fatalf("rule %s: its text occurs %d times in register/%s, it has to be brought up to date: %q", b.name, n, e.file, e.old)
			}
			texts[e.file] = strings.Replace(texts[e.file], e.old, e.text, 1)
		}
	}
	texts["broken.go"] = switches
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for file, text := range texts {
		path, err := filepath.Abs(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		overlay.Replace[path] = filepath.Join(source, file)
		writeFile(t, filepath.Join(source, file), []byte(text))
	}
	index, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "overlay.json"), index)
	binary := filepath.Join(dir, "broken.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, pkg)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build a register with switches: %v\n%s", err, out)
	}
	return binary
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
