package agent

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
	"gus/membership"
)

// token asks s for a token.
func (s *testSite) token() string {
	s.w.t.Helper()
	r := s.ask(s.w.t.Context(), "POST", tokenPath, "30s", "")
	var t client.Token
	if err := json.Unmarshal([]byte(r.body), &t); err != nil || r.err() != nil || t.Lifetime != 3600 {
		s.w.t.Fatalf("token: %d %q: %v", r.status, r.body, err)
	}
	return t.Token
}

// join joins s by a token, from its address.
func (s *testSite) join(token string) error {
	conn := s.w.plug(s)
	_, err := membership.Join(s.w.t.Context(), membership.Joining{Data: s.data(), Name: s.name, Token: token, Conn: conn, Lookup: s.w.lookup})
	return errors.Join(err, conn.Close(), s.net.Close())
}

// found founds the world's cluster at its first site, and has the others join
// by a token. All run then.
func (w *world) found() {
	w.t.Helper()
	var names []string
	for _, s := range w.sites {
		names = append(names, s.name)
	}
	if _, err := Init(w.sites[0].data(), names[0], names); err != nil {
		w.t.Fatal(err)
	}
	w.sites[0].start()
	token := w.sites[0].token()
	for _, s := range w.sites[1:] {
		if err := s.join(token); err != nil {
			w.t.Fatal(err)
		}
		s.start()
	}
	w.await(func() bool { return w.connected(len(w.sites)) })
}

// move starts a site that is stopped at another address.
func (s *testSite) move(n int) {
	s.addr = address(n)
	s.restart()
}

func TestSitesFindEachOther(t *testing.T) {
	inEmptyWorld(t, []string{"site-a", "site-b", "site-c"}, func(w *world) {
		w.found()
		a, c := w.sites[0], w.sites[2]
		w.want(a.set("app/port", "8080"), "")
		w.want(c.get("app/port"), "8080")

		// One moves: the others are told by itself.
		c.kill()
		c.move(33)
		w.await(func() bool { return w.connected(3) })
		w.want(c.get("app/port"), "8080")
		w.await(func() bool { return a.member("site-c").Address == "1.0.0.33:7487" })

		// All stop, and start in every order where they were.
		for i, order := range orders(3) {
			for _, s := range w.sites {
				s.kill()
			}
			time.Sleep(time.Duration(i) * 40 * time.Second) // also longer than gossip remembers
			for _, at := range order {
				w.sites[at].restart()
				time.Sleep(time.Duration(i) * time.Second)
			}
			w.await(func() bool { return w.connected(3) })
			w.want(w.sites[order[0]].get("app/port"), "8080")
		}
	})
}

// All stop and start at addresses where none has ever been, in any order. One
// name that leads to where they are, which is known to none of them at first, is
// enough; one that leads nowhere is in nobody's way.
func TestAllMoveAtOnce(t *testing.T) {
	inEmptyWorld(t, []string{"site-a", "site-b", "site-c"}, func(w *world) {
		w.found()
		w.want(w.sites[0].set("app/port", "8080"), "")
		for _, s := range w.sites {
			s.seeds = []string{"nowhere.example:7487", "sites.example:7487"}
		}
		for i, order := range orders(3) {
			for _, s := range w.sites {
				s.kill()
			}
			w.name("sites.example")
			for k, at := range order {
				w.sites[at].move(50 + 10*i + k)
			}
			time.Sleep(20 * time.Second)
			w.name("sites.example", w.sites[order[i%3]].addr.AddrPort().Addr())
			w.await(func() bool { return w.connected(3) })
			w.want(w.sites[order[2]].get("app/port"), "8080")
		}
	})
}

// name makes a name lead to addresses, or to none.
func (w *world) name(host string, ips ...netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[host] = ips
}

// member returns what s says of a site.
func (s *testSite) member(name string) client.Member {
	all := s.status().Members
	i := slices.IndexFunc(all, func(m client.Member) bool { return m.Name == name })
	if i < 0 {
		s.w.t.Fatalf("%s is not among %+v", name, all)
	}
	return all[i]
}

// orders returns all orders of n.
func orders(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, o := range orders(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(o), at, n-1))
		}
	}
	return all
}

// A site that joins through one that is not the founding one is let in by the
// founding one.
func TestATokenIsRedeemedAnywhere(t *testing.T) {
	inEmptyWorld(t, []string{"site-a", "site-b", "site-c"}, func(w *world) {
		a, b, c := w.sites[0], w.sites[1], w.sites[2]
		if _, err := Init(a.data(), "site-a", []string{"site-a", "site-b", "site-c"}); err != nil {
			t.Fatal(err)
		}
		a.start()
		if err := b.join(a.token()); err != nil {
			t.Fatal(err)
		}
		b.start()
		w.await(func() bool { return w.connected(2) })
		token := b.token()
		w.cutOff(a, true)
		if err := c.join(token); !errors.Is(err, membership.ErrFounderAway) {
			t.Errorf("while the founding site is away: %v", err)
		}
		w.cutOff(a, false)
		w.await(func() bool { return w.connected(2) })
		if err := c.join(token); err != nil {
			t.Fatal(err)
		}
		c.start()
		w.await(func() bool { return w.connected(3) })
		c.kill()
		if err := c.join(token); !errors.Is(err, membership.ErrHasIdentity) {
			t.Errorf("joining again over an identity: %v", err)
		}
	})
}

func TestWhatInitAndJoinRefuse(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a")
	f, err := Init(a, "site-a", []string{"site-b", "site-a"})
	if err != nil || f.Site != "site-a" || len(f.Cluster) != 32 || !strings.HasPrefix(f.Advice, "2 voters") {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := os.Stat(f.CAKey); err != nil {
		t.Error(err)
	}
	if _, err := Init(a, "site-a", []string{"site-a"}); !errors.Is(err, client.ErrRefused) {
		t.Errorf("over an identity: %v", err)
	}
	if _, err := Join(t.Context(), Joining{Data: filepath.Join(dir, "b"), Name: "site-b", Token: "gus1-nonsense"}); !errors.Is(err, client.ErrRefused) {
		t.Errorf("a damaged token: %v", err)
	}
	if _, err := Join(t.Context(), Joining{Data: filepath.Join(dir, "b"), Name: "site-b", Listen: "nowhere"}); err == nil || errors.Is(err, client.ErrRefused) {
		t.Errorf("an address that cannot be: %v", err)
	}
}

// A voter that has lost its database must not begin with an empty one.
func TestALostDatabase(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ir := w.sites[2]
		w.want(ir.set("k", "v"), "")
		ir.kill()
		kept := filepath.Join(w.dir, "kept")
		if err := os.Rename(filepath.Join(ir.data(), databaseFile), kept); err != nil {
			t.Fatal(err)
		}
		_, err := open(Config{Data: ir.data(), Conn: w.plug(ir)})
		if !errors.Is(err, ErrDatabaseGone) || !strings.Contains(err.Error(), "mount its disk") {
			t.Errorf("it starts: %v", err)
		}
		if err := ir.net.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(ir.data(), databaseFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("there is a new one: %v", err)
		}
		if err := os.Rename(kept, filepath.Join(ir.data(), databaseFile)); err != nil {
			t.Fatal(err)
		}
		ir.restart()
		w.await(func() bool { return w.connected(3) })
		w.want(ir.get("k"), "v")
	})
}
