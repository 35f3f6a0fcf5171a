package register

import (
	"errors"
	"iter"
	"slices"
	"testing"
)

// starter is a voter of three that starts from the given records, as of so many starts and saves.
func starter(t *testing.T, boot uint64, saved Seq, records ...Record) *Replica {
	t.Helper()
	r, err := New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: boot, Saved: saved, Ask: true}, each(records))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func each(records []Record) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// said returns the kinds of what r hands out, having saved all that it must.
func said(r *Replica) (kinds []string) {
	for {
		rd := r.Ready()
		for _, e := range rd.Messages {
			kinds = append(kinds, e.Message.Kind().String())
		}
		if rd.Seq == 0 {
			return kinds
		}
		r.Saved(rd.Seq)
	}
}

func step(t *testing.T, r *Replica, from Voter, m Message) {
	t.Helper()
	if err := r.Step(from, m); err != nil {
		t.Fatal(err)
	}
}

func mustSay(t *testing.T, r *Replica, want ...string) {
	t.Helper()
	if got := said(r); !slices.Equal(got, want) {
		t.Errorf("it says %v, want %v", got, want)
	}
}

// A voter that starts says nothing but ASK until all others have answered, and
// what a crash cut off and what clients want waits.
func TestAsksBeforeItVotes(t *testing.T) {
	cut := Write{Tag: Tag{TS: 5, Owner: 1}, Value: []byte("cut off")}
	r := starter(t, 7, 40, Record{Key: "k", Pending: &Pending{Write: cut, Spec: cut.Tag}, Cur: Write{Deleted: true, Decided: true}})
	r.Set(1, "new", []byte("v"), false)
	r.Get(2, "old")
	mustSay(t, r, "ASK")
	step(t, r, 2, &MsgWrite{Key: "k", Write: Write{Tag: Tag{TS: 9, Owner: 2}}})
	r.Tick()
	mustSay(t, r, "ASK")
	step(t, r, 2, &MsgHeard{Boot: 6, Saved: 40, Asked: 7})
	step(t, r, 3, &MsgHeard{Boot: 9, Saved: 99, Asked: 6}) // to an earlier start
	if r.Votes() || r.Awaits() != SetOf(3) {
		t.Fatalf("votes: %v, awaits %b", r.Votes(), r.Awaits())
	}
	mustSay(t, r)
	step(t, r, 3, &MsgHeard{Asked: 7})
	if !r.Votes() || r.Forgot() != nil {
		t.Fatalf("it does not vote: %v", r.Forgot())
	}
	got := said(r)
	for _, want := range []string{"VOTES", "WRITE", "READ"} {
		if !slices.Contains(got, want) {
			t.Errorf("it says %v, and no %s", got, want)
		}
	}
}

// With a voter missing, a read quorum is enough after ten ticks; alone it
// waits for ever.
func TestVotesWithoutAllAnswers(t *testing.T) {
	r := starter(t, 2, 0)
	step(t, r, 3, &MsgHeard{Asked: 2})
	for range askFor - 1 {
		r.Tick()
	}
	if r.Votes() {
		t.Fatal("it votes before it has waited for all")
	}
	if r.Tick(); !r.Votes() {
		t.Fatal("it does not vote with a read quorum")
	}
	lonely := starter(t, 2, 0)
	for range 100 {
		lonely.Tick()
	}
	if lonely.Votes() {
		t.Error("it votes though nobody has answered")
	}
}

// A directory that is older than what others have heard does not vote, now or later.
func TestForgets(t *testing.T) {
	for name, heard := range map[string]MsgHeard{
		"of a record that is not here": {Boot: 1, Saved: 41, Asked: 7},
		"of this boot, by a copy":      {Boot: 7, Saved: 3, Asked: 7},
		"of a later boot":              {Boot: 8, Asked: 7},
	} {
		r := starter(t, 7, 40)
		said(r)
		step(t, r, 2, &heard)
		step(t, r, 3, &MsgHeard{Asked: 7})
		var forgot *ForgotError
		if !errors.As(r.Forgot(), &forgot) || forgot.Here != (Progress{Voter: 1, Boot: 7, Saved: 40}) || forgot.Heard.Boot != heard.Boot {
			t.Fatalf("%s: %v", name, r.Forgot())
		}
		rd := r.Ready()
		if len(rd.Records) != 1 || rd.Records[0].Forgot == nil || len(rd.Messages) != 0 {
			t.Fatalf("%s: it does %+v", name, rd)
		}
		r.Saved(rd.Seq)
		again := starter(t, 9, 41, rd.Records...)
		step(t, again, 2, &MsgHeard{Asked: 9})
		step(t, again, 3, &MsgHeard{Asked: 9})
		if again.Votes() || again.Forgot() == nil {
			t.Errorf("%s: it votes after another start", name)
		}
	}
}

