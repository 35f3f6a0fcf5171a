package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
)

// Epochs are named by number, by a time of this place or any other, and by how long ago.
func TestTimes(t *testing.T) {
	local := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"2026-11-30T12:00":          local,
		"2026-11-30T12:00:00":       local,
		"2026-11-30 12:00":          local,
		"2026-11-30":                local.Add(-12 * time.Hour),
		"2026-11-30T12:00:00Z":      time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		"2026-11-30T12:00:00+02:00": time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC),
	} {
		if got, ok := timeOf(text); !ok || !got.Equal(want) {
			t.Errorf("%s is %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "noon", "12:00", "2h", "17"} {
		if got, ok := timeOf(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// A command that names its epoch wrongly is told how to, and nothing is asked of an agent.
func TestWrongEpochs(t *testing.T) {
	for _, args := range [][]string{
		{"get", "k", "--epoch", "0"}, {"get", "k", "--epoch", "-1"}, {"get", "k", "--at", "2h"}, {"get", "k", "--ago", "2026-11-30"},
		{"get", "k", "--ago=-2h"}, {"get", "k", "--epoch", "1", "--ago", "2h"}, {"get", "k", "--epoch", "1", "--local"},
		{"get", "k", "--epoch", "1", "--version", "1.1"}, {"list", "--epoch", "1", "--local"},
		{"diff"}, {"diff", "--epoch", "1", "--epoch", "2", "--epoch", "3"}, {"diff", "--epoch", "x"},
		{"rollback", "p", "--yes"}, {"rollback", "--epoch", "1", "--yes"}, {"rollback", "p", "--epoch", "1"},
	} {
		a := &app{in: new(bytes.Buffer), out: io.Discard, err: io.Discard}
		if err := a.run(t.Context(), append(args, "--socket", "/nowhere/gus.sock")); exitCode(err) != exitUsage {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// Listings are joined by key, whatever is missing on which side.
func TestJoined(t *testing.T) {
	list := func(words ...string) func(func(client.Entry, error) bool) {
		return func(yield func(client.Entry, error) bool) {
			for _, w := range words {
				if !yield(client.Entry{Key: w[:1], Version: client.Version(w[1:])}, nil) {
					return
				}
			}
		}
	}
	got := ""
	for d, err := range joined(list("a1", "c1", "d1", "e1"), list("b1", "c1", "d2", "f1")) {
		if err != nil {
			t.Fatal(err)
		}
		got += diffSigns[d.State] + d.Key
	}
	if want := "-a+b~d-e+f"; got != want {
		t.Errorf("joined are %s, want %s", got, want)
	}
	failing := func(yield func(client.Entry, error) bool) { yield(client.Entry{}, fmt.Errorf("broken")) }
	for _, err := range joined(list("a1"), failing) {
		if err == nil {
			t.Error("a listing that fails is joined")
		}
	}
}

// before and after are a store's keys in its epoch, and since somebody's wrong change: of 10 keys below
// app/ four are not as they were, and three are new.
func before() map[string][]byte {
	keys := map[string][]byte{"b": []byte("then")}
	for i := range 10 {
		keys[fmt.Sprintf("app/%d", i)] = []byte("then")
	}
	return keys
}

func after() map[string][]byte {
	keys := before()
	keys["b"], keys["app/0"], keys["app/9"] = []byte("other"), []byte("wrong"), []byte("gone wrong")
	delete(keys, "app/3")
	delete(keys, "app/4")
	keys["app/2/new"], keys["app/new"], keys["app/zzz"] = nil, []byte("new"), []byte("new")
	return keys
}

// mustBeBack looks whether the keys below app/, and they alone, are as they were.
func (s *fakeStore) mustBeBack(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	want := maps.Clone(s.then)
	want["b"] = []byte("other")
	if !maps.EqualFunc(s.keys, want, bytes.Equal) {
		t.Errorf("there are %q, want %q", s.keys, want)
	}
}

var rollback = []string{"rollback", "app/", "--epoch", fakeEpoch, "--yes"}

// A rollback of which some keys fail, because they are refused or no quorum is there any more, says which, how
// many are done and how many were not tried; run again, it does the rest.
func TestRollbackThatFails(t *testing.T) {
	for _, err := range []error{client.ErrRefused, client.ErrNoQuorum, client.ErrUnknownOutcome} {
		s := &fakeStore{keys: after(), then: before(), fails: map[string]error{"app/3": err}}
		out, _, got := s.with(t, "", rollback...)
		which := "failed"
		if err == client.ErrUnknownOutcome {
			which = "unknown"
		}
		if exitCode(got) != exitCode(err) || !strings.Contains(fmt.Sprint(got), "rollback: key 3, app/3: "+err.Error()+"; ") ||
			!strings.Contains(got.Error(), "1 "+which+" (key 3)") || !strings.HasSuffix(got.Error(), ": it may be run again") || out != "" {
			t.Errorf("%v, printed %q", got, out)
		}
		if !strings.Contains(got.Error(), fmt.Sprint("; ", s.writes, " rolled back, ")) {
			t.Errorf("%d are done, and it says %v", s.writes, got)
		}
		s.fails = nil
		if out, _, err := s.with(t, "", rollback...); err != nil || !strings.HasSuffix(out, " rolled back to epoch 7\n") {
			t.Errorf("once more: %v, printed %q", err, out)
		}
		s.mustBeBack(t)
		if out, _, err := s.with(t, "", rollback...); err != nil || out != "0 keys rolled back to epoch 7\n" {
			t.Errorf("and again: %v, printed %q", err, out)
		}
	}
}

// manyKeys is a store of which 5,000 keys below app/ are not as they were.
func manyKeys() *fakeStore {
	s := &fakeStore{keys: map[string][]byte{"b": []byte("other")}, then: map[string][]byte{"b": []byte("then")}, limit: 1000}
	for i := range 5000 {
		key := fmt.Sprintf("app/%04d", i)
		switch i % 3 {
		case 0:
			s.then[key] = []byte("removed")
		case 1:
			s.keys[key] = []byte("added")
		default:
			s.then[key], s.keys[key] = fmt.Appendf(nil, "then %d", i), fmt.Appendf(nil, "now %d", i)
		}
	}
	return s
}

// Where not all can be read that is to be compared, nothing is written; where that is so only once it writes,
// it says how far it came.
func TestRollbackThatCannotRead(t *testing.T) {
	s := manyKeys()
	asked, fails := 0, 1
	s.list = func(after string) error {
		if after < "app/4" {
			return nil
		}
		if asked++; asked == fails {
			return client.ErrNotSaved
		}
		return nil
	}
	out, _, err := s.with(t, "", rollback...)
	if err == nil || !strings.HasPrefix(err.Error(), "nothing changed: not saved") || s.writes > 0 || out != "" {
		t.Errorf("%v, %d writes, printed %q", err, s.writes, out)
	}
	asked = 0
	out, _, err = s.with(t, "", "rollback", "app/", "--epoch", fakeEpoch, "--dry-run")
	if err == nil || !strings.HasPrefix(err.Error(), "what would be done is not whole: ") || out == "" {
		t.Errorf("%v, printed %d bytes", err, len(out))
	}
	asked, fails = 0, 0
	if out, _, err := s.with(t, "", "rollback", "app/", "--epoch", fakeEpoch, "--dry-run"); err != nil || strings.Count(out, "\n") != 5000 {
		t.Errorf("%v, printed %d bytes", err, len(out))
	}
	asked, fails = 0, 1+asked
	out, _, err = s.with(t, "", rollback...)
	if err == nil || !strings.HasPrefix(err.Error(), "rollback: not saved") || s.writes == 0 || out != "" ||
		!strings.HasSuffix(err.Error(), fmt.Sprintf("; %s rolled back, the last %s not tried: it may be run again", thousands(s.writes), thousands(5000-s.writes))) {
		t.Errorf("%v after %d writes, printed %q", err, s.writes, out)
	}
	s.list = nil
	if out, _, err := s.with(t, "", append(rollback, "--json")...); err != nil || s.writes != 5000 || strings.Count(out, "\n") == 0 {
		t.Errorf("%v, %d writes", err, s.writes)
	}
	s.mustBeBack(t)
}

// A rollback that is interrupted in the middle says what is done, and of which keys that is not known; run again,
// it does the rest.
func TestRollbackInterrupted(t *testing.T) {
	s := manyKeys()
	ctx, cancel := context.WithCancel(t.Context())
	s.wrote = func(writes int) {
		if writes == 2500 {
			cancel()
		}
	}
	out, _, err := s.within(t, ctx, "", rollback...)
	if err == nil || !strings.Contains(err.Error(), " rolled back, ") || !strings.Contains(err.Error(), "interrupted") || !strings.Contains(err.Error(), "it may be run again") || out != "" {
		t.Errorf("%v, printed %q", err, out)
	}
	s.mu.Lock()
	if s.writes < 2500 || s.writes > 2500+maxFlight {
		t.Errorf("%d keys are written", s.writes)
	}
	s.mu.Unlock()
	out, _, err = s.with(t, "", append(rollback, "--json")...)
	if lines := strings.Count(out, "\n"); err != nil || lines < 2500-maxFlight || lines > 2500 {
		t.Errorf("%v: %d lines", err, lines)
	}
	s.mustBeBack(t)
}
