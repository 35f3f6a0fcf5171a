package quic

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"gus/register"
)

// attacker is somebody who speaks QUIC, and of our protocol what a test says.
type attacker struct {
	t    *testing.T
	w    *world
	qc   *quicgo.Conn
	id   *Identity
	boot uint64
}

// attack dials the site as id, or as nobody.
func (w *world) attack(t *testing.T, id *Identity, target *site) *attacker {
	t.Helper()
	config := &tls.Config{NextProtos: []string{ALPN}, InsecureSkipVerify: true}
	if id != nil {
		config = tlsConfig(id, false, nil)
	}
	conn, unplug := w.socket(addr(66), 0)
	transport := &quicgo.Transport{Conn: conn}
	qc, err := transport.Dial(t.Context(), target.addr, config, quicConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = qc.CloseWithError(0, "")
		_ = transport.Close()
		_ = conn.Close()
		unplug()
	})
	return &attacker{t: t, w: w, qc: qc, id: id, boot: 1}
}

// bidi opens a stream and writes to it.
func (a *attacker) bidi(b []byte) *quicgo.Stream {
	a.t.Helper()
	s, err := a.qc.OpenStreamSync(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := s.Write(b); err != nil {
		a.t.Fatal(err)
	}
	return s
}

// hello says hello as an honest site does.
func (a *attacker) hello() {
	a.t.Helper()
	s := a.bidi(a.helloBytes(hello{Version: helloVersion, Cluster: a.id.Cluster[:], Configuration: 1, Boot: a.boot}))
	if _, err := ReadFrame(s, maxHello); err != nil {
		a.t.Fatal(err)
	}
}

func (a *attacker) helloBytes(h hello) []byte {
	a.t.Helper()
	b, err := encoding.Marshal(h)
	if err != nil {
		a.t.Fatal(err)
	}
	return frame(byte(purposeHello), b)
}

// frame is a purpose and one frame.
func frame(purpose byte, p []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{purpose}, uint32(len(p))), p...)
}

// uni sends each of all as one frame of one stream of the register lane.
func (a *attacker) uni(all ...[]byte) {
	var b []byte
	for _, p := range all {
		b = append(b, frame(0, p)[1:]...)
	}
	a.raw(b)
}

// raw sends b as one stream of the register lane.
func (a *attacker) raw(b []byte) {
	a.t.Helper()
	s, err := a.qc.OpenUniStreamSync(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	_, _ = s.Write(b) // the receiver may break it off
	_ = s.Close()
}

func (a *attacker) batch(h Header, m ...register.Message) []byte {
	a.t.Helper()
	b, err := encodeHeader(h)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, m := range m {
		e, err := appendMessage(nil, m)
		if err != nil {
			a.t.Fatal(err)
		}
		b = append(b, e...)
	}
	return b
}

func TestAClientWithoutCertificate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		x := w.attack(t, nil, a) // in TLS 1.3, this much succeeds
		select {
		case <-x.qc.Context().Done():
		case <-time.After(time.Minute):
			t.Error("the connection stands")
		}
		if len(a.Status().Peers) != 0 {
			t.Error("somebody without a name became a peer")
		}
	}, "a")
}

func TestAnObserverInTheRegisterLane(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1, serving(purposeEcho, echo))
		id, err := w.ca.NewIdentity("watcher", RoleObserver, 0)
		if err != nil {
			t.Fatal(err)
		}
		x := w.attack(t, id, a)
		x.hello()
		x.uni(x.batch(Header{w.ca.Cluster(), 1, 1, nil}, need("x")))
		w.until("it is refused", func() bool { return a.peerStatus("watcher").Refused == 1 })
		if a.count() != 0 || a.Connected() != 0 || len(a.history()) != 0 {
			t.Errorf("an observer was heard: %v, %v", a.got, a.history())
		}
		s := x.bidi(frame(byte(purposeEcho), []byte("hi")))
		if p, err := ReadFrame(s, 10); err != nil || string(p) != "hi" {
			t.Errorf("the observer's streams are not served: %q, %v", p, err)
		}
	}, "a")
}

