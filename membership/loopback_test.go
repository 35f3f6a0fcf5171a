package membership

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"gus/quic"
	"gus/register"
)

// TestOverRealSockets is the tour once over, from Init to two sites that see each
// other, over UDP on this machine.
func TestOverRealSockets(t *testing.T) {
	if testing.Short() {
		t.Skip("in real time")
	}
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	if _, err := Init(a, "a", []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	first, doorman := real(t, a)
	token, err := doorman.NewToken(t.Context(), []string{first.Address()}, TokenLifetime)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), Joining{Data: b, Name: "b", Token: token.String()}); err != nil {
		t.Fatal(err)
	}
	second, _ := real(t, b)
	for _, g := range []*Gossip{first, second} {
		await(t, func() bool {
			alive := 0
			for _, m := range g.Members() {
				if m.State == StateAlive {
					alive++
				}
			}
			return alive == 2
		})
	}
}

// real runs the site of a data directory at an address of its own.
func real(t *testing.T, data string) (*Gossip, *Admission) {
	t.Helper()
	dir := filepath.Join(data, IdentityDir)
	id, err := quic.LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := Load(dir, id.CA)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil)).With("at", id.Name)
	g, err := NewGossip(Config{Identity: id, Configuration: conf, Boot: 1, Data: data, Listen: conn.LocalAddr(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAdmission(AdmissionConfig{Identity: id, Configuration: conf, Dir: dir, Gossip: g, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	e, err := quic.New(quic.Config{
		Identity: id, Conn: conn, Configuration: conf.Number, Boot: 1, Log: log,
		Deliver:  func(context.Context, register.Voter, quic.Batch) {},
		Datagram: g.Datagram, Changed: g.Linked, Twin: g.Twin, Join: a.Join,
		Handlers: map[quic.Purpose]quic.Handler{PurposeGossip: g.Stream, PurposeAdmission: a.Stream},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 3)
	for _, run := range []func() error{
		func() error { return e.Run(ctx) },
		func() error { return g.Run(ctx, e) },
		func() error { return a.Run(ctx, e) },
	} {
		go func() { done <- run() }()
	}
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done, <-done); err != nil {
			t.Error(err)
		}
	})
	return g, a
}

// await waits until cond holds, for a minute at most.
func await(t *testing.T, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("what was waited for does not come")
		}
	}
}
