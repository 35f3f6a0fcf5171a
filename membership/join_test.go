package membership

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/quic"
)

// founded makes a cluster by Init, with site-a, who is to found it, and runs that.
func (w *world) founded(voters ...string) *site {
	w.t.Helper()
	conf, err := Init(filepath.Join(w.dir, voters[0]), voters[0], voters)
	if err != nil {
		w.t.Fatal(err)
	}
	w.conf = conf
	return w.run(voters[0], 1)
}

// run runs the site that has its identity in the data directory.
func (w *world) run(name string, host int, change ...func(*Config, *quic.Config)) *site {
	w.t.Helper()
	id, err := quic.LoadIdentity(filepath.Join(w.dir, name, IdentityDir))
	if err != nil {
		w.t.Fatal(err)
	}
	if w.conf, err = Load(filepath.Join(w.dir, name, IdentityDir), id.CA); err != nil {
		w.t.Fatal(err)
	}
	return w.start(id, host, change...)
}

// token makes a token for these hosts at the site.
func (s *site) token(life time.Duration, hosts ...int) string {
	s.w.t.Helper()
	var addrs []string
	for _, h := range hosts {
		addrs = append(addrs, addr(h).String())
	}
	token, err := s.admission.NewToken(s.w.t.Context(), addrs, life)
	if err != nil {
		s.w.t.Fatal(err)
	}
	return token.String()
}

// join has a site ask from a host of its own.
func (w *world) join(name, token string) (Joined, error) {
	w.t.Helper()
	return w.joinAs(name, name, token)
}

// joinAs likewise, with the data directory of that name.
func (w *world) joinAs(data, name, token string) (Joined, error) {
	w.t.Helper()
	conn, unplug := w.socket(addr(99))
	defer unplug()
	defer conn.Close()
	return Join(w.t.Context(), Joining{Data: filepath.Join(w.dir, data), Name: name, Token: token, Conn: conn, Lookup: w.lookup})
}

// From nothing to three sites: one token, printed once, for both others, and
// nothing said but the token.
func TestFromNothingToThreeSites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("site-a", "site-b", "site-c")
		token := a.token(TokenLifetime, 1)
		var sites []*site
		for i, name := range []string{"site-b", "site-c"} {
			got, err := w.join(name, token)
			if err != nil {
				t.Fatal(err)
			}
			if got.Site.Name != name || int(got.Site.Number) != i+2 || got.Via.Name != "site-a" || got.Addr != addr(1).String() {
				t.Errorf("joined as %+v", got)
			}
			sites = append(sites, w.run(name, i+2))
		}
		w.converged(a, sites[0], sites[1])
		mustContain(t, "a's log", a.log.String(), `msg="a site has joined" peer=site-b `)
		if exists(filepath.Join(w.dir, "site-b", IdentityDir, "ca.key")) {
			t.Error("the authority's key has left the founding site")
		}
		if sites[0].admission.Founding() || !a.admission.Founding() {
			t.Error("who founded it?")
		}
	})
}

// A token may be made, and redeemed, at any site: the founding one decides.
func TestAnotherSitePassesItOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b", "c", "d")
		if _, err := w.join("b", a.token(time.Hour, 1)); err != nil {
			t.Fatal(err)
		}
		b := w.run("b", 2)
		w.converged(a, b)
		got, err := w.join("c", b.token(time.Hour, 2))
		if err != nil || got.Via.Name != "b" {
			t.Fatalf("%+v: %v", got, err)
		}
		c := w.run("c", 3)
		w.converged(a, b, c)

		token := a.token(time.Hour, 9, 3) // nobody is at the first address
		a.kill()
		if _, err := w.join("d", token); !errors.Is(err, ErrFounderAway) {
			t.Errorf("while the founding site is down: %v", err)
		} else {
			mustContain(t, "the error", text(err), "Start the founding site")
		}
		if _, err := b.admission.NewToken(t.Context(), []string{"x:1"}, time.Hour); !errors.Is(err, ErrFounderAway) {
			t.Errorf("a token without the founding site: %v", err)
		}
		a = w.run("a", 11) // and it has moved
		w.converged(a, b, c)
		if _, err := w.join("d", token); err != nil {
			t.Fatal(err)
		}
		w.converged(a, b, c, w.run("d", 4))
	})
}