func TestAnObserversEndpoint(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1, serving(purposeEcho, echo))
		id, err := w.ca.NewIdentity("watcher", RoleObserver, 0)
		if err != nil {
			t.Fatal(err)
		}
		o := w.start(id, addr(2), 1, func(_ *site, c *Config) { c.Deliver = nil })
		o.knows(a)
		if got, err := ask(t.Context(), o, "a", "hi"); err != nil || got != "hi" {
			t.Errorf("%q, %v", got, err)
		}
		if err := a.SendDatagram("watcher", []byte("news")); err != nil {
			t.Error(err)
		}
		w.until("gossip passes", func() bool { o.mu.Lock(); defer o.mu.Unlock(); return len(o.packets) == 1 })
		o.Send(register.SetOf(1), need("x"))
		if a.count() != 0 || o.Connected() != 0 || a.Connected() != 0 {
			t.Error("an observer takes part in the register")
		}
	}, "a")
}

// An observer is told which voters it is connected with, and has no connection with
// another observer.
func TestWhomAnObserverConnectsWith(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		var observers []*site
		for i, name := range []string{"o", "p"} {
			id, err := w.ca.NewIdentity(name, RoleObserver, 0)
			if err != nil {
				t.Fatal(err)
			}
			o := w.start(id, addr(i+2), 1, func(_ *site, c *Config) { c.Deliver = nil })
			o.knows(a)
			w.until("it is told", func() bool { return slices.Equal(o.history(), []string{"+1"}) })
			observers = append(observers, o)
		}
		o, p := observers[0], observers[1]
		if err := o.SetPeer("p", 0, p.addr.String()); err == nil {
			t.Error("an observer is a peer of an observer")
		}
		if met, err := o.Meet(t.Context(), p.addr.String()); err == nil || !strings.Contains(err.Error(), "voters only") || !strings.Contains(err.Error(), "p (observer)") {
			t.Errorf("it met %v: %v", met, err)
		}
		x := w.attack(t, p.id, o) // who does not keep to that is refused
		s := x.bidi(x.helloBytes(hello{Version: helloVersion, Cluster: x.id.Cluster[:], Configuration: 1, Boot: 7}))
		if _, err := ReadFrame(s, maxHello); err == nil {
			t.Error("an observer has welcomed an observer")
		}
		if len(o.Status().Peers) != 1 || len(a.history()) != 0 {
			t.Errorf("peers: %v; a was told %v", o.Status().Peers, a.history())
		}
		a.stop()
		w.until("it is told of the end", func() bool { return slices.Equal(o.history(), []string{"+1", "-1"}) })
	}, "a")
}

func TestHostileHellos(t *testing.T) {
	honest := func(a *attacker) hello {
		return hello{Version: helloVersion, Cluster: a.id.Cluster[:], Configuration: 1, Boot: 1}
	}
	for name, say := range map[string]func(a *attacker) []byte{
		"another purpose": func(a *attacker) []byte { return frame(7, []byte("x")) },
		"no CBOR":         func(a *attacker) []byte { return frame(0, []byte("hello")) },
		"too large":       func(a *attacker) []byte { return frame(0, make([]byte, maxHello+1)) },
		"a promise":       func(a *attacker) []byte { return []byte{0, 0xff, 0xff, 0xff, 0xff} },
		"silence":         func(a *attacker) []byte { return nil },
		"half of it":      func(a *attacker) []byte { b := a.helloBytes(honest(a)); return b[:len(b)-1] },
		"another cluster": func(a *attacker) []byte {
			h := honest(a)
			h.Cluster = make([]byte, 16)
			return a.helloBytes(h)
		},
		"another version": func(a *attacker) []byte {
			h := honest(a)
			h.Version++
			return a.helloBytes(h)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.start(w.ids[0], addr(1), 1)
				x := w.attack(t, w.ids[1], a)
				x.bidi(say(x))
				select {
				case <-x.qc.Context().Done():
				case <-time.After(time.Minute):
					t.Error("the connection stands")
				}
				if len(a.history()) != 0 {
					t.Errorf("a was told %v", a.history())
				}
			}, "a", "b")
		})
	}
}

