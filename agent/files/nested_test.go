package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const othersLine = "directories within this one are those of other syncs"

// A directory within that of another job is refused, in one line that names both, as long as that one's journal is
// there; also where neither it nor its parent is there yet, and by a dry run.
func TestADirectoryWithinAnother(t *testing.T) {
	s := newSite(t, "a/1", "one", "b/2", "two")
	top := t.TempDir()
	must(t, os.Mkdir(filepath.Join(top, "real"), 0o755))
	must(t, os.Symlink("real", filepath.Join(top, "link")))
	must(t, once(t, s, Pull{Prefix: "a/", Dir: filepath.Join(top, "real"), Delete: true}))
	journal := filepath.Join(top, "real", journalName)
	for _, dir := range []string{"real/x", "real/x/y", "link/x"} {
		dir = filepath.Join(top, dir)
		for _, p := range []Pull{{}, {DryRun: true}, {Once: true}, {EndIfTaken: true}} {
			p.Prefix, p.Dir = "b/", dir
			p.Once = p.Once || !p.EndIfTaken && !p.DryRun
			err := quick(p).Run(t.Context(), s.client())
			if !errors.Is(err, errWithin) || !strings.Contains(err.Error(), "of the directories "+dir+" and ") || !strings.HasSuffix(err.Error(), "remove "+journal) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
	holds(t, top, "real/1", "one")
	if _, err := os.Stat(filepath.Join(top, "real/x")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory was made:", err)
	}
	must(t, once(t, s, Pull{Prefix: "b/", Dir: filepath.Join(top, "real-2")})) // beside it all is well
	r := start(t, s, Pull{Prefix: "b/", Dir: filepath.Join(top, "real/x")})    // as the agent does, which does not end
	r.await("an error", func(st State) bool { return strings.Contains(st.Error, "one is within the other") })
	must(t, os.Remove(journal))
	holds(t, top, "real/1", "one", "real/x/2", "two", "real-2/2", "two")
	r.await("good", good)
}

// A directory below that is another job's is not looked into, written or removed from, also where files of this
// job were there before; that is said once, and each key that would be there is named.
func TestADirectoryWithAnotherInIt(t *testing.T) {
	s := newSite(t, "a/1", "one", "a/app/old", "1", "a/app/own", "2", "b/theirs", "3")
	dir := t.TempDir()
	app := filepath.Join(dir, "app")
	p := Pull{Prefix: "a/", Dir: dir, Delete: true}
	must(t, once(t, s, p))
	must(t, os.Rename(filepath.Join(dir, journalName), filepath.Join(dir, "aside"))) // as if both had started at once
	must(t, once(t, s, Pull{Prefix: "b/", Dir: app, Delete: true}))
	must(t, os.Rename(filepath.Join(dir, "aside"), filepath.Join(dir, journalName)))
	write(t, filepath.Join(app, tempPrefix+"0123"), "theirs")
	s.delete("a/app/old")
	s.set("a/app/own", "changed")
	s.set("a/app/new", "new")
	s.set("a/app", "a file") // in conflict with those below it
	s.set("a/2", "two")
	log := &counter{}
	p.Log, p.Check = log.logger(t), "test ! -e app"
	r := start(t, s, p)
	st := r.await("three keys in trouble", func(st State) bool { return st.Pending == 3 && st.Keys == 2 })
	s.delete("a/app")
	st = r.await("two keys in trouble", func(st State) bool { return st.Pending == 2 && st.Keys == 2 })
	if !strings.Contains(st.Error, `key "a/app/new": of the directories `+dir+" and "+app+", which is that of another sync, one is within the other") {
		t.Error(st.Error)
	}
	s.delete("a/app/new")
	s.delete("a/app/own")
	r.await("good", good)
	holds(t, dir, "1", "one", "2", "two", "app/old", "1", "app/own", "2", "app/theirs", "3")
	if n := log.count(othersLine); n != 1 {
		t.Errorf("%d lines", n)
	}
	if _, err := os.Stat(filepath.Join(app, tempPrefix+"0123")); err != nil {
		t.Error(err)
	}
	r.stop()
	must(t, os.RemoveAll(filepath.Join(app, journalName))) // that one is no more: what it has left stays
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true}))
	holds(t, dir, "1", "one", "2", "two", "app/old", "1", "app/own", "2", "app/theirs", "3")
}
