package quic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// answering has a site answer who asks to join with who it is and what it knows.
func answering(_ *site, c *Config) {
	c.Join = func(_ context.Context, r JoinRequest) []byte {
		return fmt.Appendf(nil, "%s %x %s", r.From, r.Binding, r.Body)
	}
	c.Handlers = map[Purpose]Handler{purposeEcho: echo}
}

// applicant is a socket to ask from.
func (w *world) applicant(target *site) JoinDial {
	conn, unplug := w.socket(addr(50), 5*time.Millisecond)
	w.t.Cleanup(func() {
		_ = conn.Close()
		unplug()
	})
	return JoinDial{Addr: target.addr.String(), Cluster: w.ca.Cluster(), Fingerprint: sha256.Sum256(w.ca.Certificate().Raw), Conn: conn}
}

func TestAskingToJoin(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1, answering)
		d := w.applicant(a)
		var bindings []string
		for range 2 {
			j, err := DialJoin(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if j.Site != w.ids[0].Site || !j.CA.Equal(w.ca.Certificate()) {
				t.Errorf("asks %v", j.Site)
			}
			binding, err := j.Binding()
			if err != nil {
				t.Fatal(err)
			}
			got, err := j.Ask(t.Context(), []byte("may I?"))
			if want := fmt.Sprintf("%s %x may I?", addr(50), binding); err != nil || string(got) != want {
				t.Errorf("got %q, want %q: %v", got, want, err)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			bindings = append(bindings, string(binding))
		}
		if bindings[0] == bindings[1] || len(bindings[0]) != bindingSize {
			t.Errorf("two connections are bound by %x", bindings)
		}
		if len(a.Status().Peers) != 0 {
			t.Errorf("who asks became a peer: %+v", a.Status().Peers)
		}
	}, "a")
}

func TestWhoIsAskedProvesWhoItIs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		d := w.applicant(w.start(w.ids[0], addr(1), 1, answering))
		for name, change := range map[string]func(*JoinDial){
			"another authority": func(d *JoinDial) { d.Fingerprint[7]++ },
			"another cluster":   func(d *JoinDial) { d.Cluster[7]++ },
		} {
			d := d
			change(&d)
			if j, err := DialJoin(t.Context(), d); !errors.Is(err, ErrOtherCluster) {
				t.Errorf("%s: %v, %v", name, j, err)
			}
		}
		// Without anybody to ask, or with nobody who may answer.
		d.Addr = addr(9).String()
		if _, err := DialJoin(t.Context(), d); err == nil || errors.Is(err, ErrOtherCluster) {
			t.Errorf("nobody: %v", err)
		}
		w.start(w.ids[1], addr(2), 1)
		d.Addr = addr(2).String()
		if _, err := DialJoin(t.Context(), d); err == nil || errors.Is(err, ErrOtherCluster) {
			t.Errorf("a site where nobody can ask: %v", err)
		}
	}, "a", "b")
}

// stranger dials the site without a certificate of its cluster, with these
// protocols.
func (w *world) stranger(t *testing.T, target *site, id *Identity, protocols ...string) (*quicgo.Conn, error) {
	t.Helper()
	config := &tls.Config{NextProtos: protocols, InsecureSkipVerify: true}
	if id != nil {
		config.Certificates = []tls.Certificate{{Certificate: [][]byte{id.Certificate.Raw}, PrivateKey: id.Key}}
	}
	w.strangers++
	conn, unplug := w.socket(addr(100+w.strangers), 0)
	transport := &quicgo.Transport{Conn: conn}
	t.Cleanup(func() {
		_ = transport.Close()
		_ = conn.Close()
		unplug()
	})
	return transport.Dial(t.Context(), target.addr, config, quicConfig())
}