// A voter's name is of one key for ever; asking again with that key is fine, as
// after an answer that was lost.
func TestANameIsOfOneKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b", "c")
		token := a.token(time.Hour, 1)
		key, err := quic.SiteKey(filepath.Join(w.dir, "b", IdentityDir+".joining"))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := w.join("b", token); err != nil {
				t.Fatal(err)
			}
			id, err := quic.LoadIdentity(filepath.Join(w.dir, "b", IdentityDir))
			if err != nil || !id.Key.Equal(key) {
				t.Fatalf("joined with another key than it had: %v", err)
			}
			// As if the answer had not arrived.
			dir := filepath.Join(w.dir, "b", IdentityDir)
			if err := os.Rename(dir, dir+".joining"); err != nil {
				t.Fatal(err)
			}
		}
		for _, again := range []bool{false, true} {
			if again {
				a.kill()
				w.run("a", 1)
			}
			for _, name := range []string{"a", "b"} {
				_, err := w.joinAs("thief", name, token)
				if !errors.Is(err, ErrNameTaken) || exists(filepath.Join(w.dir, "thief", IdentityDir)) {
					t.Errorf("%s, after a restart %v: %v", name, again, err)
				}
			}
		}
		if _, err := w.joinAs("thief", "c", token); err != nil {
			t.Errorf("the same key under another name: %v", err)
		}
	})
}

// otherLetter returns the token with another letter at i than it has there.
func otherLetter(token string, i int) string {
	letter := "x"
	if token[i:i+1] == letter {
		letter = "y"
	}
	return token[:i] + letter + token[i+1:]
}

func TestWhoMayNotJoin(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b", "c")
		good := a.token(time.Hour, 1)
		short := a.token(time.Minute, 1)
		time.Sleep(2 * time.Minute)
		parsed, err := ParseToken(good)
		if err != nil {
			t.Fatal(err)
		}
		change := func(f func(*Token)) string {
			p := parsed
			f(&p)
			return p.String()
		}
		for _, c := range []struct {
			what, name, token string
			want              error
			says              string
		}{
			{"expired", "b", short, ErrExpiredToken, "gus token"},
			{"a secret that nobody gave out", "b", change(func(p *Token) { p.secret[0]++ }), ErrUnknownToken, "not known"},
			{"a letter is wrong", "b", otherLetter(good, 20), ErrDamagedToken, "copy it whole"},
			{"cut", "b", good[:len(good)-3], ErrDamagedToken, "copy it whole"},
			{"no token", "b", "hunter2", ErrDamagedToken, "gus1-"},
			{"another authority", "b", change(func(p *Token) { p.Fingerprint[0]++ }), ErrForeignToken, addr(1).String()},
			{"another cluster", "b", change(func(p *Token) { p.Cluster[0]++ }), ErrForeignToken, addr(1).String()},
			{"nobody is there", "b", change(func(p *Token) { p.Addresses = []string{"1.0.0.9:7487", "nowhere.example:1"} }), ErrNoRoute, "1.0.0.9:7487"},
			{"a name that is no voter's", "d", good, ErrNotVoter, "add --observer"},
			{"the founding site's name", "a", good, ErrNameTaken, "a has joined already"},
			{"no name", "B!", good, nil, "site name"},
		} {
			_, err := w.joinAs("x", c.name, c.token)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.what, err, c.want)
			}
			mustContain(t, c.what, text(err), c.says)
			if strings.Contains(text(err), "\n") {
				t.Errorf("%s: more than a line: %v", c.what, err)
			}
		}
		mustContain(t, "no route", text(func() error {
			_, err := w.joinAs("x", "b", change(func(p *Token) { p.Addresses = []string{"1.0.0.9:7487", "nowhere.example:1"} }))
			return err
		}()), "nowhere.example:1")
		if exists(filepath.Join(w.dir, "x", IdentityDir)) {
			t.Error("somebody has an identity now")
		}
		if _, err := w.joinAs("a", "a", good); !errors.Is(err, ErrHasIdentity) {
			t.Errorf("into a directory with an identity: %v", err)
		}
	})
}