// Two processes with one directory: the one that hears of the other stops, in
// the middle of its work.
func TestHearsOfItself(t *testing.T) {
	r := starter(t, 1, 0)
	step(t, r, 2, &MsgHeard{Asked: 1})
	step(t, r, 3, &MsgHeard{Asked: 1})
	said(r)
	r.Set(1, "k", nil, false)
	said(r)
	r.Hear(2, 1, []Progress{{Voter: 1, Boot: 1, Saved: 1}})
	if r.Forgot() != nil {
		t.Fatal("it takes its own first record for another's")
	}
	r.Hear(2, 1, []Progress{{Voter: 1, Boot: 1, Saved: 2}})
	if r.Forgot() == nil {
		t.Fatal("others have heard of a record that it has not written, and it goes on")
	}
	mustSay(t, r)
}

// A save of nothing but what was heard is not told, or each would be news to the
// others, whose saves would be news again.
func TestNotesAreNotNews(t *testing.T) {
	r, err := New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Hear(2, 1, []Progress{{Voter: 2, Boot: 1, Saved: 7}})
	r.Tick()
	said(r)
	if p := r.Progress(); r.Status().Saved != 1 || p[len(p)-1].Saved != 0 {
		t.Errorf("it has saved %d and tells %v", r.Status().Saved, p)
	}
	r.Hear(2, 1, []Progress{{Voter: 2, Boot: 1, Saved: 8}})
	r.Set(1, "k", nil, false)
	said(r)
	if p := r.Progress(); r.Status().Saved != 2 || p[len(p)-1].Saved != 2 {
		t.Errorf("it has saved %d and tells %v", r.Status().Saved, p)
	}
}

// A copy that is older than what its voter has said is told so, and nothing is
// taken from the voter. One that is as new may vote: then the voter gives way, and has not forgotten anything.
func TestACopyAsks(t *testing.T) {
	other, err := New(Config{Self: 2, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	voter := starter(t, 4, 50)
	step(t, voter, 2, &MsgHeard{Asked: 4})
	step(t, voter, 3, &MsgHeard{Asked: 4})
	says := []Progress{{Voter: 1, Boot: 4, Saved: 60}}
	other.Hear(1, 4, says)
	other.Hear(1, 5, nil)
	step(t, other, 1, &MsgAsk{Boot: 5, Saved: 59})
	if !other.Hear(1, 4, says) {
		t.Fatal("a copy that has forgotten takes its voter's voice away")
	}
	other.Hear(1, 5, nil)
	step(t, other, 1, &MsgAsk{Boot: 5, Saved: 60})
	other.Ready()
	if other.Hear(1, 4, says) {
		t.Fatal("both are heard")
	}
	for _, e := range other.Ready().Messages {
		voter.told, voter.next = 60, 61
		step(t, voter, 2, e.Message)
	}
	if voter.Forgot() != nil || voter.Outpaced() != 5 || voter.Votes() {
		t.Errorf("forgot: %v, outpaced by %d, votes: %v", voter.Forgot(), voter.Outpaced(), voter.Votes())
	}
	for range 2 * askFor {
		voter.Tick()
	}
	step(t, voter, 3, &MsgHeard{Asked: 4})
	voter.Hear(2, 1, nil)
	if mustSay(t, voter); voter.Votes() {
		t.Error("it votes again")
	}
}

// What is heard of voters is passed on, survives a start, and is what ASK is
// answered with; what an earlier start says after that does not count.
func TestHearsOfOthers(t *testing.T) {
	r, err := New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Hear(2, 4, []Progress{{Voter: 2, Boot: 4, Saved: 50}, {Voter: 3, Boot: 2, Saved: 70}, {Voter: 9, Boot: 1}})
	r.Hear(3, 1, []Progress{{Voter: 3, Boot: 1, Saved: 60}})
	r.Tick()
	rd := r.Ready()
	r.Saved(rd.Seq)
	r, err = New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 2, Saved: rd.Seq}, each(rd.Records))
	if err != nil {
		t.Fatal(err)
	}
	want := []Progress{{Voter: 2, Boot: 4, Saved: 50}, {Voter: 3, Boot: 2, Saved: 70}, {Voter: 1, Boot: 2, Saved: 1}} // that save was one of the start before
	if got := r.Progress(); !slices.Equal(got, want) {
		t.Errorf("it passes on %v, want %v", got, want)
	}
	if !r.Hear(2, 5, nil) {
		t.Error("a later start is not heard")
	}
	step(t, r, 2, &MsgAsk{Boot: 5, Saved: 50})
	if m := r.Ready().Messages; len(m) != 1 || *m[0].Message.(*MsgHeard) != (MsgHeard{Boot: 4, Saved: 50, Asked: 5}) {
		t.Errorf("it answers %+v", m)
	}
	if r.Hear(2, 4, []Progress{{Voter: 2, Boot: 4, Saved: 51}}) {
		t.Error("an earlier start is heard after a later one has asked")
	}
}
