package membership

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gus/quic"
)

// joinObserver has an observer ask from a host of its own.
func (w *world) joinObserver(data, name, token string) (Joined, error) {
	w.t.Helper()
	conn, unplug := w.socket(addr(99))
	defer unplug()
	defer conn.Close()
	return Join(w.t.Context(), Joining{Data: filepath.Join(w.dir, data), Name: name, Token: token, Observer: true, Conn: conn, Lookup: w.lookup})
}

// at is the token with another site to ask.
func at(t *testing.T, token string, host int) string {
	t.Helper()
	p, err := ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	p.Addresses = []string{addr(host).String()}
	return p.String()
}

// Any token lets observers in, under any name that is free and no voter's, at any site.
func TestJoiningAsAnObserver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b", "c")
		token := a.token(time.Hour, 1)
		got, err := w.joinObserver("kiosk", "kiosk", token)
		if err != nil || got.Site.Role != quic.RoleObserver || got.Site.Number != 0 || got.Via.Name != "a" {
			t.Fatalf("%+v: %v", got, err)
		}
		kiosk := w.run("kiosk", 3) // it needs no seed
		w.until("they see each other", func() bool { return a.sees("kiosk", StateAlive) && kiosk.sees("a", StateAlive) })

		// Through an observer, who passes it on as a voter does, and whom nobody dials.
		if got, err = w.joinObserver("lamp", "lamp", at(t, token, 3)); err != nil || got.Via.Name != "kiosk" {
			t.Fatalf("%+v: %v", got, err)
		}
		peers := read(t, filepath.Join(w.dir, "lamp", peersFile))
		if !strings.Contains(peers, `"a"`) || strings.Contains(peers, "kiosk") {
			t.Errorf("lamp is told of %s", peers)
		}
		lamp := w.run("lamp", 4)
		w.until("they see each other", func() bool { return a.sees("lamp", StateAlive) && lamp.sees("a", StateAlive) })
		if _, err := w.join("b", at(t, token, 4)); err != nil {
			t.Errorf("a voter, by the same token, through an observer: %v", err)
		}
		if _, err := kiosk.admission.NewToken(t.Context(), []string{"x:1"}, time.Hour); err == nil || !strings.Contains(err.Error(), "run `gus token` at a or b or c") {
			t.Errorf("an observer's token: %v", err)
		}
	})
}

// An observer's name is of one key, as a voter's is, and is not a voter's.
func TestWhoMayNotJoinAsAnObserver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b", "c")
		token := a.token(time.Hour, 1)
		for range 2 {
			if _, err := w.joinObserver("kiosk", "kiosk", token); err != nil {
				t.Fatal(err)
			}
			// As if the answer had not arrived.
			dir := filepath.Join(w.dir, "kiosk", IdentityDir)
			if err := os.Rename(dir, dir+".joining"); err != nil {
				t.Fatal(err)
			}
		}
		before := len(a.admission.signer.names.keys)
		for _, c := range []struct {
			name string
			want error
			says string
		}{
			{"kiosk", ErrNameTaken, "kiosk has joined already"},
			{"a", ErrVotersName, "a votes, as do a, b, c"},
			{"b", ErrVotersName, "without --observer"}, // who has not joined yet
			{"Kiosk", nil, "site name"},
		} {
			_, err := w.joinObserver("x", c.name, token)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || strings.Contains(text(err), "\n") {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			mustContain(t, c.name, text(err), c.says)
		}
		if _, err := w.join("kiosk", token); !errors.Is(err, ErrNotVoter) {
			t.Errorf("an observer's name for a voter: %v", err)
		}
		if exists(filepath.Join(w.dir, "x", IdentityDir)) || len(a.admission.signer.names.keys) != before {
			t.Error("somebody has a name or an identity now")
		}
		if _, err := w.join("b", token); err != nil {
			t.Errorf("the voter: %v", err)
		}
	})
}

func TestObserversHaveALimit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b")
		token := a.token(time.Hour, 1)
		s := a.admission.signer
		s.mu.Lock()
		for i := range maxObservers - 1 {
			s.names.keys[fmt.Sprintf("o%d", i)] = make([]byte, ed25519.PublicKeySize)
		}
		s.mu.Unlock()
		if _, err := w.joinObserver("last", "last", token); err != nil {
			t.Fatal(err)
		}
		if _, err := w.joinObserver("more", "more", token); !errors.Is(err, ErrManyObservers) || !strings.Contains(text(err), "1000") {
			t.Errorf("one more: %v", err)
		}
		dir := filepath.Join(w.dir, "last", IdentityDir)
		if err := os.Rename(dir, dir+".joining"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.joinObserver("last", "last", token); err != nil {
			t.Errorf("one of them again: %v", err)
		}
		if _, err := w.join("b", token); err != nil {
			t.Errorf("a voter: %v", err)
		}
	})
}

