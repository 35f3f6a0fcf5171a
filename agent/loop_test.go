package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"gus/agent/client"
	"gus/membership"
	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

// failing is a disk that answers a save with the next error that it is told.
type failing struct {
	l    *loop
	next chan error
}

func (f *failing) Save(seq register.Seq, _ []register.Record) {
	var err error
	select {
	case err = <-f.next:
	default: // told nothing: it works
	}
	f.l.saved <- saving{seq, err}
}

// nobody is a network without others.
type nobody struct{}

func (nobody) Send(register.Set, register.Message) {}

// inLoop runs f with a running loop of a single voter on a failing disk. What
// the loop returned is in the channel.
func inLoop(t *testing.T, f func(t *testing.T, l *loop, disk *failing, done <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(newDesk(), slog.New(slog.NewTextHandler(t.Output(), nil)))
		replica, err := register.New(register.Config{Self: 1, Voters: []register.Voter{1}, Boot: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		disk := &failing{l: l, next: make(chan error, 8)}
		l.replica, l.store, l.transport = replica, disk, nobody{}
		l.reach = newReach(1, membership.New(quic.Cluster{}, 1, membership.Voter{Name: "solo", Number: 1}), time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.run(ctx) }()
		f(t, l, disk, done)
		cancel()
		synctest.Wait()
	})
}

func (l *loop) trySet(ctx context.Context, key string) error {
	return l.desk.ask(ctx, question{kind: kindSet, key: key, value: []byte("value"), timeout: 5 * time.Second}).err
}

func TestAFullDiskRefusesWritesAndHeals(t *testing.T) {
	inLoop(t, func(t *testing.T, l *loop, disk *failing, done <-chan error) {
		if err := l.trySet(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		disk.next <- fmt.Errorf("gus.db: the disk is full: %w", snapshot.ErrRolledBack)
		if err := l.trySet(t.Context(), "second"); !errors.Is(err, client.ErrNotSaved) {
			t.Errorf("a set on a full disk: %v", err)
		}
		a := l.desk.ask(t.Context(), question{kind: kindGet, key: "first", timeout: time.Second})
		if a.err != nil || string(a.result.Value) != "value" {
			t.Errorf("a get on a full disk: %q, %v", a.result.Value, a.err)
		}
		time.Sleep(3 * time.Second)
		if err := l.trySet(t.Context(), "third"); err != nil {
			t.Errorf("a set once there is space again: %v", err)
		}
	})
}

func TestASaveWithAnUnknownOutcomeEndsTheAgent(t *testing.T) {
	inLoop(t, func(t *testing.T, l *loop, disk *failing, done <-chan error) {
		broken := errors.New("fsync: input/output error")
		disk.next <- broken
		err := l.trySet(t.Context(), "value")
		if !errors.Is(err, client.ErrUnknownOutcome) && !errors.Is(err, client.ErrStopping) {
			t.Errorf("the set: %v", err)
		}
		if err := <-done; !errors.Is(err, broken) {
			t.Errorf("the loop ended with %v", err)
		}
		if err := l.trySet(t.Context(), "later"); !errors.Is(err, client.ErrStopping) {
			t.Errorf("a later set: %v", err)
		}
	})
}

func TestTooMuchAtOnceIsRefused(t *testing.T) {
	d := newDesk()
	for range maxRequests {
		if err := d.admit(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.admit(0); !errors.Is(err, client.ErrNotSent) {
		t.Errorf("one request too many: %v", err)
	}
	for range maxRequests {
		d.release(0)
	}
	if err := d.admit(maxRequestBytes); err != nil {
		t.Errorf("as many bytes as may be: %v", err)
	}
	if err := d.admit(1); !errors.Is(err, client.ErrNotSent) {
		t.Errorf("one byte too many: %v", err)
	}
}
