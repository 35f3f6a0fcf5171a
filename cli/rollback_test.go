package cli

import (
	"bytes"
	"fmt"
	"io"
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
