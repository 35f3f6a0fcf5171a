//go:build unix

package torture

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"gus/register"
	"gus/register/sim"
)

// recorded makes a history of key k from lines "voter begin-end kind value version",
// such as "1 1-4 set x 5.1". A value of - is none, an end of ? an unknown outcome,
// of ! a write of which the client was told that nothing changed.
func recorded(t *testing.T, text string) sim.History {
	t.Helper()
	var h sim.History
	for line := range strings.Lines(strings.TrimSpace(text)) {
		f := strings.Fields(line)
		begin, end, _ := strings.Cut(f[1], "-")
		o := &sim.Operation{Voter: register.Voter(integer(t, f[0])), Key: "k", Call: integer(t, begin), Fate: sim.Done}
		o.Kind = map[string]sim.Kind{"get": sim.Get, "set": sim.Set, "delete": sim.Delete}[f[2]]
		switch end {
		case "?":
			o.Fate = sim.Unknown
		case "!":
			o.Fate = sim.Never
		default:
			o.Return = integer(t, end)
		}
		if f[3] != "-" {
			o.Value, o.Found = f[3], o.Kind == sim.Get
		}
		if len(f) > 4 {
			o.Tag, _ = register.ParseTag(f[4])
		}
		h = append(h, o)
	}
	return h
}

func integer(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestJudge(t *testing.T) {
	for _, c := range []struct{ name, history, wrong string }{
		{"all is well", `
			1 1-2 set x 5.1
			2 3-4 get x 5.1`, ""},
		{"an acknowledged write is lost", `
			1 1-2 set x 5.1
			2 3-4 get - 0.0`, "out of order"},
		{"a read is stale", `
			1 1-2 set x 5.1
			2 3-4 set y 6.2
			3 5-6 get x 5.1`, "out of order"},
		{"an acknowledged write comes back", `
			1 1-2 set x 5.1
			2 3-4 delete - 6.2
			3 5-6 get x 5.1`, "out of order"},
		{"a write that changed nothing is read", `
			1 1-! set x
			2 3-4 get x 5.1`, "nobody can have written"},
		{"a write of unknown outcome takes effect", `
			1 1-? set x
			2 3-4 get - 0.0
			2 5-6 get x 5.1`, ""},
		{"and does so twice", `
			1 1-? set x
			2 3-4 get x 5.1
			2 5-6 set y 6.2
			2 7-8 get x 7.1`, "two versions"},
	} {
		t.Run(c.name, func(t *testing.T) { want(t, judge(recorded(t, c.history), nil, rand.New(rand.NewPCG(1, 1))), c.wrong) })
	}
}

// TestLocalReadsAreSettled: they may be old, and nobody may read less afterwards.
func TestLocalReadsAreSettled(t *testing.T) {
	for _, c := range []struct{ name, history, local, wrong string }{
		{"an old one", `
			1 2-3 set x 5.1
			2 4-5 set y 6.2`, "3 1-6 get x 5.1", ""},
		{"one of a write in progress", `
			1 2-9 set x 5.1
			2 5-6 get x 5.1`, "3 1-4 get x 5.1", ""},
		{"one that is un-seen", `
			1 2-9 set x 5.1
			2 5-6 get - 0.0`, "3 1-4 get x 5.1", "out of order"},
		{"one of a write that did not begin yet", `
			1 5-6 set x 5.1`, "3 1-4 get x 5.1", "out of order"},
		{"one of nothing that was written", `
			1 2-3 set x 5.1`, "3 1-4 get y 6.1", "nobody can have written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want(t, judge(recorded(t, c.history), recorded(t, c.local), rand.New(rand.NewPCG(1, 1))), c.wrong)
		})
	}
}

// want wants an error that speaks of wrong, or none where that is empty.
func want(t *testing.T, err error, wrong string) {
	t.Helper()
	if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
		t.Errorf("the judge says %v, to be: %q", err, wrong)
	}
}

// TestWindowsGoOnFromEachOther is about histories that were cut in two.
func TestWindowsGoOnFromEachOther(t *testing.T) {
	for _, c := range []struct{ name, first, second, wrong string }{
		{"all is well", `
			1 1-2 set x 5.1
			2 3-4 get x 5.1`, `
			3 101-102 get x 5.1`, ""},
		{"a write is lost between windows", `
			1 1-2 set x 5.1
			2 3-4 get x 5.1`, `
			3 101-102 get - 0.0`, "out of order"},
		{"a read goes back to a window before", `
			1 1-2 set x 5.1
			1 3-4 set y 6.1
			2 5-6 get y 6.1`, `
			3 101-102 get x 5.1`, "out of order"},
		{"a deletion is lost between windows", `
			1 1-2 set x 5.1
			1 3-4 delete - 6.1
			2 5-6 get - 6.1`, `
			3 101-102 get x 5.1`, "out of order"},
		{"a write of unknown outcome takes effect a window later", `
			1 1-? set x
			2 3-4 get - 0.0`, `
			3 101-102 get x 5.1`, ""},
		{"one that was seen and overwritten comes back", `
			1 1-? set x
			2 3-4 get x 5.1
			2 5-6 set y 6.2
			2 7-8 get y 6.2`, `
			3 101-102 get x 7.1`, "nobody can have written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := recorded(t, c.first)
			rng := rand.New(rand.NewPCG(1, 1))
			want(t, judge(first, nil, rng), "")
			states, err := agreed(first[len(first)-1:])
			if err != nil {
				t.Fatal(err)
			}
			watch := &stopwatch{began: time.Now()}
			watch.last.Store(20)
			second := append(carry(first, states, []string{"k"}).begin(watch), later(recorded(t, c.second))...)
			want(t, judge(second, nil, rng), c.wrong)
		})
	}
}

// later moves a history behind all that a stopwatch has shown by now.
func later(h sim.History) sim.History {
	for _, o := range h {
		o.Call += int64(time.Hour)
		o.Return += int64(time.Hour)
	}
	return h
}

func TestSitesThatDoNotAgreeAreFound(t *testing.T) {
	_, err := agreed(recorded(t, `
		1 1-2 get x 5.1
		2 3-4 get x 5.1
		3 5-6 get y 6.2`))
	want(t, err, "do not agree")
	states, err := agreed(recorded(t, `
		1 1-2 get x 5.1
		2 3-4 get x 5.1`))
	want(t, err, "")
	if states["k"] != (state{register.Tag{TS: 5, Owner: 1}, true, "x"}) {
		t.Errorf("all agree on %+v", states["k"])
	}
}

func TestLastListingIsHeldAgainstAllWindows(t *testing.T) {
	l := ledger{}
	l.note(map[string]state{
		"k1": {tag: register.Tag{TS: 5, Owner: 1}, found: true, value: "x"},
		"k2": {tag: register.Tag{TS: 6, Owner: 1}},
		"k3": {},
	})
	entry := func(key string, ts uint64) register.Entry {
		return register.Entry{Key: key, Tag: register.Tag{TS: ts, Owner: 1}}
	}
	for _, c := range []struct {
		entries []register.Entry
		wrong   string
	}{
		{[]register.Entry{entry("k1", 5)}, ""},
		{nil, "does not show the key k1"},
		{[]register.Entry{entry("k1", 4)}, "with the version 4.1"},
		{[]register.Entry{entry("k1", 5), entry("k2", 5)}, "shows the key k2"},
		{[]register.Entry{entry("k1", 5), entry("k4", 5)}, "which no window used"},
	} {
		want(t, l.compare("a", c.entries), c.wrong)
	}
}
