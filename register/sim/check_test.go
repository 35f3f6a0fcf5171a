package sim

import (
	"strings"
	"testing"

	"gus/register"
)

// history makes a history from lines "voter begin-end kind value tag", such as
// "1 1-4 set x 5.1"; a list with a tag shows the one key, with a value of that size. A value of - is none, an end of ? an unknown outcome, of !
// one that never happened.
func history(t *testing.T, text string) History {
	t.Helper()
	var h History
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		begin, end, _ := strings.Cut(f[1], "-")
		o := &Operation{
			ID: register.Op(len(h) + 1), Voter: register.Voter(number(t, f[0])), Key: "k",
			Kind: map[string]Kind{"get": Get, "set": Set, "del": Delete, "list": List}[f[2]],
			Call: int64(number(t, begin)), Fate: Done,
		}
		switch end {
		case "?":
			o.Fate = Unknown
		case "!":
			o.Fate = Never
		default:
			o.Return = int64(number(t, end))
		}
		if f[3] != "-" {
			o.Value, o.Found = f[3], o.Kind == Get
		}
		if o.Kind == List {
			o.Key, o.Value, o.Page = "", "", &Page{Limit: 1}
		}
		if len(f) > 4 {
			tag, err := register.ParseTag(f[4])
			if err != nil {
				t.Fatal(err)
			}
			o.Tag = tag
			if o.Kind == List {
				o.Page.Entries = []register.Entry{{Key: "k", Tag: tag, Size: len(f[3])}}
			}
		}
		h = append(h, o)
	}
	return h
}

// judged are histories, and what the judges have to say of them.
var judged = []struct {
	name, history string
	wrong         string // what Check complains of; "": nothing
	linearizable  bool   // what the search says, which knows no versions
}{
	{"a write is read", `
			1 1-2 set x 1.1
			2 3-4 get x 1.1`, "", true},
	{"a stale read", `
			1 1-2 set x 1.1
			1 3-4 set y 2.1
			2 5-6 get x 1.1`, "out of order", false},
	{"nothing is read after a write", `
			1 1-2 set x 1.1
			2 3-4 get - 0.0`, "out of order", false},
	{"a read goes back", `
			1 1-? set x
			2 2-3 get x 1.1
			3 4-5 get - 0.0`, "out of order", false},
	{"a write below an older one, not yet read", `
			1 1-2 set x 5.1
			2 3-4 set y 4.2`, "out of order", true},
	{"an unknown write takes effect, late", `
			1 1-? set x
			2 2-3 get - 0.0
			2 4-5 get x 1.1`, "", true},
	{"a write that never happened is read", `
			1 1-! set x
			2 2-3 get x 1.1`, "nobody can have written", false},
	{"a value out of nowhere", `
			2 2-3 get x 1.1`, "nobody can have written", false},
	{"a value before it is written", `
			2 1-2 get x 1.1
			1 3-4 set x 1.1`, "out of order", false},
	{"a write is seen under two versions", `
			1 1-? set x
			2 2-3 get x 1.1
			2 4-5 get x 3.1`, "two versions", true},
	{"a version has two values", `
			1 1-? set x
			1 2-? set y
			2 3-4 get x 1.1
			2 5-6 get y 1.1`, "one version, two values", true},
	{"a read shows another version than the write's result", `
			1 1-5 set x 3.1
			2 2-3 get x 1.1`, "nobody can have written", true},
	{"another voter's version", `
			1 1-2 set x 3.2`, "another voter's", true},
	{"two writes of one version at different times", `
			1 1-5 set x 3.1
			1 2-3 set y 3.1
			1 6-7 set z 3.1`, "out of order", true},
	{"coalesced writes", `
			1 1-5 set x 3.1
			1 2-6 set y 3.1
			2 7-8 get y 3.1`, "", true},
	{"a deletion is read", `
			1 1-2 set x 1.1
			2 3-4 del - 2.2
			3 5-6 get - 2.2`, "", true},
	{"a deletion that nobody made", `
			1 1-2 set x 1.1
			3 5-6 get - 2.2`, "nobody can have written", false},
	{"a page shows a write", `
			1 1-2 set x 1.1
			2 3-4 list x 1.1`, "", true},
	{"a page shows an old write", `
			1 1-2 set x 1.1
			1 3-4 set y 2.1
			2 5-6 list x 1.1
			2 7-8 get y 2.1`, "out of order", true},
	{"a page shows what was deleted", `
			1 1-2 set x 1.1
			1 3-4 del - 2.1
			2 5-6 list x 1.1`, "out of order", false},
	{"a page does not show a write", `
			1 1-2 set x 1.1
			2 3-4 list -`, "not shown", false},
	{"a page does not show a write in progress", `
			1 1-4 set x 1.1
			2 2-3 list -
			2 5-6 list x 1.1`, "", true},
	{"a page does not show what is being deleted", `
			1 1-2 set x 1.1
			1 3-6 del - 2.1
			2 4-5 list -
			2 7-8 list -`, "", true},
	{"a page does not show what one before it showed", `
			1 1-2 set x 1.1
			1 3-10 del - 2.1
			2 4-5 list -
			2 6-7 list x 1.1`, "out of order", false},
	{"a page does not show what is deleted later", `
			1 1-2 set x 1.1
			2 3-4 list -
			1 5-6 del - 2.1`, "not shown", false},
	{"a page sees a deletion of unknown outcome", `
			1 1-2 set x 1.1
			3 3-? del -
			2 4-5 list -
			2 6-7 get x 1.1`, "", false},
	{"a page sees one that others see as well", `
			1 1-2 set x 1.1
			3 3-? del -
			2 4-5 get x 1.1
			2 6-7 list -
			2 8-9 get - 2.3`, "", true},
	{"a page sees one before another read does not", `
			1 1-2 set x 1.1
			3 3-? del -
			2 4-5 list -
			2 6-7 get x 1.1
			2 8-9 get - 2.3`, "out of order", false},
	{"a page shows a value of another size", `
			1 1-2 set xyz 1.1
			2 3-4 list x 1.1`, "nobody can have written", true},
	{"a page shows a version that reads as another", `
			1 1-? set xyz
			1 2-? set x
			2 3-4 list x 1.1
			2 5-6 get xyz 1.1`, "one version, two values", true},
}

func TestJudges(t *testing.T) {
	for _, c := range judged {
		t.Run(c.name, func(t *testing.T) {
			h := history(t, c.history)
			err := h.Check()
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("Check says %v, to be: %q", err, c.wrong)
			}
			if err := h.Linearizable(); (err == nil) != c.linearizable {
				t.Errorf("Linearizable says %v", err)
			}
		})
	}
}
