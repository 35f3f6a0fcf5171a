package register

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// list has a client at v list everything, page by page.
func (t *trio) list(tb testing.TB, v Voter, prefix string, limit int) (keys []string, pages int) {
	tb.Helper()
	for after := ""; ; {
		t.op++
		op := t.op
		t.sites[v].List(op, prefix, after, limit)
		t.settle()
		i := slices.IndexFunc(t.done, func(res Result) bool { return res.Op == op })
		if i < 0 {
			tb.Fatalf("voter %d: the listing of %q after %q has no result", v, prefix, after)
		}
		res := t.done[i]
		if len(res.Entries) > 2*limit {
			tb.Fatalf("a page of %d keys", len(res.Entries))
		}
		for _, e := range res.Entries {
			keys = append(keys, e.Key)
		}
		pages++
		if after = res.Next; after == "" {
			return keys, pages
		}
	}
}

// A listing at any voter has all keys, those too that this voter never heard
// of, without those that are deleted, in order and once each.
func TestList(t *testing.T) {
	tr := newTrio(t)
	var want []string
	for i := range 300 {
		tr.down = Voter(1 + i%3) // one voter misses each of them
		key := fmt.Sprintf("app/%03d", i)
		tr.set(Voter(1+(i+1)%3), key, []byte("v"))
		tr.settle()
		if i%5 == 0 {
			tr.down = Voter(1 + (i+1)%3)
			tr.op++
			tr.sites[1+i%3].Set(tr.op, key, nil, true)
			tr.settle()
		} else {
			want = append(want, key)
		}
	}
	tr.down = 0
	tr.set(1, "app", nil)
	tr.set(2, "apq", nil)
	tr.settle()
	for v := Voter(1); v <= 3; v++ {
		for _, limit := range []int{7, 100, 1000} {
			got, pages := tr.list(t, v, "app/", limit)
			if !slices.Equal(got, want) {
				t.Errorf("voter %d, pages of %d: %d keys, want %d", v, limit, len(got), len(want))
			}
			if limit == 1000 && pages != 1 {
				t.Errorf("voter %d: %d pages", v, pages)
			}
		}
		if got, _ := tr.list(t, v, "app", 1000); len(got) != len(want)+1 || got[0] != "app" {
			t.Errorf("voter %d: the prefix itself is a key: %d keys", v, len(got))
		}
		if got, _ := tr.list(t, v, "nothing", 1000); len(got) != 0 {
			t.Errorf("voter %d: %v", v, got)
		}
	}
}

// Where a read quorum shows the same, a listing takes one round trip and reads
// nothing.
func TestListInOneRound(t *testing.T) {
	tr := newTrio(t)
	for i := range 10 {
		tr.set(2, fmt.Sprintf("k%d", i), nil)
	}
	tr.settle()
	tr.hold = KindRead
	if got, _ := tr.list(t, 1, "", 100); len(got) != 10 || len(tr.held) != 0 {
		t.Errorf("%d keys, %d READs", len(got), len(tr.held))
	}
	if last := tr.done[len(tr.done)-1]; last.RoundTrips != 1 || last.Entries[0].Tag.Owner != 2 {
		t.Errorf("%+v", last)
	}
}

// A listing that is dropped leaves nothing, nor do the reads that only it waited for.
func TestDropList(t *testing.T) {
	tr := newTrio(t)
	tr.down = 3
	tr.set(2, "k", nil)
	tr.settle()
	tr.down, tr.hold = 0, KindAckRead
	tr.op++
	tr.sites[3].List(tr.op, "", "", 10)
	tr.settle()
	if s := tr.sites[3].Status(); s.Reads != 2 {
		t.Fatalf("%+v: want the listing and a read of its", s)
	}
	if tr.sites[3].Drop(tr.op) {
		t.Error("a listing changes nothing")
	}
	if s := tr.sites[3].Status(); s.Reads != 0 {
		t.Errorf("%+v", s)
	}
}

// PeekList shows what is settled here, as Peek does, and asks nobody.
func TestPeekList(t *testing.T) {
	tr := newTrio(t)
	var want []string
	for i := range 25 {
		key := fmt.Sprintf("app/%02d", i)
		tr.set(2, key, []byte("v"))
		if i%5 == 0 {
			tr.settle()
			tr.op++
			tr.sites[2].Set(tr.op, key, nil, true)
		} else {
			want = append(want, key)
		}
	}
	tr.set(1, "app", []byte("itself"))
	tr.set(1, "apq", nil)
	tr.settle()
	tr.down = 3
	tr.set(1, "app/unheard", nil) // voter 3 never heard of it
	tr.settle()
	r := tr.sites[3]
	for _, limit := range []int{1, 7, MaxPage} {
		var got []string
		for after, more := "", true; more; more = after != "" {
			entries, next := r.PeekList("app/", after, limit)
			if len(entries) > limit || next != "" && next <= after {
				t.Fatalf("pages of %d: %d keys, from %q to %q", limit, len(entries), after, next)
			}
			for _, e := range entries {
				if l := r.Peek(e.Key); e.Tag != l.Tag || e.Size != len(l.Value) || !l.Found {
					t.Errorf("%+v, Peek shows %+v", e, l)
				}
				got = append(got, e.Key)
			}
			after = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v", limit, got)
		}
	}
	if entries, _ := r.PeekList("app", "", 1); len(entries) != 1 || entries[0].Key != "app" || entries[0].Size != 6 {
		t.Errorf("the prefix itself is a key: %+v", entries)
	}
	if entries, next := r.PeekList("app", "app", 1); len(entries) != 0 || next != "app/00" {
		t.Errorf("after it, a deleted key: %+v, %q", entries, next)
	}
}

func TestPagesAreChecked(t *testing.T) {
	entry := func(keys ...string) (out []Entry) {
		for _, k := range keys {
			out = append(out, Entry{Key: k})
		}
		return out
	}
	for name, m := range map[string]*MsgAckList{
		"a key twice":        {Entries: entry("a", "a")},
		"out of order":       {Entries: entry("b", "a")},
		"an empty key":       {Entries: entry("")},
		"a tag of nobody":    {Entries: []Entry{{Key: "a", Tag: Tag{TS: 1}}}},
		"too many":           {Entries: make([]Entry, MaxPage+1)},
		"next is elsewhere":  {Entries: entry("a", "b"), Next: "a"},
		"next after nothing": {Next: "a"},
	} {
		var invalid *InvalidError
		if err := newTrio(t).sites[1].Step(2, m); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
