package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gus/agent/client"
	"gus/membership"
	"gus/quic"
	"gus/register"
)

// What an observer sends that is no question ends its stream and nothing else.
func TestNonsenseFromAnObserver(t *testing.T) {
	get := &forwardAsk{Version: streamVersion, Kind: forwardGet, Key: "k", Timeout: 1e6}
	with := func(change func(a *forwardAsk)) *forwardAsk {
		a := *get
		change(&a)
		return &a
	}
	inRelay(t, 1, func(t *testing.T, w *relayWorld) {
		a := w.voters[0]
		open := func() *quic.Stream {
			s, err := w.observer.OpenStream(t.Context(), "a", purposeForward)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		for i, v := range []any{
			[]byte{},
			[]byte("GET / HTTP/1.1\r\n"),
			lengthOnly(0),
			lengthOnly(100),
			lengthOnly(maxForward + 1),
			lengthOnly(maxForward),
			append(lengthOnly(3), "xyz"...),
			append(lengthOnly(1), 0xf6),
			[]string{"get", "k"},
			map[int]any{1: "one", 2: forwardGet},
			map[int]any{1: 1, 2: forwardGet, 3: "\xff", 8: 1},
			with(func(a *forwardAsk) { a.Version = 2 }),
			with(func(a *forwardAsk) { a.Kind = 0 }),
			with(func(a *forwardAsk) { a.Kind = 4 }),
			with(func(a *forwardAsk) { a.Timeout = 0 }),
			with(func(a *forwardAsk) { a.Timeout = -1 << 63 }),
			with(func(a *forwardAsk) { a.Value = []byte("v") }),
			with(func(a *forwardAsk) { a.Deleted = true }),
			with(func(a *forwardAsk) { a.Kind, a.Deleted, a.Value = forwardSet, true, []byte("v") }),
			with(func(a *forwardAsk) { a.Kind = forwardList }),
			with(func(a *forwardAsk) { a.Kind, a.Limit = forwardList, register.MaxPage+1 }),
		} {
			s := open()
			if _, err := s.Write(frame(t, v)); err != nil {
				t.Fatal(err)
			}
			if got, _ := io.ReadAll(s); len(got) > 0 { // until it is ended at the other side
				t.Errorf("case %d is answered: %q", i, got)
			}
			_ = s.Close()
		}
		if len(a.asked) != 0 {
			t.Errorf("it came to the desk: %q", a.asked)
		}
		time.Sleep(time.Second)
		if n := len(a.server.guests); n != 0 {
			t.Errorf("%d observers are served on", n)
		}

		// Of large questions that come slowly only some are taken in at a time.
		for range maxLargeForwards + 2 {
			s := open()
			defer s.Close()
			if _, err := s.Write(append(lengthOnly(largeForward+1), "slow"...)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		a.server.mu.Lock()
		g := a.server.guests["kiosk"]
		a.server.mu.Unlock()
		if n := len(g.large); n != maxLargeForwards {
			t.Errorf("%d large questions are read at once", n)
		}
		if r := w.get("k"); r.err != nil {
			t.Errorf("small ones wait for them: %v", r.err)
		}
	})
}

// A voter's own clients have a desk: it asks nobody.
func TestAVoterPassesNothingOn(t *testing.T) {
	inRelay(t, 2, func(t *testing.T, w *relayWorld) {
		a, b := w.voters[0], w.voters[1]
		if err := b.SetPeer("a", 1, a.addr.String()); err != nil {
			t.Fatal(err)
		}
		s, err := b.OpenStream(t.Context(), "a", purposeForward)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Write(frame(t, &forwardAsk{Version: streamVersion, Kind: forwardGet, Key: "k", Timeout: 1e6})); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(s); len(got) > 0 || len(a.asked) != 0 {
			t.Errorf("a voter is answered %q", got)
		}
	})
}

// Of more streams than an observer may have the oldest end.
func TestStreamsOfOneObserver(t *testing.T) {
	f := newForwardServer(newDesk(), slog.New(slog.DiscardHandler))
	var all []context.Context
	var leaves []func()
	for range 2*maxForwards + 5 {
		ctx, _, leave := f.enter(t.Context(), "kiosk")
		all, leaves = append(all, ctx), append(leaves, leave)
	}
	other, _, leave := f.enter(t.Context(), "lamp")
	for i, ctx := range all {
		if ended := ctx.Err() != nil; ended != (i < 5) {
			t.Errorf("stream %d has ended: %v", i, ended)
		}
	}
	for _, leave := range leaves {
		leave()
	}
	if len(f.guests) != 1 || other.Err() != nil {
		t.Errorf("%d observers are left", len(f.guests))
	}
	leave()
}

// Observers get no more than half of a voter's desk.
func TestObserversLeaveRoomForLocalClients(t *testing.T) {
	d := newDesk()
	f := newForwardServer(d, slog.New(slog.DiscardHandler))
	for range maxForwarded {
		if err := f.admit(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.admit(0); !errors.Is(err, client.ErrNotSent) {
		t.Errorf("one more: %v", err)
	}
	if err := d.admit(register.MaxValue); err != nil {
		t.Errorf("a local client: %v", err)
	}
	for range maxForwarded {
		f.release(0)
	}
	if err := f.admit(maxForwardedBytes); err != nil {
		t.Error(err)
	}
	if err := f.admit(1); !errors.Is(err, client.ErrNotSent) {
		t.Errorf("a byte more: %v", err)
	}
	if err := f.admit(0); err != nil {
		t.Errorf("a read: %v", err)
	}
}

// A voter that answers nonsense is one that has not answered.
func TestNonsenseFromAVoter(t *testing.T) {
	for i, v := range []any{
		[]byte{},
		lengthOnly(100),
		lengthOnly(maxAnswer + 1),
		append(lengthOnly(3), "xyz"...),
		[]string{"v"},
		&forwardAnswer{RoundTrips: -1},
		&forwardAnswer{Value: make([]byte, register.MaxValue+1)},
		&forwardAnswer{Entries: make([]register.Entry, register.MaxPage+1)},
		&forwardAnswer{Code: strings.Repeat("x", maxMessage+1)},
	} {
		inRelay(t, 0, func(t *testing.T, w *relayWorld) {
			ca, ids, err := quic.MakeVoters("liar")
			if err != nil {
				t.Fatal(err)
			}
			e, stop := w.endpoint(ids[0], address(1), time.Millisecond, map[quic.Purpose]quic.Handler{
				purposeForward: func(_ context.Context, _ quic.Site, s *quic.Stream) {
					if _, err := quic.ReadFrame(s, maxForward); err == nil {
						_, _ = s.Write(frame(t, v))
					}
				},
			})
			defer stop()
			id, err := ca.NewIdentity("o", quic.RoleObserver, 0)
			if err != nil {
				t.Fatal(err)
			}
			o, stop := w.endpoint(id, address(2), time.Millisecond, nil)
			defer stop()
			if err := o.SetPeer("liar", 1, address(1).String()); err != nil {
				t.Fatal(err)
			}
			w.observer = o
			w.await(1)
			_ = e
			w.forwarder = newForwarder(o, membership.New(ca.Cluster(), 1, membership.Voter{Name: "liar", Number: 1}), nil, slog.New(slog.DiscardHandler))
			if a := w.set("k", "v"); !errors.Is(a.err, client.ErrUnknownOutcome) {
				t.Errorf("case %d, a set: %+v", i, a.err)
			}
			if a := w.ask(t.Context(), question{kind: kindGet, key: "k", timeout: time.Second}); !errors.Is(a.err, client.ErrNoQuorum) {
				t.Errorf("case %d, a get: %+v", i, a.err)
			}
		})
	}
	a := (&forwardAnswer{Code: "no_quorum", Message: "a\n\x1b[2J\xff" + strings.Repeat("é", maxMessage)}).answer("liar")
	if s := a.err.Error(); !utf8.ValidString(s) || strings.ContainsAny(s, "\n\x1b") || len(s) > maxMessage+100 || !errors.Is(a.err, client.ErrNoQuorum) {
		t.Errorf("a message: %q", s)
	}
}

// FuzzForward decodes what may come as a question and as an answer.
func FuzzForward(f *testing.F) {
	for _, v := range []any{
		newForwardAsk(question{kind: kindSet, key: "k", value: []byte("v")}),
		&forwardAsk{Version: 1, Kind: forwardList, Key: "a", After: "b", Limit: 3, Timeout: 5},
		&forwardAnswer{Code: "no_quorum", Message: "x"},
		&forwardAnswer{Found: true, Value: []byte("v"), RoundTrips: 1, Entries: []register.Entry{{Key: "k"}}, Next: "k"},
	} {
		var b bytes.Buffer
		if err := streamEncoding.MarshalToBuffer(v, &b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > maxForward {
			return
		}
		if ask, err := decodeForwardAsk(b); err == nil {
			q, err := ask.question("kiosk")
			if err == nil && (len(q.value) > register.MaxValue || q.limit > register.MaxPage || q.timeout <= 0 || q.timeout > maxTimeout) {
				t.Fatalf("%+v", q)
			}
			if err == nil && q.kind == kindSet && strings.HasPrefix(q.key, systemKeys) && !strings.HasPrefix(q.key, client.SyncKeys+"kiosk/") {
				t.Fatal("a system's key is written")
			}
		}
		var a forwardAnswer
		if err := streamDecoding.Unmarshal(b, &a); err == nil && a.check() == nil {
			_ = a.answer("a")
		}
	})
}
