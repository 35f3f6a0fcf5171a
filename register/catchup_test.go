package register

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// pull lets voter to take from voter from what it lacks of keys, and returns how many
// those were.
func (tr *trio) pull(t *testing.T, to, from Voter, keys []string) (taken int) {
	t.Helper()
	var lacks []string
	for _, s := range tr.sites[from].Show(keys) {
		if tr.sites[to].Lacks(s) {
			lacks = append(lacks, s.Key)
		}
	}
	for _, m := range tr.sites[from].Catchup(lacks) {
		step(t, tr.sites[to], from, m)
	}
	tr.settle()
	return len(lacks)
}

// A voter that was away has all that it missed after catching up, with its
// marks: nothing is left to be read, and nothing is pulled twice.
func TestCatchesUp(t *testing.T) {
	tr := newTrio(t)
	var keys []string
	for i := range 300 {
		keys = append(keys, fmt.Sprintf("k%03d", i))
	}
	for i, key := range keys {
		tr.set(Voter(1+i%3), key, []byte("before"))
	}
	tr.settle()
	away := tr.sites[3]
	tr.down = 3
	for i, key := range keys[:200] {
		tr.set(Voter(1+i%2), key, []byte("after"))
	}
	tr.settle()
	tr.down = 0
	if away.Digests() == tr.sites[1].Digests() {
		t.Fatal("the digests do not see that a voter was away")
	}
	if n := tr.pull(t, 3, 1, keys); n != 200 {
		t.Errorf("it pulled %d keys, and missed 200", n)
	}
	for _, key := range keys[:200] {
		if l := away.Peek(key); string(l.Value) != "after" || l.Newer {
			t.Fatalf("%s: %+v", key, l)
		}
	}
	if s := away.Status(); s.Unsettled != 0 || s.Active != 0 {
		t.Errorf("what it caught up on is not at rest: %+v", s)
	}
	if away.Digests() != tr.sites[1].Digests() || away.Digests() != tr.sites[2].Digests() {
		t.Error("the digests differ after catching up")
	}
	if n := tr.pull(t, 3, 1, keys) + tr.pull(t, 3, 2, keys) + tr.pull(t, 1, 3, keys); n != 0 {
		t.Errorf("%d keys were pulled though nothing was lacking", n)
	}
}

// What is not settled, or not durable, is neither pulled nor shown as such.
func TestCatchupLeavesOut(t *testing.T) {
	r, err := New(Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := Write{Tag: Tag{TS: 5, Owner: 2}, Value: []byte("v")}
	step(t, r, 2, &MsgWrite{Key: "k", Write: w})
	said(r)
	if s := r.Show([]string{"k"}); s[0].Settled() || len(r.Catchup([]string{"k"})) != 0 {
		t.Errorf("an undecided write is shown as %+v", s)
	}
	w.Decided = true
	step(t, r, 2, &MsgForward{Key: "new", Write: w})
	if s := r.Show([]string{"new"}); s[0].Settled() || len(r.Catchup([]string{"new"})) != 0 {
		t.Errorf("an unsaved write is shown as %+v", s)
	}
	covers := r.Covers()
	said(r)
	if r.Status().Saved < covers {
		t.Errorf("saved up to %d, and it was covered by %d", r.Status().Saved, covers)
	}
	if s := r.Show([]string{"new", "none"}); !s[0].Settled() || s[1] != (Shown{Key: "none", Decided: true, Held: true}) {
		t.Errorf("shown: %+v", s)
	}
	if err := r.Step(2, &MsgCatchup{Key: "k", Write: Write{Tag: w.Tag}}); err == nil {
		t.Error("CATCHUP of what is not settled was taken")
	}
}

// Two voters with one version and two contents differ in their digests, in that bucket only.
func TestDigestsSeeContents(t *testing.T) {
	make := func(value string) *Replica {
		r := alone(t)
		for _, key := range []string{"a", "b", "c"} {
			w := Write{Tag: Tag{TS: 1, Owner: 1}, Value: []byte("same"), Decided: true}
			if key == "b" {
				w.Value = []byte(value)
			}
			if err := r.load(&Record{Key: key, Cur: w, Readable: true}, newLoaded(0)); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	x, y := make("one"), make("other")
	var differ []int
	for p := range Partitions {
		a, b := x.BucketDigests(p), y.BucketDigests(p)
		for i := range a {
			if a[i] != b[i] {
				differ = append(differ, p*Buckets+i)
			}
		}
	}
	if want := Partition("b")*Buckets + Bucket("b"); !slices.Equal(differ, []int{want}) {
		t.Errorf("buckets %v differ, want %d", differ, want)
	}
}

// A key that at rest is read again brings the later of two versions to both.
func TestReread(t *testing.T) {
	tr := newTrio(t)
	tr.set(1, "k", []byte("old"))
	tr.settle()
	away := tr.sites[3]
	tr.down = 3
	tr.set(1, "k", []byte("new"))
	tr.settle()
	tr.down = 0
	away.Reread("k")
	tr.settle()
	if l := away.Peek("k"); string(l.Value) != "new" || away.Status().Active != 0 {
		t.Errorf("%+v, %+v", l, away.Status())
	}
}

// A write of its own that is pending teaches a voter nothing when it catches up with one that knows it to
// be settled. So it counts as not settled, from when others may have it, and after a crash before it is taken up.
func TestUnsettledHasTheOwnPendingWrite(t *testing.T) {
	cfg := Config{Self: 1, Voters: []Voter{1, 2, 3}, Boot: 1}
	r, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Set(1, "k", []byte("v"), false)
	rd := r.Ready()
	if got := maps.Collect(r.Unsettled()); len(got) > 0 {
		t.Errorf("before it is saved there is %v", got)
	}
	r.Saved(rd.Seq)
	w := rd.Records[0].Pending.Write
	step(t, r, 2, &MsgCatchup{Key: "k", Held: true, Write: w})
	if got := maps.Collect(r.Unsettled()); got["k"] != w.Tag || r.Knows("k", w.Tag) {
		t.Errorf("%v is pending, and there is %v", w.Tag, got)
	}
	cfg.Boot, cfg.Saved, cfg.Ask = 2, rd.Seq, true
	r, err = New(cfg, each(rd.Records))
	if err != nil {
		t.Fatal(err)
	}
	if got := maps.Collect(r.Unsettled()); r.Votes() || got["k"] != w.Tag {
		t.Errorf("%v is to be taken up, and there is %v", w.Tag, got)
	}
}
