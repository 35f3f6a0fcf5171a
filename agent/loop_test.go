package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
func (nobody) SetProgress([]register.Progress)     {}

// inLoop runs f with a running loop of a single voter on a failing disk. What
// the loop returned is in the channel.
func inLoop(t *testing.T, f func(t *testing.T, l *loop, disk *failing, done <-chan error)) {
	inLoopOf(t, []string{"solo"}, nobody{}, f)
}

// inLoopOf is inLoop with the first of several voters, which asks before it votes,
// and with a transport.
func inLoopOf(t *testing.T, names []string, net transport, f func(t *testing.T, l *loop, disk *failing, done <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(newDesk(), slog.New(slog.NewTextHandler(t.Output(), nil)))
		var voters []membership.Voter
		for i, name := range names {
			voters = append(voters, membership.Voter{Name: name, Number: register.Voter(i + 1)})
		}
		conf := membership.New(quic.Cluster{}, 1, voters...)
		cfg := conf.Register(1, 2, 0)
		cfg.Ask = true
		replica, err := register.New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		disk := &failing{l: l, next: make(chan error, 8)}
		l.replica, l.store, l.transport = replica, disk, net
		l.reach = newReach(1, conf, time.Now())
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

// spy is a network that notes what was said, and how far this voter had come then.
type spy struct {
	saved register.Seq
	said  chan string
}

func (s *spy) SetProgress(all []register.Progress) {
	for _, p := range all {
		if p.Voter == 1 {
			s.saved = p.Saved
		}
	}
}

func (s *spy) Send(_ register.Set, m register.Message) {
	s.said <- fmt.Sprintf("%s after record %d", m.Kind(), s.saved)
}

// heard has voter 2 answer a loop that asks.
func (l *loop) heard(boot uint64, saved register.Seq) {
	l.batches <- batch{2, quic.Header{Boot: 1}, []register.Message{&register.MsgHeard{Boot: boot, Saved: saved, Asked: 2}}}
}

func TestProgressIsToldBeforeWhatRestsOnIt(t *testing.T) {
	net := &spy{said: make(chan string, 64)}
	inLoopOf(t, []string{"a", "b"}, net, func(t *testing.T, l *loop, disk *failing, done <-chan error) {
		l.heard(1, 0)
		l.links <- link{2, true}
		for i := range 3 {
			if err := l.trySet(t.Context(), fmt.Sprint(i)); !errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("a set that nobody answers: %v", err)
			}
		}
		var writes []string
		for len(net.said) > 0 {
			if said := <-net.said; strings.HasPrefix(said, "WRITE") && !slices.Contains(writes, said) {
				writes = append(writes, said)
			}
		}
		if len(writes) < 3 || slices.Contains(writes, "WRITE after record 0") {
			t.Errorf("it said %q", writes)
		}
	})
}

func TestAForgottenSiteEndsOnAFullDiskToo(t *testing.T) {
	inLoopOf(t, []string{"a", "b", "c"}, nobody{}, func(t *testing.T, l *loop, disk *failing, done <-chan error) {
		for range cap(disk.next) {
			disk.next <- fmt.Errorf("gus.db: the disk is full: %w", snapshot.ErrRolledBack)
		}
		l.heard(2, 7)
		if err := <-done; !errors.Is(err, ErrForgotten) {
			t.Errorf("it ended with %v", err)
		}
	})
}
