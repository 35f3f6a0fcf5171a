package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"

	"gus/quic"
	"gus/register"
)

// pingOf is a gossip message that asks for an answer to a name.
func pingOf(kind byte, from string) []byte {
	b := []byte{kind}
	var out []byte
	enc := codec.NewEncoderBytes(&out, &codec.MsgpackHandle{})
	if err := enc.Encode(map[string]any{"SeqNo": 7, "Node": "a", "SourceNode": from, "SourceAddr": []byte{127, 0, 0, 1}, "SourcePort": 7487}); err != nil {
		panic(err)
	}
	return append(b, out...)
}

func compound(messages ...[]byte) []byte {
	b := []byte{gossipCompound, byte(len(messages))}
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	}
	for _, m := range messages {
		b = append(b, m...)
	}
	return b
}

func labelled(label string, b []byte) []byte {
	return append(append([]byte{gossipLabelled, byte(len(label))}, label...), b...)
}

func TestAPacketIsFromWhomItSays(t *testing.T) {
	good, bad := pingOf(gossipPing, "b"), pingOf(gossipPing, "c")
	alive := []byte{4, 0x80}
	for name, c := range map[string]struct {
		packet []byte
		fine   bool
	}{
		"a ping":                  {good, true},
		"for others":              {pingOf(gossipIndirectPing, "b"), true},
		"news":                    {alive, true},
		"labelled":                {labelled("x", good), true},
		"checksummed":             {append([]byte{gossipChecksummed, 0, 0, 0, 0}, good...), true},
		"several":                 {labelled("x", compound(good, alive, alive)), true},
		"another's ping":          {bad, false},
		"another's, for others":   {pingOf(gossipIndirectPing, "c"), false},
		"another's, labelled":     {labelled("x", bad), false},
		"another's, among others": {labelled("x", compound(alive, good, bad)), false},
		"another's, checksummed":  {labelled("x", append([]byte{gossipChecksummed, 0, 0, 0, 0}, bad...)), false},
		"another's, inside twice": {compound(compound(bad)), false},
		"compressed":              {[]byte{gossipCompressed, 1, 2}, false},
		"encrypted":               {[]byte{gossipEncrypted, 1, 2}, false},
		"nothing":                 {nil, false},
		"half a label":            {[]byte{gossipLabelled, 9, 1}, false},
		"half a list":             {[]byte{gossipCompound, 9, 0, 1}, false},
		"a list that promises":    {[]byte{gossipCompound, 1, 0xff, 0xff, 0}, false},
		"noise":                   {[]byte{gossipPing, 0xc1, 0xc1}, false},
	} {
		if err := checkClaims("b", c.packet); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzClaims(f *testing.F) {
	f.Add(pingOf(gossipPing, "b"))
	f.Add(labelled("x", compound(pingOf(gossipIndirectPing, "c"), []byte{4})))
	f.Fuzz(func(_ *testing.T, packet []byte) { _ = checkClaims("b", packet) })
}

// raw is a site that says on the gossip lane what a test wants.
type raw struct {
	*quic.Endpoint
	mu  sync.Mutex
	got []string
}

func (r *raw) hears() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func (w *world) raw(id *quic.Identity, host int) *raw {
	w.t.Helper()
	conn, unplug := w.socket(addr(host))
	r := &raw{}
	e, err := quic.New(quic.Config{
		Identity: id, Conn: conn, Configuration: 1, Boot: 100, Log: slog.New(slog.DiscardHandler),
		Deliver: func(context.Context, register.Voter, quic.Batch) {},
		Datagram: func(_ quic.Site, p []byte) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.got = append(r.got, string(p))
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r.Endpoint = e
	done := make(chan error, 1)
	go func() { done <- e.Run(context.Background()) }()
	w.t.Cleanup(func() {
		if err := errors.Join(e.Close(), <-done); err != nil {
			w.t.Error(err)
		}
		unplug()
	})
	return r
}

// b has a certificate, and lies on the gossip lane.
func TestALiarIsNotBelieved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, c := w.start(w.ids[0], 1), w.raw(w.ids[2], 3)
		b := w.raw(w.ids[1], 2)
		for _, r := range []*raw{b, c} {
			if _, err := r.Meet(t.Context(), addr(1).String()); err != nil {
				t.Fatal(err)
			}
		}
		label := w.ca.Cluster().String()
		for _, p := range [][]byte{
			pingOf(gossipPing, "c"), {}, []byte("noise"), {gossipLabelled}, {gossipCompressed, 0xff},
			compound([]byte{3, 0xff}, []byte{4, 0xff}, []byte{5, 0xff}, []byte{8}),
		} {
			if err := b.SendDatagram("a", labelled(label, p)); err != nil {
				t.Fatal(err)
			}
			if err := b.SendDatagram("a", p); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range [][]byte{nil, []byte("noise"), labelled(label, []byte{6, 0xdf, 0xff}), labelled("other", []byte{6}), make([]byte, 100_000)} {
			s, err := b.OpenStream(t.Context(), "a", PurposeGossip)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = s.Write(p) // it may be broken off
			_ = s.Close()
		}
		time.Sleep(time.Minute)
		mustContain(t, "a's log", a.log.String(), "refused gossip", "peer=b")
		if n := strings.Count(a.log.String(), "\n"); n > 40 {
			t.Errorf("%d lines in a minute:\n%s", n, a.log)
		}
		// a asks both to gossip, which they do not; to c's name nobody got a to answer.
		ping := labelled(label, pingOf(gossipPing, "b"))
		before, cBefore := b.hears(), c.hears()
		if err := b.SendDatagram("a", ping); err != nil {
			t.Fatal(err)
		}
		w.until("an honest packet is answered", func() bool { return b.hears() > before })
		if c.hears() != cBefore {
			t.Errorf("c was sent %q", c.got)
		}
	}, "a", "b", "c")
}

// Gossip cannot make anybody a voter, nor more sites than fit.
func TestGossipDoesNotMakeVoters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], 1)
		ev := (*events)(a.Gossip)
		node := func(name string, m meta) *memberlist.Node { return &memberlist.Node{Name: name, Meta: m.encode()} }
		for what, n := range map[string]*memberlist.Node{
			"a voter of another number":   node("b", meta{Number: 3}),
			"a voter that nobody knows":   node("x", meta{Number: 3}),
			"a voter as an observer":      node("b", meta{}),
			"an observer":                 node("x", meta{}),
			"a name that is none":         node("B/../x", meta{}),
			"an address that is none":     node("x", meta{Address: "here"}),
			"an address with an escape":   node("x", meta{Address: "\x1b[2J:1"}),
			"a description that is none":  {Name: "x", Meta: []byte("hello")},
			"no description":              {Name: "x"},
			"a description of many bytes": {Name: "x", Meta: make([]byte, 500)},
		} {
			if err := ev.NotifyAlive(n); err == nil {
				t.Errorf("%s was believed", what)
			}
		}
		if err := ev.NotifyAlive(node("b", meta{Number: 2, Address: "b.example:1", Version: strings.Repeat("v", 64)})); err != nil {
			t.Errorf("an honest one: %v", err)
		}
		for i := range maxMembers + 1 { // more than the founding site lets in
			a.note(quic.Site{Name: fmt.Sprintf("o%d", i), Role: quic.RoleObserver}, meta{})
		}
		if n := len(a.Members()); n != maxMembers+1 {
			t.Errorf("%d sites are known", n)
		}
		if got := a.endpoint.Connected(); got != 0 {
			t.Errorf("connected with %v", got)
		}
	}, "a", "b", "c")
}

// A site of another cluster, at an address that was one of ours.
func TestAStrangersGossip(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.start(w.ids[0], 1), w.start(w.ids[1], 2, seeds(addr(1).String()))
		w.converged(a, b)
		b.kill()
		other, ids, err := quic.MakeVoters("a", "b")
		if err != nil {
			t.Fatal(err)
		}
		ours := w.conf
		w.conf = New(other.Cluster(), 1, ours.Voters...)
		x := w.start(ids[1], 2, seeds(addr(1).String()), func(c *Config, _ *quic.Config) { c.Data = t.TempDir() })
		w.conf = ours
		time.Sleep(5 * time.Minute)
		if !a.sees("b", StateDead) || !x.sees("a", StateUnseen) || len(a.endpoint.Status().Peers) != 1 {
			t.Errorf("a sees %+v, the stranger %+v", a.member("b"), x.member("a"))
		}
		mustContain(t, "a's log", a.log.String(), "a stranger", other.Cluster().String())
		b = w.start(w.ids[1], 4, seeds(addr(1).String()))
		w.converged(a, b)
	}, "a", "b")
}