// Many observers behind NAT, who reach the voters and nobody else: everybody sees
// everybody that there is to see, and goes on doing so.
func TestObserversBehindNAT(t *testing.T) {
	const observers = 45
	inWorld(t, func(t *testing.T, w *world) {
		inside := map[string]bool{}
		for i := range observers {
			inside[addr(100+i).IP.String()] = true
		}
		open := map[string]bool{} // what has been sent, inside-outside: answers pass
		strays := 0
		w.cutOff(func(from, to string) bool {
			if inside[from] && inside[to] {
				strays++
				return true
			}
			if inside[from] {
				open[from+to] = true
			}
			return inside[to] && !open[to+from]
		})
		sites := w.startAll(1)
		w.converged(sites...)
		var all []*site
		for i := range observers {
			all = append(all, w.start(identity(w, fmt.Sprintf("o%d", i), 0), 100+i, seeds(addr(1+i%3).String())))
		}
		seen := func() bool {
			for _, o := range all {
				for _, v := range sites {
					if m := o.member(v.id.Name); m.State != StateAlive || m.Address != v.addr.String() || m.Version != "v1" {
						return false
					}
					if m := v.member(o.id.Name); m.State != StateAlive || m.Role != quic.RoleObserver || m.Version != "v1" {
						return false
					}
				}
			}
			return true
		}
		w.until("all see each other", seen)
		for range 10 { // gossip gives up whom it cannot reach within two minutes
			time.Sleep(time.Minute)
			if !seen() {
				t.Fatalf("o0 sees %+v, a %+v", all[0].Members(), sites[0].Members())
			}
		}
		for _, s := range append(all, sites...) {
			if text := s.log.String(); strings.Contains(text, "gone") || strings.Contains(text, "msg=disconnected") {
				t.Errorf("%s flapped:\n%s", s.id.Name, text)
			}
		}
		if n := len(all[7].Members()); n != 4 || strays != 0 {
			t.Errorf("an observer knows %d sites, and %d packets went from observer to observer", n, strays)
		}
		for _, file := range []string{sites[0].data, all[3].data} {
			if text := read(t, filepath.Join(file, peersFile)); strings.Contains(text, `"o`) {
				t.Errorf("%s remembers where observers are: %s", file, text)
			}
		}
	}, "a", "b", "c")
}

// An observer hears where a voter has moved to, and that one is gone; of its own
// connections it needs nobody's word.
func TestWhatAnObserverHears(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(1)
		w.converged(sites...)
		o := w.start(identity(w, "kiosk", 0), 9, seeds(addr(1).String()))
		w.converged(sites[0], sites[1], sites[2], o)

		sites[2].kill()
		w.until("it is gone to all", func() bool { return o.sees("c", StateDead) && sites[0].sees("c", StateDead) })
		c := w.start(w.ids[2], 30)
		w.converged(sites[0], sites[1], c, o)

		w.cutOff(func(from, to string) bool { return from+to == o.addr.IP.String()+c.addr.IP.String() })
		w.until("others hear of c", func() bool { return o.sees("c", StateSuspect) && c.sees("kiosk", StateDead) })
		time.Sleep(10 * time.Minute)
		if !o.sees("c", StateSuspect) || !sites[0].sees("kiosk", StateAlive) {
			t.Errorf("kiosk sees %+v, a %+v", o.Members(), sites[0].Members())
		}
		w.cutOff(nil)
		w.converged(sites[0], sites[1], c, o)

		o.stop() // and remembers
		w.until("it is away", func() bool { return sites[0].sees("kiosk", StateDead) })
		for _, i := range []int{0, 1} {
			sites[i].stop()
			sites[i] = w.start(w.ids[i], 50+i, seeds(c.addr.String()))
		}
		w.converged(sites[0], sites[1], c)
		o = w.start(o.id, 10)
		w.converged(sites[0], sites[1], c, o)
	}, "a", "b", "c")
}

// Two processes with one observer's identity: all are told, and the first one stays.
func TestOneObserverTwice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], 1)
		o := w.start(identity(w, "kiosk", 0), 2, seeds(addr(1).String()))
		w.converged(a, o)
		twin := w.start(o.id, 3, seeds(addr(1).String()), func(c *Config, q *quic.Config) { c.Boot, q.Boot, c.Data = 1, 1, t.TempDir() })
		w.until("all are told", func() bool { return len(o.Conflicts()) == 1 && len(twin.Conflicts()) == 1 && len(a.Conflicts()) == 1 })
		mustContain(t, "the observer's log", o.log.String(), "another process runs", twin.addr.String())
		if m := a.member("kiosk"); m.Address != o.addr.String() || m.State != StateAlive {
			t.Errorf("a sees %+v", m)
		}
		twin.stop()
		w.until("it is forgotten", func() bool { return len(a.Conflicts())+len(o.Conflicts()) == 0 })
		o.kill()
		o = w.start(o.id, 2)
		w.converged(a, o)
		time.Sleep(time.Minute)
		if len(a.Conflicts())+len(o.Conflicts()) != 0 {
			t.Errorf("a restart is a conflict: %v, %v", a.Conflicts(), o.Conflicts())
		}
	}, "a")
}

