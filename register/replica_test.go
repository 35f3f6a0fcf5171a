package register

import (
	"errors"
	"strings"
	"testing"
)

func alone(t *testing.T) *Replica {
	t.Helper()
	r, err := New(Config{Self: 1, Voters: []Voter{1}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A client that gives up in the very turn in which its write is done is not
// told that nothing happened.
func TestDropOfWhatIsDone(t *testing.T) {
	r := alone(t)
	r.Set(1, "k", []byte("v"), false)
	r.Saved(r.Ready().Seq)
	if !r.Drop(1) {
		t.Error("a write that is done was said never to happen")
	}
	r.Get(2, "k")
	for _, res := range r.Ready().Results {
		if res.Op == 1 {
			t.Error("a dropped operation got a result")
		}
	}
}

// What no voter would say is refused and leaves everything as it was.
func TestStepRefuses(t *testing.T) {
	long := strings.Repeat("k", MaxKey+1)
	mine, other, high := Tag{TS: 1, Owner: 2}, Tag{TS: 1, Owner: 3}, Tag{TS: maxTS, Owner: 2}
	for name, m := range map[string]Message{
		"no key":                    &MsgRead{Key: ""},
		"a long key":                &MsgRead{Key: long},
		"a key that is not UTF-8":   &MsgRead{Key: "\xff"},
		"a control character":       &MsgRead{Key: "a\nb"},
		"another's WRITE":           &MsgWrite{Key: "k", Write: Write{Tag: other}},
		"WRITE with a huge value":   &MsgWrite{Key: "k", Write: Write{Tag: mine, Value: make([]byte, MaxValue+1)}},
		"WRITE without a tag":       &MsgWrite{Key: "k"},
		"a timestamp of 2^63":       &MsgUpdateView{Key: "k", Tag: high},
		"a max ts of 2^63":          &MsgAckWrite{Key: "k", Tag: mine, MaxTS: maxTS},
		"another's COMMIT":          &MsgCommit{Key: "k", Write: Write{Tag: other, Decided: true}},
		"COMMIT that is undecided":  &MsgCommit{Key: "k", Write: Write{Tag: mine}},
		"an owner above 63":         &MsgForward{Key: "k", Write: Write{Tag: Tag{TS: 1, Owner: 64}}},
		"too many tags":             &MsgAckCommit{Key: "k", Tag: mine, Undone: make([]Tag, maxTags+1)},
		"a known tag that is zero":  &MsgWrite{Key: "k", Write: Write{Tag: mine, Known: make([]Tag, 1)}},
		"a floor that is no tag":    &MsgAckRead{Key: "k", Floor: &Write{}},
		"a cur with a bad known":    &MsgAckRead{Key: "k", Cur: Write{Tag: mine, Known: []Tag{high}}},
		"an old tag that cannot be": &MsgCommit{Key: "k", Old: high, Write: Write{Tag: mine, Decided: true}},
	} {
		r, err := New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var invalid *InvalidError
		if err := r.Step(2, m); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v", name, err)
		}
		if s := r.Status(); s.Keys != 0 || len(r.Ready().Messages) != 0 {
			t.Errorf("%s: something came of it", name)
		}
	}
	r := alone(t)
	if err := r.Step(1, &MsgRead{Key: "k"}); err == nil {
		t.Error("a voter took a message from itself")
	}
	if err := r.Step(2, &MsgRead{Key: "k"}); err == nil {
		t.Error("a voter took a message from a stranger")
	}
}

// A key whose timestamps a wild clock has used up refuses writes and says so.
func TestTimestampsRunOut(t *testing.T) {
	r, err := New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Step(2, &MsgUpdateView{Key: "k", Tag: Tag{TS: maxTS - 1, Owner: 2}}); err != nil {
		t.Fatal(err)
	}
	r.Set(1, "k", nil, false)
	if rd := r.Ready(); len(rd.Results) != 1 || !errors.Is(rd.Results[0].Err, ErrTimestamps) {
		t.Errorf("got %+v", rd.Results)
	}
	r.Clock(1 << 60) // a clock gone wild still leaves room for counting on
	r.Set(2, "other", nil, false)
	if rd := r.Ready(); len(rd.Records) != 1 || rd.Records[0].Pending.Spec.TS != maxClock<<clockBits {
		t.Errorf("got %+v", rd.Records)
	}
}

// A key that was only asked for leaves nothing behind.
func TestReadsOfAbsentKeysLeaveNothing(t *testing.T) {
	tr := newTrio(t)
	for i := range 100 {
		tr.get(Voter(1+i%3), strings.Repeat("k", 1+i))
	}
	tr.settle()
	for v := Voter(1); v <= 3; v++ {
		if s := tr.sites[v].Status(); s.Keys != 0 || s.Bytes != 0 {
			t.Errorf("voter %d: %+v", v, s)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	ok := Config{Self: 2, Voters: []Voter{1, 2, 3}, Boot: 1}
	if err := ok.Validate(); err != nil {
		t.Errorf("%+v: %v", ok, err)
	}
	for name, change := range map[string]func(*Config){
		"no voters":            func(c *Config) { c.Voters = nil },
		"ten voters":           func(c *Config) { c.Voters = []Voter{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} },
		"a voter 0":            func(c *Config) { c.Voters = []Voter{0, 1, 2} },
		"a voter 64":           func(c *Config) { c.Voters = []Voter{64, 1, 2} },
		"a voter twice":        func(c *Config) { c.Voters = []Voter{2, 2, 3} },
		"not among the voters": func(c *Config) { c.Self = 4 },
		"half a quorum":        func(c *Config) { c.ReadQuorum = 1 },
		"more than all":        func(c *Config) { c.WriteQuorum = 4 },
		"no boot":              func(c *Config) { c.Boot = 0 },
	} {
		c := ok
		change(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("%s: accepted %+v", name, c)
		}
	}
}

// Every quorum size of PROTOCOL.md section 1.
func TestQuorums(t *testing.T) {
	want := [MaxVoters + 1][2]int{1: {1, 1}, {2, 2}, {2, 2}, {3, 3}, {3, 3}, {4, 4}, {4, 5}, {5, 5}, {5, 7}}
	for n := 1; n <= MaxVoters; n++ {
		if read, write := Quorums(n); read != want[n][0] || write != want[n][1] {
			t.Errorf("n = %d: got %d and %d, want %v", n, read, write, want[n])
		}
	}
}

func TestTagText(t *testing.T) {
	for _, tag := range []Tag{{}, {TS: 1, Owner: 1}, {TS: maxTS - 1, Owner: MaxVoter}} {
		if got, err := ParseTag(tag.String()); err != nil || got != tag {
			t.Errorf("%v: got %v, %v", tag, got, err)
		}
	}
	for _, s := range []string{"", "1", "1.64", "9223372036854775808.1", "-1.1", "1.1.1", "a.b"} {
		if got, err := ParseTag(s); err == nil {
			t.Errorf("%q: got %v", s, got)
		}
	}
}

// A mark that could not be saved is saved later: a voter that starts alone is
// to show what it knew.
func TestMarksAreSavedAgain(t *testing.T) {
	r, err := New(Config{Self: 1, Voters: []Voter{1}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Set(1, "k", []byte("v"), false)
	r.Saved(r.Ready().Seq) // the pending write
	r.Saved(r.Ready().Seq) // its being complete
	r.Tick()
	rd := r.Ready()
	if len(rd.Records) != 1 || !rd.Records[0].IsMark() {
		t.Fatalf("%+v: want a mark", rd.Records)
	}
	r.SaveFailed(rd.Seq)
	r.Tick()
	if again := r.Ready(); len(again.Records) != 1 || !again.Records[0].IsMark() || !again.Records[0].Readable {
		t.Errorf("%+v: want the mark again", again.Records)
	}
}

// A disk that stays full does not fill the memory: what waits for it is bounded by
// the keys, however much others say and ask meanwhile.
func TestFullDiskIsBounded(t *testing.T) {
	r, err := New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(1000) {
		tag := Tag{TS: 1 + i, Owner: 2}
		for _, m := range []Message{
			&MsgWrite{Key: "k", Write: Write{Tag: tag, Value: []byte("v")}},
			&MsgRead{Key: "k", Round: Round{Boot: 1, Count: 1 + i}},
			&MsgList{Round: Round{Boot: 2, Count: 1 + i}, Limit: 10},
		} {
			if err := r.Step(2, m); err != nil {
				t.Fatal(err)
			}
		}
		r.Get(Op(1+i), "k")
		r.Tick()
		rd := r.Ready()
		r.SaveFailed(rd.Seq)
		r.Drop(Op(1 + i))
		if len(r.waiting) > 10 {
			t.Fatalf("after %d failed saves %d effects wait", i+1, len(r.waiting))
		}
	}
}
