package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const keptLine = "files that a job of another prefix has put in place are kept"

// What a job of another prefix has put in place is not this job's to remove, nor the first one's
// any more after that. The log says so once.
func TestFilesOfAnotherPrefix(t *testing.T) {
	s := newSite(t, "app/port", "8080", "app/d/x", "1", "a = ~b/y", "2")
	dir := t.TempDir()
	pull := func(prefix string) int {
		log := &counter{}
		must(t, once(t, s, Pull{Prefix: prefix, Dir: dir, Delete: true, Log: log.logger(t)}))
		return log.count(keptLine)
	}
	if n := pull("app/"); n != 0 {
		t.Errorf("%d lines of a new directory", n)
	}
	for _, want := range []int{1, 0} {
		if n := pull("a = ~b/"); n != want {
			t.Errorf("%d lines, want %d", n, want)
		}
		holds(t, dir, "port", "8080", "d/x", "1", "y", "2")
	}
	s.delete("app/port")
	s.delete("a = ~b/y")
	if n := pull("app/d/"); n != 1 {
		t.Errorf("%d lines", n)
	}
	holds(t, dir, "port", "8080", "d/x", "1", "y", "2", "x", "1")
	pull("app/") // its own before, d/x is found as it should be
	s.delete("app/d/x")
	pull("app/")
	holds(t, dir, "port", "8080", "y", "2", "x", "1")
}

// With templates the same keys are other files: no deletion was told of those that there were before.
func TestFilesOfAJobWithoutTemplates(t *testing.T) {
	s := newSite(t, "a/x.tmpl", `{{ key "a/y" }}`, "a/y", "1")
	dir := t.TempDir()
	p := Pull{Prefix: "a/", Dir: dir, Delete: true}
	must(t, once(t, s, p))
	p.Template = true
	must(t, once(t, s, p))
	holds(t, dir, "x.tmpl", `{{ key "a/y" }}`, "x", "1", "y", "1")
	s.delete("a/x.tmpl")
	must(t, once(t, s, p))
	holds(t, dir, "x.tmpl", `{{ key "a/y" }}`, "y", "1")
}

// A dry run for another prefix would remove nothing either, and leaves the journal as it is.
func TestADryRunOfAnotherPrefix(t *testing.T) {
	s := newSite(t, "a/1", "one", "b/2", "two")
	dir := t.TempDir()
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir}))
	before, err := os.ReadFile(filepath.Join(dir, journalName))
	must(t, err)
	var did []string
	must(t, quick(Pull{Prefix: "b/", Dir: dir, DryRun: true, Delete: true, Change: func(c Change) {
		did = append(did, fmt.Sprint(c.Op, " ", filepath.Base(c.File)))
	}}).Run(t.Context(), s.client()))
	if !slices.Equal(did, []string{"add 2"}) {
		t.Errorf("%q", did)
	}
	if after, err := os.ReadFile(filepath.Join(dir, journalName)); err != nil || string(after) != string(before) {
		t.Errorf("the journal was %q and is %q: %v", before, after, err)
	}
}

// A journal that does not say whose it is is nobody's: files of keys that are deleted by now stay. The
// command that is owed is owed to the directory.
func TestAJournalOfNobody(t *testing.T) {
	s := newSite(t, "a/1", "one")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1"), "one")
	write(t, filepath.Join(dir, "2"), "two")
	write(t, filepath.Join(dir, journalName), journalHeader+"+1\n+2\n!\n")
	ran := filepath.Join(t.TempDir(), "ran")
	log := &counter{}
	p := Pull{Prefix: "a/", Dir: dir, Delete: true, Exec: "echo x >>" + ran, Log: log.logger(t)}
	must(t, once(t, s, p))
	holds(t, dir, "1", "one", "2", "two")
	if got := lines(t, ran); len(got) != 1 || got[0] != "x" || log.count(keptLine) != 1 {
		t.Errorf("the command ran %q, and %d lines of the log", got, log.count(keptLine))
	}
	s.delete("a/1") // it was found there with the key's bytes
	must(t, once(t, s, p))
	holds(t, dir, "2", "two")
}

// A journal that has grown is written anew, and says then as before whose the names are.
func TestAJournalThatHasGrown(t *testing.T) {
	for _, owner := range []Pull{{}, {Prefix: "a/"}, {Prefix: " = +-~!. /", Template: true}} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, journalName), journalHeader+owner.owner()+"\n+x\n+d/\n"+strings.Repeat("+y\n-y\n", 1000))
		tr, err := openTree(dir, false)
		must(t, err)
		for range 2 { // as it was, and as it is written anew
			j, err := openJournal(tr, owner.owner(), false)
			must(t, err)
			if len(j.names) != 2 || !j.names["x"] || !j.names["d/"] || j.forgotten != 0 {
				t.Errorf("%q: %+v", owner.owner(), j)
			}
			j.close()
		}
		tr.close()
		if fi, err := os.Stat(filepath.Join(dir, journalName)); err != nil || fi.Size() > 100 {
			t.Errorf("it is not written anew: %v", err)
		}
	}
}