func TestHostileBytesOnEveryLane(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1, serving(purposeEcho, echo))
		x := w.attack(t, w.ids[1], a)
		x.hello()
		good := Header{w.ca.Cluster(), 1, 1, nil}
		fine := x.batch(good, need("x"))
		bad := [][]byte{
			nil, {0}, []byte("GET / HTTP/1.1\r\n"), bytes.Repeat([]byte{0xff}, 1000), bytes.Repeat([]byte{0x9b}, 100_000),
			fine[:len(fine)-1],
			append(bytes.Clone(fine), 0),
			append(bytes.Clone(fine), 23, 0xa0),
			append(bytes.Clone(fine), make([]byte, maxBatch)...),
			x.batch(Header{Cluster{1}, 1, 1, nil}, need("x")),
			x.batch(Header{w.ca.Cluster(), 2, 1, nil}, need("x")),
			x.batch(Header{w.ca.Cluster(), 1, 9, nil}, need("x")),
			x.batch(Header{w.ca.Cluster(), 1, 1, []register.Progress{{Voter: 64}}}, need("x")),
			x.batch(Header{w.ca.Cluster(), 1, 1, make([]register.Progress, 10)}, need("x")),
		}
		for _, b := range bad {
			x.uni(b)
		}
		raw := [][]byte{{0}, {0, 0, 0, 1}, {0, 0, 16, 0, 1}, bytes.Repeat([]byte{0xff}, 100), append(frame(0, nil)[1:], 7)}
		for _, b := range raw {
			x.raw(b)
		}
		for _, b := range [][]byte{{255}, frame(0, nil), {200, 0xff, 0xff, 0xff, 0xff}, {200, 0}} {
			s := x.bidi(b)
			_ = s.Close()
		}
		refused := uint64(len(bad) + len(raw) + 2) // and two unknown purposes: the handler judges its own frames
		w.until("all is refused", func() bool { return a.peerStatus("b").Refused >= refused })
		if a.count() != 0 {
			t.Errorf("%v was delivered", a.got)
		}
		x.uni(fine)
		w.until("what is well formed still passes", func() bool { return a.count() == 1 })
		// Only now: while the network is busy, packets are lost.
		for _, n := range []int{0, 1, 1100} {
			if err := x.qc.SendDatagram(bytes.Repeat([]byte{0xff}, n)); err != nil {
				t.Fatal(err)
			}
		}
		w.until("packets are handed on as they are", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.packets) == 3 })
		if got := a.peerStatus("b").Refused; got != refused {
			t.Errorf("%d were refused, want %d", got, refused)
		}
		if n := strings.Count(a.log.String(), "refused a batch"); n != 1 {
			t.Errorf("%d lines of refusals in one interval", n)
		}
	}, "a", "b")
}

// A stream that never ends must not hold its place for ever.
func TestABatchThatDripsIsBrokenOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		x := w.attack(t, w.ids[1], a)
		x.hello()
		var streams []*quicgo.SendStream
		for range 2 * maxReading {
			s, err := x.qc.OpenUniStreamSync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte{0x85}); err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		for _, s := range streams {
			<-s.Context().Done()
		}
		x.uni(x.batch(Header{w.ca.Cluster(), 1, 1, nil}, need("x")))
		w.until("the lane is free again", func() bool { return a.count() == 1 })
	}, "a", "b")
}

func TestManyHellosAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		b := w.start(w.ids[1], addr(2), 1)
		for i := range 2 * maxHellos {
			conn, unplug := w.socket(addr(100+i), 0)
			transport := &quicgo.Transport{Conn: conn}
			// They connect, and say nothing.
			_, err := transport.Dial(context.Background(), a.addr, tlsConfig(w.ids[2], false, nil), quicConfig())
			if err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { _ = transport.Close(); _ = conn.Close(); unplug() })
		}
		b.knows(a)
		w.connected(a, b)
		synctest.Wait()
	}, "a", "b", "c")
}

func ExampleSite_String() {
	fmt.Println(Site{Name: "site-a", Role: RoleVoter, Number: 1})
	fmt.Println(Site{Name: "kiosk", Role: RoleObserver})
	// Output:
	// site-a (voter 1)
	// kiosk (observer)
}