// A token lives by the founding agent's running time, and after a crash not
// longer than that.
func TestATokensLifeIsRunningTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b", "c")
		token := a.token(20*time.Minute, 1)
		time.Sleep(10 * time.Minute)
		a.stop()
		time.Sleep(24 * time.Hour) // nobody counts this
		w.run("a", 1)
		if _, err := w.join("b", token); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute + time.Second)
		if _, err := w.join("c", token); !errors.Is(err, ErrExpiredToken) {
			t.Errorf("after its life: %v", err)
		}
		before := read(t, filepath.Join(w.dir, "a", IdentityDir, tokensFile))
		parsed, err := ParseToken(token)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(before, string(parsed.secret[:])) || !strings.Contains(before, `"left_seconds": 0`) {
			t.Errorf("the file: %s", before)
		}
	})
}

func TestACrashMakesATokensLifeShorter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b", "c")
		token := a.token(20*time.Minute, 1)
		time.Sleep(10*time.Minute + 50*time.Second)
		path := filepath.Join(w.dir, "a", IdentityDir, tokensFile)
		crashed := read(t, path)
		a.stop()
		if err := os.WriteFile(path, []byte(crashed), 0o600); err != nil {
			t.Fatal(err)
		}
		w.run("a", 1)
		time.Sleep(7 * time.Minute)
		if _, err := w.join("b", token); err != nil {
			t.Errorf("within its life: %v", err)
		}
		time.Sleep(2*time.Minute + 10*time.Second) // it has lived for 20 minutes
		if _, err := w.join("c", token); !errors.Is(err, ErrExpiredToken) {
			t.Errorf("after its life: %v", err)
		}
	})
}

func TestGuessingIsSlow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b")
		good := a.token(time.Hour, 1)
		bad, err := ParseToken(good)
		if err != nil {
			t.Fatal(err)
		}
		bad.secret[3]++
		for range maxFailures {
			if _, err := w.join("b", bad.String()); !errors.Is(err, ErrUnknownToken) {
				t.Fatal(err)
			}
		}
		if _, err := w.join("b", good); !errors.Is(err, ErrTooManyAttempts) {
			t.Errorf("after many failures: %v", err)
		}
		time.Sleep(attemptsWindow)
		if _, err := w.join("b", good); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

func TestAttemptsAreCountedByNetwork(t *testing.T) {
	six := func(s string) net.Addr { return &net.UDPAddr{IP: net.ParseIP(s), Port: 1} }
	if hostOf(six("2001:db8::1")) != hostOf(six("2001:db8::2:3")) || hostOf(six("2001:db8::1")) == hostOf(six("2001:db8:0:1::1")) {
		t.Error("IPv6 is not counted by networks")
	}
	if hostOf(addr(1)) == hostOf(addr(2)) || hostOf(six("::ffff:1.0.0.1")) != hostOf(addr(1)) {
		t.Error("IPv4 is not counted by addresses")
	}
	synctest.Test(t, func(t *testing.T) {
		a := attempts{from: map[string]*tries{}}
		for i := range maxHosts {
			a.failed(fmt.Sprint(i))
		}
		if a.allow("new") || !a.allow("7") {
			t.Error("more hosts than may be watched")
		}
		time.Sleep(attemptsWindow)
		if !a.allow("new") || len(a.from) != 0 {
			t.Errorf("%d hosts are remembered", len(a.from))
		}
	})
}

func TestTokensHaveALimit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b")
		for range maxTokens {
			a.token(time.Hour, 1)
		}
		if _, err := a.admission.NewToken(t.Context(), []string{"x:1"}, time.Hour); !errors.Is(err, errTooManyTokens) {
			t.Errorf("one more: %v", err)
		}
		time.Sleep(time.Hour)
		for range 3 {
			for range maxTokens {
				a.token(time.Minute, 1)
			}
			time.Sleep(time.Minute)
		}
		if n := len(a.admission.signer.tokens.tokens); n > 2*maxTokens {
			t.Errorf("%d tokens are kept", n)
		}
		for _, life := range []time.Duration{0, time.Millisecond, MaxLifetime + 1} {
			if _, err := a.admission.NewToken(t.Context(), []string{"x:1"}, life); err == nil {
				t.Errorf("a life of %v", life)
			}
		}
		if _, err := a.admission.NewToken(t.Context(), nil, time.Hour); err == nil {
			t.Error("a token without an address")
		}
	})
}

