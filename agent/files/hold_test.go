package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A site that does not hear of all changes may know what was: no file becomes that. Once it has
// heard of all, files follow, and go on doing so when it is cut off again.
func TestASiteThatIsOld(t *testing.T) {
	s := newSite(t, "a/1", "one", "a/t.tmpl", `{{ key "b/x" }}`, "b/x", "old")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1"), "newer")
	s.old(time.Hour)
	for _, p := range []Pull{{Once: true}, {DryRun: true}, {DryRun: true, Template: true}} {
		p.Prefix, p.Dir, p.Ask = "a/", dir, 50*time.Millisecond
		err := quick(p).Run(t.Context(), s.client())
		if err == nil || !strings.Contains(err.Error(), "its copy is 1h0m0") || !strings.Contains(err.Error(), "nothing was changed") {
			t.Error(err)
		}
	}
	log := &counter{}
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Template: true, Log: log.logger(t)})
	st := r.await("an error", func(st State) bool { return strings.Contains(st.Error, "until this site hears of all changes") })
	s.set("a/2", "two")
	s.old(2 * time.Hour)
	time.Sleep(50 * time.Millisecond) // many batches
	holds(t, dir, "1", "newer")
	if now := r.state(); now.Error != st.Error {
		t.Errorf("%q became %q", st.Error, now.Error)
	}
	s.set("b/x", "new")
	s.old(0)
	holds(t, dir, "1", "one", "2", "two", "t", "new")
	r.await("good", good)
	if n := log.count("files are not as they should be"); n != 1 {
		t.Errorf("%d lines", n)
	}
	s.old(time.Second)
	s.set("a/1", "changed")
	holds(t, dir, "1", "changed", "2", "two", "t", "new")
}

// A run that ends waits for its site to hear of all changes.
func TestOnceWaitsForASiteThatIsOld(t *testing.T) {
	s := newSite(t, "a/1", "one")
	dir := t.TempDir()
	s.old(time.Second)
	done := make(chan error)
	go func() {
		done <- quick(Pull{Prefix: "a/", Dir: dir, Once: true, Ask: time.Minute}).Run(t.Context(), s.client())
	}()
	eventually(t, func() string {
		if _, err := os.Stat(filepath.Join(dir, journalName)); err != nil {
			return err.Error()
		}
		return ""
	})
	s.set("a/1", "two")
	s.old(0)
	must(t, <-done)
	holds(t, dir, "1", "two")
}