// What an observer says on the gossip lane is not gossip, and makes nobody anything.
func TestAnObserverThatGossips(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], 1)
		x := w.raw(identity(w, "x", 0), 3)
		if _, err := x.Meet(t.Context(), addr(1).String()); err != nil {
			t.Fatal(err)
		}
		label := w.ca.Cluster().String()
		if err := x.SendDatagram("a", labelled(label, pingOf(gossipPing, "x"))); err != nil {
			t.Fatal(err)
		}
		ask := func(b []byte) ([]byte, error) {
			s, err := x.OpenStream(t.Context(), "a", PurposeGossip)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Write(b); err != nil {
				t.Fatal(err)
			}
			return quic.ReadFrame(s, maxNews)
		}
		frame := func(m meta) []byte {
			b := m.encode()
			return append([]byte{0, 0, 0, byte(len(b))}, b...)
		}
		for what, b := range map[string][]byte{
			"memberlist's stream": labelled(label, []byte{6, 0xdf, 0xff}),
			"nothing":             {},
			"a promise":           {0, 0, 1, 0},
			"too much":            {0, 0xff, 0xff, 0xff},
			"noise":               append([]byte{0, 0, 0, 5}, "hello"...),
			"a voter's number":    frame(meta{Number: 2}),
			"no address":          frame(meta{Address: "here"}),
		} {
			if got, err := ask(b); err == nil {
				t.Errorf("%s is answered: %q", what, got)
			}
		}
		if m := a.member("x"); m.Number != 0 || m.Role != quic.RoleObserver || a.sees("b", StateAlive) || x.hears() != 0 {
			t.Errorf("a sees %+v and has sent x %d packets", a.Members(), x.hears())
		}
		mustContain(t, "a's log", a.log.String(), "refused gossip", "only voters gossip", "peer=x")
		if n := strings.Count(a.log.String(), "\n"); n > 20 {
			t.Errorf("%d lines:\n%s", n, a.log)
		}
		b, err := ask(frame(meta{Version: "v9", Address: "x.example:1"}))
		var n news
		if err == nil {
			err = hints.Unmarshal(b, &n)
		}
		if err != nil || len(n.Sites) != 2 || a.member("x").Version != "v9" || a.member("x").Address != addr(3).String() {
			t.Errorf("an honest one: %+v, %v; a sees %+v", n, err, a.member("x"))
		}
	}, "a", "b")
}

// A voter that lies to an observer makes nobody a voter, and no address of what is none.
func TestAVoterThatLiesToAnObserver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := w.start(identity(w, "kiosk", 0), 2)
		before := fmt.Sprintf("%+v", o.Members())
		for _, s := range []said{
			{"x", true, meta{Number: 3, Address: "x:1"}.encode()},
			{"b", true, meta{Number: 3, Address: "x:1"}.encode()},
			{"b", true, meta{Address: "x:1"}.encode()},
			{"b", true, meta{Number: 2, Address: "\x1b[2J"}.encode()},
			{"b", true, []byte("hello")},
			{"kiosk", true, meta{Address: "x:1"}.encode()},
			{"", true, nil},
		} {
			o.heed("a", news{Sites: []said{s}})
			if after := fmt.Sprintf("%+v", o.Members()); after != before {
				t.Errorf("%+v was believed: %s", s, after)
			}
		}
		o.heed("a", news{Twin: "\x1b[2J" + strings.Repeat("x", 1000)})
		if c := o.Conflicts(); len(c) != 1 || len(c[0].At) > maxAddress || strings.Contains(c[0].At, "\x1b") {
			t.Errorf("%q", c)
		}
		// Voters do not ask observers.
		a := w.raw(w.ids[0], 1)
		if _, err := a.Meet(t.Context(), addr(2).String()); err != nil {
			t.Fatal(err)
		}
		s, err := a.OpenStream(context.Background(), "kiosk", PurposeGossip)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := a.SendDatagram("kiosk", labelled(w.ca.Cluster().String(), pingOf(gossipPing, "a"))); err != nil {
			t.Fatal(err)
		}
		if _, err := quic.ReadFrame(s, 100); err == nil {
			t.Error("an observer answers")
		}
		time.Sleep(time.Second)
		mustContain(t, "the observer's log", o.log.String(), "refused gossip", "peer=a")
		if a.hears() != 0 {
			t.Error("an observer gossips")
		}
	}, "a", "b")
}

func FuzzNews(f *testing.F) {
	b, err := encoding.Marshal(news{Sites: []said{{"a", true, meta{Number: 1, Address: "x:1"}.encode()}}, Twin: "x:1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		var n news
		if err := hints.Unmarshal(b, &n); err == nil {
			for _, s := range n.Sites {
				_, _ = decodeMeta(s.Meta)
			}
		}
	})
}
