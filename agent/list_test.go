package agent

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gus/agent/client"
	"gus/register"
)

// keysOf collects a listing by the client.
func (d *door) keysOf(l client.Listing) (keys []string) {
	d.t.Helper()
	for e, err := range d.client.List(d.t.Context(), l) {
		if err != nil {
			d.t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	return keys
}

func TestOddKeysAreListed(t *testing.T) {
	d := newDoor(t)
	want := []string{
		" ", "!?&=#%25", `"quoted"`, "..", "/", "//", "50%", "<b>&amp;</b>", "a", "a b", "a+b", "a/", "a/b", `back\slash`,
		"été", "\u2028", "\ufffd", "🦬", strings.Repeat("x", register.MaxKey),
	}
	for i, key := range want {
		if _, err := d.client.Set(t.Context(), key, make([]byte, i)); err != nil {
			t.Fatal(key, err)
		}
	}
	if _, err := d.client.Delete(t.Context(), "a b"); err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(k string) bool { return k == "a b" })
	slices.Sort(want)
	for _, local := range []bool{false, true} {
		if got := d.keysOf(client.Listing{Local: local}); !slices.Equal(got, want) {
			t.Errorf("local %v: %q\nwant %q", local, got, want)
		}
		for _, prefix := range []string{"a", "a/", " ", "/", "<", "é", "\u2028", `"`, "nothing"} {
			of := slices.DeleteFunc(slices.Clone(want), func(k string) bool { return !strings.HasPrefix(k, prefix) })
			if got := d.keysOf(client.Listing{Prefix: prefix, Local: local}); !slices.Equal(got, of) {
				t.Errorf("local %v, below %q: %q, want %q", local, prefix, got, of)
			}
		}
		if got := d.keysOf(client.Listing{Prefix: "a", After: "a/", Local: local}); !slices.Equal(got, []string{"a/b"}) && !slices.Equal(got, []string{"a+b", "a/b"}) {
			t.Errorf("after a/: %q", got)
		}
	}
}

func TestWhatAnEntrySays(t *testing.T) {
	d := newDoor(t)
	begin := time.Now().Truncate(time.Millisecond)
	set, err := d.client.Set(t.Context(), "app/port", []byte("8080"))
	if err != nil {
		t.Fatal(err)
	}
	for _, local := range []bool{false, true} {
		for e, err := range d.client.List(t.Context(), client.Listing{Local: local}) {
			if err != nil {
				t.Fatal(err)
			}
			want := client.Entry{Key: "app/port", Version: set.Version, Size: 4, Writer: "solo", Time: e.Time}
			if e != want || e.Time.Before(begin) || e.Time.Location() != time.UTC {
				t.Errorf("%+v, want %+v, not before %v", e, want, begin)
			}
		}
	}
}

// A listing goes on where the page before ended, as it may with curl.
func TestPagesOfAListing(t *testing.T) {
	d := newDoor(t)
	for i := range 10 {
		if _, err := d.client.Set(t.Context(), fmt.Sprintf("k%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, local := range []string{"", "&local=true", "&local=false"} {
		var sizes []int
		for after, more := "", true; more; more = after != "" {
			resp, body := d.raw("GET /v1/kv?prefix=k&limit=4&after=" + after + local + " HTTP/1.1\r\nHost: x\r\n\r\n")
			var p client.Page
			if err := json.Unmarshal([]byte(body), &p); err != nil || resp.StatusCode != 200 {
				t.Fatalf("%d %q: %v", resp.StatusCode, body, err)
			}
			sizes, after = append(sizes, len(p.Entries)), p.Next
		}
		if !slices.Equal(sizes, []int{4, 4, 2}) {
			t.Errorf("pages of %v keys", sizes)
		}
	}
}

// A listing is linearizable: it shows what this voter has never heard of, and
// says that there is no quorum rather than show less.
func TestAListingAsksAQuorum(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		w.want(ca.set("app/old", "1"), "")
		w.await(func() bool { return ir.local("app/old").body == "1" })
		w.cutOff(ir, true)
		w.want(ca.set("app/new", "22"), "")
		w.want(ca.ask(w.t.Context(), "DELETE", kvPath+"app/old", "5s", ""), "")
		if p := ir.page("prefix=app/&local=true"); len(p.Entries) != 1 || p.Entries[0].Key != "app/old" {
			t.Errorf("what ir knows: %+v", p)
		}
		w.fails(ir.ask(w.t.Context(), "GET", "/v1/kv?prefix=app/", "2s", ""), client.ErrNoQuorum, "nothing changed")
		w.cutOff(ir, false)
		w.await(func() bool { return w.connected(3) })
		p := ir.page("prefix=app/")
		if len(p.Entries) != 1 || p.Entries[0].Key != "app/new" || p.Entries[0].Size != 2 || p.Entries[0].Writer != "ca" {
			t.Errorf("what there is: %+v", p)
		}
	})
}

// A page of the largest size passes between sites.
func TestAListingOfManyKeys(t *testing.T) {
	inWorld(t, three, func(w *world) {
		const n = register.MaxPage + 300
		var wg sync.WaitGroup
		for from := range 10 {
			wg.Go(func() {
				for i := from; i < n; i += 10 {
					if r := w.sites[i%3].set(fmt.Sprintf("key/%0100d", i), "v"); r.err() != nil {
						t.Error(r.body)
					}
				}
			})
		}
		wg.Wait()
		count := 0
		for after, more := "", true; more; more = after != "" {
			p := w.sites[1].page("after=" + url.QueryEscape(after))
			for _, e := range p.Entries {
				if want := fmt.Sprintf("key/%0100d", count); e.Key != want {
					t.Fatalf("%q in place of %q", e.Key, want)
				}
				count++
			}
			after = p.Next
		}
		if count != n {
			t.Errorf("%d keys, want %d", count, n)
		}
	})
}

// page asks for one page of a listing.
func (s *testSite) page(query string) client.Page {
	s.w.t.Helper()
	r := s.ask(s.w.t.Context(), "GET", listPath+"?"+query, "5s", "")
	var p client.Page
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || r.err() != nil {
		s.w.t.Fatalf("%d %q: %v", r.status, r.body, err)
	}
	return p
}
