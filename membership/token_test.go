package membership

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func sample(t testing.TB, addrs ...string) Token {
	t.Helper()
	a := authority(t)
	token, err := newToken(a.Cluster(), a.Certificate(), addrs)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokens(t *testing.T) {
	for _, addrs := range [][]string{
		{"192.0.2.1:7487"},
		{"[2001:db8::1]:7487", "site-a.example:7487", "10.0.0.1:1", "x:65535"},
		{strings.Repeat("n", 250) + ":1", strings.Repeat("m", 250) + ":1", strings.Repeat("o", 250) + ":1", strings.Repeat("p", 250) + ":1"},
	} {
		token := sample(t, addrs...)
		text := token.String()
		if !regexp.MustCompile(`^gus1-[A-Za-z0-9_-]+$`).MatchString(text) {
			t.Errorf("not safe in a shell: %s", text)
		}
		for _, form := range []string{text, " " + text + "\n", text[:40] + "\r\n  " + text[40:]} {
			got, err := ParseToken(form)
			if err != nil || !reflect.DeepEqual(got, token) {
				t.Errorf("%q: %+v, %v", form, got, err)
			}
		}
	}
	one, two := sample(t, "x:1"), sample(t, "x:1")
	if one.secret == two.secret || one.key().Equal(two.key()) || !one.key().Equal(one.key()) {
		t.Error("secrets repeat, or keys do not")
	}
}

func TestTokensNeedAddresses(t *testing.T) {
	a := authority(t)
	for _, addrs := range [][]string{nil, {"a:1", "b:1", "c:1", "d:1", "e:1"}, {"nowhere"}, {":7487"}, {"a b\n:1"}} {
		if token, err := newToken(a.Cluster(), a.Certificate(), addrs); err == nil {
			t.Errorf("%q: %s", addrs, token)
		}
	}
}

// Damage is told from all else, wherever it is.
func TestDamagedTokens(t *testing.T) {
	text := sample(t, "192.0.2.1:7487").String()
	for i := range text {
		for _, c := range []string{"", "A", "B", "-", "%"} {
			changed := text[:i] + c + text[i+1:]
			if changed == text {
				continue
			}
			if got, err := ParseToken(changed); !errors.Is(err, ErrDamagedToken) {
				t.Fatalf("%q at %d: %+v, %v", c, i, got, err)
			}
		}
	}
	for _, other := range []string{"", "gus1-", "gus2-" + text[5:], text + text[5:], "gus1-" + strings.Repeat("A", 1<<20)} {
		if _, err := ParseToken(other); !errors.Is(err, ErrDamagedToken) {
			t.Errorf("%.20q: %v", other, err)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add(sample(f, "192.0.2.1:7487").String())
	f.Add("gus1-AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err != nil {
			return
		}
		if again, err := ParseToken(token.String()); err != nil || !reflect.DeepEqual(again, token) {
			t.Errorf("%+v, then %+v: %v", token, again, err)
		}
	})
}

func FuzzQuestion(f *testing.F) {
	token := sample(f, "x:1")
	b, err := newQuestion(request{Version: 1, Key: make([]byte, 32), Token: make([]byte, 32)}, make([]byte, 32), token.key(), token.key())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := openQuestion(b, make([]byte, 32)); err == nil {
			t.Errorf("a forgery: %+v", r)
		}
		if a, err := decodeAnswer(b); err == nil {
			_ = a.err()
		}
	})
}

// Each error that a joining site may be told arrives as what it is.
func TestAnswersKeepTheirErrors(t *testing.T) {
	for c, target := range codes {
		a, err := decodeAnswer(refusal(target).encode())
		if err != nil || a.Code != c || !errors.Is(a.err(), target) {
			t.Errorf("%v: %+v, %v", target, a, err)
		}
	}
	if got := refusal(errors.New("open /secret: denied")); got.Code != codeCannot || strings.Contains(got.Reason, "secret") {
		t.Errorf("what concerns nobody else: %+v", got)
	}
	if err := (answer{Code: 99, Reason: "\x1b[2J\n" + strings.Repeat("é", 1000)}).err(); err == nil || len(err.Error()) > maxReason || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("%v", err)
	}
}
