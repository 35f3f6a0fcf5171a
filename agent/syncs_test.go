package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gus/agent/client"
	"gus/agent/files"
)

func TestSyncsAreChecked(t *testing.T) {
	top := t.TempDir()
	data := filepath.Join(top, "data")
	for _, dir := range []string{data, filepath.Join(top, "real")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(top, "real"), filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	in := func(dirs ...string) (all []files.Pull) {
		for _, dir := range dirs {
			all = append(all, files.Pull{Prefix: "a/", Dir: filepath.Join(top, dir)})
		}
		return all
	}
	for _, c := range []struct {
		pulls []files.Pull
		says  string
	}{
		{nil, ""},
		{in("x", "y", "xy"), ""},
		{in("x", "y", "x"), "each needs its own"},
		{in("real", "link"), "each needs its own"},
		{in("x", "x/y"), "one is within the other"},
		{in("x/y/z", "x"), "one is within the other"},
		{in("data"), "the agent's data directory"},
		{in("data/x"), "the agent's data directory, one is within the other"},
		{in("."), "the agent's data directory, one is within the other"},
		{[]files.Pull{{Prefix: "a", Dir: "x"}}, `has to end with a slash`},
	} {
		err := Config{Data: data, Syncs: c.pulls}.Validate()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v, want %q", c.pulls, err, c.says)
		}
	}
}

// Jobs that are gone are stopped and forgotten, new ones started, the others not disturbed.
func TestSyncsAreReloaded(t *testing.T) {
	top := t.TempDir()
	status := newSyncStatus("site-a", slog.New(slog.DiscardHandler))
	s := newSyncs(filepath.Join(top, "nobody"), status, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer cancel()
	job := func(dir, exec string) files.Pull {
		return files.Pull{Prefix: "a/", Dir: filepath.Join(top, dir), Exec: exec}
	}
	await := func(want string) (since time.Time) {
		t.Helper()
		var got string
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			var all []string
			for _, st := range status.states() {
				if st.Error == "" {
					continue
				}
				all = append(all, filepath.Base(st.Dir))
				since = st.ErrorSince // of the last one
			}
			if got = strings.Join(all, " "); got == want {
				return since
			}
		}
		t.Fatalf("the jobs are %q, want %q", got, want)
		return since
	}
	s.set([]files.Pull{job("a", ""), job("c", "")})
	since := await("a c")
	s.set([]files.Pull{job("b", ""), job("c", "")})
	for _, st := range status.states() {
		if !strings.Contains(st.Error, "not running") {
			t.Errorf("%+v", st)
		}
	}
	if await("b c") != since {
		t.Error("a job that stays was disturbed")
	}
	s.set([]files.Pull{job("c", "true")})
	for end := time.Now().Add(time.Minute); await("c") == since; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a job that has changed goes on as it was")
		}
	}
	s.set(nil)
	await("")
}

func TestSyncWarnings(t *testing.T) {
	bad := client.SyncState{Prefix: "app/", Dir: "/etc/app", Error: "the disk is full", ErrorSince: time.Now().Add(-2 * time.Minute)}
	young, stopped := bad, bad
	young.ErrorSince, stopped.Stopped = time.Now(), true
	got := syncWarnings([]client.SyncState{{Dir: "/x"}, bad, young, stopped})
	if len(got) != 1 || got[0].Code != "sync_failing" || !strings.Contains(got[0].Text, "/etc/app") || !strings.Contains(got[0].Text, "the disk is full") {
		t.Errorf("%+v", got)
	}
}
