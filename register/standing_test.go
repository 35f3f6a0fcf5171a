package register

import (
	"fmt"
	"testing"
)

// A restored voter could vote without the one that remembers, and has saved many
// records since. That one comes back and says what it heard of an earlier start.
func TestHearsOfAnEarlierStartWhileItVotes(t *testing.T) {
	r := starter(t, 6, 50) // boot 5 had told 100
	step(t, r, 2, &MsgHeard{Boot: 5, Saved: 50, Asked: 6})
	for range askFor {
		r.Tick()
	}
	if !r.Votes() {
		t.Fatal("it does not vote with a read quorum")
	}
	for i := range 60 {
		r.Set(Op(i), fmt.Sprint(i), nil, false)
		said(r)
	}
	r.Hear(3, 1, []Progress{{Voter: 1, Boot: 5, Saved: 100}})
	if r.Forgot() == nil {
		t.Fatalf("it began after record 50, an earlier start told 100, and it goes on (saved %d)", r.Status().Saved)
	}
}

// The same by an answer to ASK that comes late.
func TestALateAnswerCounts(t *testing.T) {
	r := starter(t, 6, 50)
	step(t, r, 2, &MsgHeard{Boot: 5, Saved: 50, Asked: 6})
	for range askFor {
		r.Tick()
	}
	step(t, r, 3, &MsgHeard{Boot: 5, Saved: 100, Asked: 6})
	if r.Forgot() == nil {
		t.Fatal("who answers after ten ticks is not listened to")
	}
	own := starter(t, 6, 50)
	step(t, own, 2, &MsgHeard{Boot: 5, Saved: 50, Asked: 6})
	for range askFor {
		own.Tick()
	}
	for i := range 60 {
		own.Set(Op(i), fmt.Sprint(i), nil, false)
		said(own)
	}
	step(t, own, 3, &MsgHeard{Boot: 6, Saved: 100, Asked: 6}) // what this start has said meanwhile
	if own.Forgot() != nil {
		t.Fatal("a false alarm")
	}
}

// While it asks, a voter notes what it hears of others. These saves must not make
// its next start believe that it has more of what was promised.
func TestNotesWhileAskingHideNothing(t *testing.T) {
	seq := Seq(50) // the directory was put back: boot 5 had told 100
	r := starter(t, 6, seq)
	var note []Record
	for i := range 60 { // one peer is there, no quorum
		r.Hear(2, 1, []Progress{{Voter: 2, Boot: 1, Saved: Seq(i + 1)}})
		r.Tick()
		if rd := r.Ready(); rd.Seq != 0 {
			seq, note = rd.Seq, rd.Records
			r.Saved(rd.Seq)
		}
	}
	if r.Votes() {
		t.Fatal("it votes")
	}
	again := starter(t, 7, seq, note...)
	step(t, again, 2, &MsgHeard{Boot: 5, Saved: 100, Asked: 7})
	step(t, again, 3, &MsgHeard{Boot: 5, Saved: 100, Asked: 7})
	if again.Forgot() == nil || again.Votes() {
		t.Fatalf("both others have heard of record 100 of boot 5, it had 50 and %d after notes alone: votes %v", seq, again.Votes())
	}
}

// The directory was put back to before two starts or more: its boot is lower than
// one that has spoken to a voter that is still running. It must be told.
func TestALowerBootIsAnswered(t *testing.T) {
	b, err := New(Config{Self: 2, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Hear(1, 5, []Progress{{Voter: 1, Boot: 5, Saved: 100}})
	a := starter(t, 3, 50)
	a.Tick()
	for _, e := range a.Ready().Messages {
		if b.Hear(1, 3, nil) {
			step(t, b, 1, e.Message)
		}
	}
	for _, e := range b.Ready().Messages {
		step(t, a, 2, e.Message)
	}
	if a.Forgot() == nil {
		t.Fatalf("voter 2 has heard of boot 5, voter 1 asks as boot 3 and is never answered; awaits %b", a.Awaits())
	}
}

// Clients that read at a voter that asks, and give up, leave nothing behind.
func TestReadsWhileAskingLeaveNothing(t *testing.T) {
	r := starter(t, 6, 50)
	for i := range 1000 {
		r.Get(Op(i), fmt.Sprint(i))
		r.Ready()
		r.Drop(Op(i))
		if i%100 == 99 {
			r.Tick()
		}
	}
	r.Tick()
	r.Ready()
	if len(r.opening) > 10 || len(r.active) > 10 {
		t.Fatalf("%d rounds and %d registers are kept", len(r.opening), len(r.active))
	}
}

// A save that never ends, as of a disk that hangs.
func TestAHungSaveDoesNotFillTheMemory(t *testing.T) {
	r, err := New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	step(t, r, 2, &MsgWrite{Key: "k", Write: Write{Tag: Tag{TS: 9, Owner: 2}}})
	r.Ready() // is never answered
	for i := range 300_000 {
		step(t, r, 2, &MsgRead{Key: "k", Round: Round{Boot: 1, Count: uint64(i)}})
		if i%1000 == 0 {
			r.Tick()
			r.Ready()
		}
	}
	if n := len(r.held) + len(r.waiting); n > 100_000 {
		t.Fatalf("%d answers wait", n)
	}
}

// Who remembers an earlier start better than the voter itself goes on to say so,
// whatever that voter says first.
func TestEvidenceIsKept(t *testing.T) {
	r, err := New(Config{Self: 2, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Hear(1, 5, []Progress{{Voter: 1, Boot: 5, Saved: 100}})
	r.Hear(1, 6, []Progress{{Voter: 1, Boot: 6, Saved: 60}})
	if p := r.Progress()[0]; p != (Progress{Voter: 1, Boot: 5, Saved: 100}) {
		t.Errorf("it passes on %v", p)
	}
}