// Whoever has no certificate of this cluster gets no byte of gossip or data, and
// nothing that it sends is heard, whatever it calls itself.
func TestAStrangerGetsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1, answering, func(_ *site, c *Config) {
			c.Join = func(context.Context, JoinRequest) []byte { return []byte("no") }
		})
		_, foreign, err := MakeVoters("b") // of another cluster
		if err != nil {
			t.Fatal(err)
		}
		for name, try := range map[string]struct {
			id        *Identity
			protocols []string
		}{
			"without a certificate":            {nil, []string{ALPN}},
			"with another cluster's":           {foreign[0], []string{ALPN}},
			"without one, in both protocols":   {nil, []string{ALPN, JoinALPN}},
			"with another's, in both":          {foreign[0], []string{JoinALPN, ALPN}},
			"asking to join":                   {nil, []string{JoinALPN}},
			"asking to join with another's":    {foreign[0], []string{JoinALPN}},
			"in a protocol that nobody speaks": {nil, []string{"h3"}},
		} {
			if qc, err := w.stranger(t, a, try.id, try.protocols...); err == nil { // else it did not even come in
				w.tryEverything(t, name, qc, a)
			}
		}
		if a.count() != 0 || len(a.packets) != 0 || len(a.history()) != 0 || len(a.Status().Peers) != 0 {
			t.Errorf("strangers were heard: %v, %v, %v, %+v", a.got, a.packets, a.history(), a.Status().Peers)
		}
	}, "a", "b")
}

// tryEverything uses each lane of the connection as a site would, and checks
// that nothing comes back. It first sends a gossip packet to the site called b.
func (w *world) tryEverything(t *testing.T, who string, qc *quicgo.Conn, a *site) {
	if err := a.SetPeer("b", 2, ""); err != nil {
		t.Fatal(err)
	}
	if err := a.SendDatagram("b", []byte("gossip for b")); err != nil {
		t.Fatal(err)
	}
	_ = qc.SendDatagram([]byte("gossip of b"))
	if s, err := qc.OpenUniStream(); err == nil {
		_, _ = s.Write([]byte{0x85, 1})
		_ = s.Close()
	}
	h, err := encoding.Marshal(hello{Version: helloVersion, Cluster: w.ca.Cluster().bytes(), Configuration: 1, Boot: 1})
	if err != nil {
		t.Fatal(err)
	}
	var answers bytes.Buffer
	for _, b := range [][]byte{frame(byte(purposeHello), h), frame(byte(purposeEcho), []byte("echo?"))} {
		s, err := qc.OpenStream()
		if err != nil {
			continue
		}
		_, _ = s.Write(b)
		_ = s.Close()
		_ = s.SetReadDeadline(time.Now().Add(time.Minute))
		_, _ = answers.ReadFrom(s)
	}
	if got := answers.String(); got != "" && got != "\x00\x00\x00\x02no" { // who asks to join is told no
		t.Errorf("%s: got an answer: %q", who, answers.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if b, err := qc.ReceiveDatagram(ctx); err == nil {
		t.Errorf("%s: got gossip: %q", who, b)
	}
	if qc.Context().Err() == nil {
		t.Errorf("%s: the connection stands", who)
	}
	w.forget(a, "b")
}

// forget makes a site unknown again.
func (w *world) forget(a *site, name string) {
	a.Endpoint.mu.Lock()
	defer a.Endpoint.mu.Unlock()
	a.voters[a.peers[name].site.Number] = nil
	delete(a.peers, name)
}

func (c Cluster) bytes() []byte { return c[:] }

// Who asks to join and says nothing, or too much, or does not go, does not keep
// others from asking for long.
func TestHostileApplicants(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1, answering)
		var idle []*quicgo.Conn
		for range maxJoins {
			qc, err := w.stranger(t, a, nil, JoinALPN)
			if err != nil {
				t.Fatal(err)
			}
			idle = append(idle, qc)
		}
		d := w.applicant(a)
		j, err := DialJoin(t.Context(), d)
		if err == nil {
			if _, err = j.Ask(t.Context(), nil); err == nil {
				t.Error("one more than may ask was answered")
			}
			_ = j.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "try again") {
			t.Errorf("one more than may ask: %v", err)
		}
		for _, qc := range idle {
			<-qc.Context().Done() // after a while they are sent away
		}
		for _, b := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0, 0, 0x40, 1}, {0, 0, 0, 9, 1}} {
			qc, err := w.stranger(t, a, nil, JoinALPN)
			if err != nil {
				t.Fatal(err)
			}
			s, err := qc.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = s.Write(b)
			<-qc.Context().Done()
		}
		if j, err = DialJoin(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if got, err := j.Ask(t.Context(), []byte("me")); err != nil || !strings.HasSuffix(string(got), " me") {
			t.Errorf("an honest one afterwards: %q, %v", got, err)
		}
	}, "a")
}