// Whoever asks with the right form and the wrong content gets an answer, and
// nothing else.
func TestHostileQuestions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b")
		token, err := ParseToken(a.token(time.Hour, 1))
		if err != nil {
			t.Fatal(err)
		}
		conn, unplug := w.socket(addr(66))
		defer unplug()
		defer conn.Close()
		_, site, _ := ed25519.GenerateKey(nil)
		ask := func(f func(binding []byte) []byte) answer {
			t.Helper()
			c, err := quic.DialJoin(t.Context(), quic.JoinDial{Addr: addr(1).String(), Cluster: token.Cluster, Fingerprint: token.Fingerprint, Conn: conn})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			binding, err := c.Binding()
			if err != nil {
				t.Fatal(err)
			}
			b, err := c.Ask(t.Context(), f(binding))
			if err != nil {
				t.Fatal(err)
			}
			out, err := decodeAnswer(b)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		good := request{Version: 1, Cluster: token.Cluster[:], Name: "b", Role: "voter", Key: site.Public().(ed25519.PublicKey), Token: token.key().Public().(ed25519.PublicKey)}
		sign := func(r request, binding []byte) []byte {
			b, err := newQuestion(r, binding, site, token.key())
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		var old []byte
		hostile := map[string]struct {
			make func(binding []byte) []byte
			want code
		}{
			"nothing":            {func([]byte) []byte { return nil }, codeNotUnderstood},
			"noise":              {func([]byte) []byte { return []byte("GET / HTTP/1.1") }, codeNotUnderstood},
			"another connection": {func([]byte) []byte { return sign(good, make([]byte, 32)) }, codeNotUnderstood},
			"another's key": {func(b []byte) []byte {
				r := good
				r.Key = make([]byte, ed25519.PublicKeySize)
				return sign(r, b)
			}, codeNotUnderstood},
			"half a key":      {func(b []byte) []byte { r := good; r.Key = r.Key[:16]; return sign(r, b) }, codeNotUnderstood},
			"another version": {func(b []byte) []byte { r := good; r.Version = 2; return sign(r, b) }, codeNotUnderstood},
			"another cluster": {func(b []byte) []byte { r := good; r.Cluster = []byte("x"); return sign(r, b) }, codeForeign},
			"an observer":     {func(b []byte) []byte { r := good; r.Role = "observer"; return sign(r, b) }, codeVotersName},
			"another role":    {func(b []byte) []byte { r := good; r.Role = "admin"; return sign(r, b) }, codeNotUnderstood},
			"no role":         {func(b []byte) []byte { r := good; r.Role = ""; r.Name = "x"; return sign(r, b) }, codeNotUnderstood},
			"a bad name":      {func(b []byte) []byte { r := good; r.Name = "../b"; return sign(r, b) }, codeNotUnderstood},
		}
		for name, h := range hostile {
			if got := ask(h.make); got.Code != h.want || got.Certificate != nil || got.Peers != nil {
				t.Errorf("%s: %+v, want code %d", name, got, h.want)
			}
			time.Sleep(attemptsWindow / 5)
		}
		time.Sleep(attemptsWindow)
		if got := ask(func(b []byte) []byte { old = sign(good, b); return old }); got.Code != codeDone {
			t.Errorf("an honest question: %+v", got)
		}
		if got := ask(func([]byte) []byte { return old }); got.Code != codeNotUnderstood {
			t.Errorf("one that was overheard: %+v", got)
		}
	})
}

// Nobody answers, and whoever waits goes away.
func TestJoiningCanBeGivenUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.founded("a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, unplug := w.socket(addr(98))
		defer unplug()
		defer conn.Close()
		_, err := Join(ctx, Joining{Data: filepath.Join(w.dir, "b"), Name: "b", Token: a.token(time.Hour, 9, 10), Conn: conn})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody is there: %v", err)
		}
	})
}
