package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
)

func good(st State) bool { return st.Version != "" && st.Error == "" }

// once runs p to its end.
func once(t *testing.T, s *site, p Pull) error {
	t.Helper()
	p.Once = true
	return quick(p).Run(t.Context(), s.client())
}

// Keys become files of the same name, byte for byte; a change becomes one, and only that.
func TestKeysBecomeFiles(t *testing.T) {
	s := newSite(t, "app/port", "8080", "app/tls/cert.pem", "\x00\xff binary\r\n\n", "app/empty", "", "other/x", "x", "application", "x")
	dir := filepath.Join(t.TempDir(), "made", "here")
	r := start(t, s, Pull{Prefix: "app/", Dir: dir})
	holds(t, dir, "port", "8080", "tls/cert.pem", "\x00\xff binary\r\n\n", "empty", "")
	st := r.await("three keys", func(st State) bool { return good(st) && st.Keys == 3 })
	before, err := os.Stat(filepath.Join(dir, "tls/cert.pem"))
	must(t, err)

	s.set("app/port", "9090")
	s.set("app/new/deep/file", "new\n")
	holds(t, dir, "port", "9090", "tls/cert.pem", "\x00\xff binary\r\n\n", "empty", "", "new/deep/file", "new\n")
	now := r.await("four keys", func(st State) bool { return good(st) && st.Keys == 4 && st.Pending == 0 })
	if now.Version == st.Version {
		t.Error("other files, and the same version")
	}
	if after, err := os.Stat(filepath.Join(dir, "tls/cert.pem")); err != nil || !os.SameFile(before, after) {
		t.Error("a file was replaced that did not change:", err)
	}
	for name, mode := range map[string]os.FileMode{"port": 0o644, "new/deep/file": 0o644, "new/deep": 0o755 | os.ModeDir} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != mode {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
	s.delete("app/port") // without Delete, files stay
	s.set("app/last", "1")
	holds(t, dir, "port", "9090", "tls/cert.pem", "\x00\xff binary\r\n\n", "empty", "", "new/deep/file", "new\n", "last", "1")
}

// Two sites with the same keys show the same version; one that could not write shows another.
func TestVersionsOfTwoSites(t *testing.T) {
	s := newSite(t, "a/1", "one", "a/2", "two")
	one := start(t, s, Pull{Prefix: "a/", Dir: t.TempDir()}).await("good", good)
	other := t.TempDir()
	must(t, os.Mkdir(filepath.Join(other, "2"), 0o755))
	second := start(t, s, Pull{Prefix: "a/", Dir: other})
	st := second.await("an error", func(st State) bool { return st.Error != "" && st.Keys == 1 })
	if st.Version == one.Version || !strings.Contains(st.Error, `key "a/2": `+other+"/2 is a directory") {
		t.Errorf("%+v", st)
	}
	must(t, os.Remove(filepath.Join(other, "2")))
	if st := second.await("good", good); st.Version != one.Version || st.Keys != 2 {
		t.Errorf("%+v and %+v", st, one)
	}
}

// The mode of a file that is replaced stays, as does one that is in place already.
func TestModeIsKept(t *testing.T) {
	s := newSite(t, "a/secret", "new", "a/same", "same")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secret"), "old")
	write(t, filepath.Join(dir, "same"), "same")
	must(t, os.Chmod(filepath.Join(dir, "secret"), 0o600))
	must(t, os.Chmod(filepath.Join(dir, "same"), 0o444))
	ran := filepath.Join(t.TempDir(), "ran")
	start(t, s, Pull{Prefix: "a/", Dir: dir, Exec: "echo x >>" + ran}).await("good", good)
	for name, mode := range map[string]os.FileMode{"secret": 0o600, "same": 0o444} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != mode {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
	holds(t, dir, "secret", "new", "same", "same")
	if n := len(lines(t, ran)); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

// Keys that would leave the directory, or cannot be files, are named; the others go on.
func TestKeysThatCannotBeFiles(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "dir")
	bad := []string{"a/../../escape", "a/..", "a/.", "a//abs", "a/x//y", "a/x/", "a/", "a/.gus-sync", "a/d/.gus-tmp-1", "a/" + strings.Repeat("n", 256)}
	s := newSite(t, "a/good", "1")
	for _, key := range bad {
		s.set(key, "bad")
	}
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true})
	st := r.await("an error for each", func(st State) bool { return st.Pending == len(bad) && st.Keys == 1 })
	if !strings.HasPrefix(st.Error, `key "a/": leaves no name for a file (and 9 more)`) {
		t.Error(st.Error)
	}
	holds(t, top, "dir/good", "1")
	for _, key := range bad {
		s.delete(key)
	}
	r.await("no error", good)
	holds(t, top, "dir/good", "1")
}

// A key beside a key below it is an error for that pair; when one goes, the other comes.
func TestAKeyBesideAKeyBelowIt(t *testing.T) {
	s := newSite(t, "p/a", "file", "p/a/b", "below", "p/c", "1")
	dir := t.TempDir()
	r := start(t, s, Pull{Prefix: "p/", Dir: dir, Delete: true})
	st := r.await("two keys pending", func(st State) bool { return st.Pending == 2 && st.Keys == 1 })
	if !strings.Contains(st.Error, `key "p/a": it would be a file where the key "p/a/b" needs a directory`) {
		t.Error(st.Error)
	}
	holds(t, dir, "c", "1")
	s.delete("p/a/b")
	holds(t, dir, "a", "file", "c", "1")
	r.await("good", good)
	s.set("p/a/b", "again") // and what is in place stays
	r.await("two keys pending", func(st State) bool { return st.Pending == 2 })
	holds(t, dir, "a", "file", "c", "1")
	s.delete("p/a")
	holds(t, dir, "a/b", "again", "c", "1")
	r.await("good", good)
}

// No symbolic link is followed, out of the directory or within it, nor replaced.
func TestSymbolicLinks(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "dir")
	write(t, filepath.Join(top, "victim"), "whole")
	write(t, filepath.Join(dir, "real"), "whole")
	must(t, os.Symlink(top, filepath.Join(dir, "out")))
	must(t, os.Symlink("..", filepath.Join(dir, "up")))
	must(t, os.Symlink("../victim", filepath.Join(dir, "file")))
	must(t, os.Symlink("real", filepath.Join(dir, "in")))
	s := newSite(t, "a/out/victim", "x", "a/up/victim", "x", "a/file", "x", "a/in", "x", "a/ok", "1")
	r := start(t, s, Pull{Prefix: "a/", Dir: dir})
	st := r.await("four problems", func(st State) bool { return st.Pending == 4 && st.Keys == 1 })
	if !strings.Contains(st.Error, "symbolic link") {
		t.Error(st.Error)
	}
	if got := filesOf(t, top); got["victim"] != "whole" || got["dir/real"] != "whole" || got["dir/ok"] != "1" || len(got) != 3 {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"out", "up", "file", "in"} {
		must(t, os.Remove(filepath.Join(dir, name)))
	}
	r.await("good", good)
}

// On a file system that does not tell cases apart, two keys that differ in case alone are an error for the pair.
func TestNamesThatDifferInCase(t *testing.T) {
	x := newIndex(true)
	x.add("README", "p/README")
	touched := x.add("ReadMe", "p/ReadMe")
	if len(touched) != 2 || !strings.Contains(x.conflict("README", "p/README"), `"p/ReadMe"`) || x.conflict("ReadMe", "p/ReadMe") == "" {
		t.Errorf("%q", touched)
	}
	x.add("dir/x", "p/dir/x")
	if touched := x.add("DIR", "p/DIR"); !slices.Equal(touched, []string{"p/dir/x"}) || x.conflict("dir/x", "p/dir/x") == "" {
		t.Errorf("%q", touched)
	}
	if touched := x.remove("ReadMe", "p/ReadMe"); !slices.Equal(touched, []string{"p/README"}) || x.conflict("README", "p/README") != "" {
		t.Errorf("%q", touched)
	}
}

// With Delete, files of deleted keys go, and the directories that were made for them. Nothing else does.
func TestDelete(t *testing.T) {
	s := newSite(t, "a/x/y/z", "1", "a/kept/own", "2", "a/there", "3", "a/edited", "4")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "kept/theirs"), "theirs")
	write(t, filepath.Join(dir, "there"), "3")
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true})
	holds(t, dir, "x/y/z", "1", "kept/own", "2", "there", "3", "edited", "4", "kept/theirs", "theirs")
	r.await("good", good)
	for _, key := range []string{"a/x/y/z", "a/kept/own", "a/there"} {
		s.delete(key)
	}
	holds(t, dir, "edited", "4", "kept/theirs", "theirs")
	eventually(t, func() string {
		if _, err := os.Stat(filepath.Join(dir, "x")); !errors.Is(err, os.ErrNotExist) {
			return "the directory stays"
		}
		return ""
	})
	r.stop()

	s.delete("a/edited") // while nobody looks
	s.set("a/new", "5")
	start(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true}).await("good", good)
	holds(t, dir, "new", "5", "kept/theirs", "theirs")
}

// A site that knows little yet removes nothing: only a quorum's word does, or a deletion.
func TestDataThatAreMissing(t *testing.T) {
	s := newSite(t, "a/1", "one", "a/2", "two", "a/3", "three")
	dir := t.TempDir()
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true}))
	s.hide("a/1", true)
	s.hide("a/2", true)
	s.delete("a/3")
	s.quorum(false)
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true})
	st := r.await("an error", func(st State) bool { return st.Error != "" })
	if !strings.Contains(st.Error, "3 files without a key known here are kept until a quorum says") {
		t.Error(st.Error)
	}
	holds(t, dir, "1", "one", "2", "two", "3", "three")
	s.quorum(true)
	holds(t, dir, "1", "one", "2", "two")
	r.await("good", good)
	s.hide("a/1", false)
	s.set("a/1", "one again")
	holds(t, dir, "1", "one again", "2", "two")
}

// An agent that is away, at the start or later, changes nothing; when it is back all goes on.
func TestAnAgentThatIsAway(t *testing.T) {
	s := newSite(t, "a/1", "one", "a/2", "two")
	dir := t.TempDir()
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true}))
	s.stop()
	if err := once(t, s, Pull{Prefix: "a/", Dir: dir}); !errors.Is(err, client.ErrNotRunning) {
		t.Error(err)
	}
	log := &counter{}
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true, Log: log.logger(t)})
	st := r.await("an error", func(st State) bool { return strings.Contains(st.Error, "the agent is not running") })
	if st.ErrorSince.IsZero() {
		t.Errorf("%+v", st)
	}
	holds(t, dir, "1", "one", "2", "two")
	s.start()
	r.await("good", good)
	s.stop()
	s.set("a/1", "changed")
	s.delete("a/2")
	r.await("an error", func(st State) bool { return st.Error != "" })
	time.Sleep(100 * time.Millisecond) // many attempts
	holds(t, dir, "1", "one", "2", "two")
	s.start()
	holds(t, dir, "1", "changed")
	r.await("good", good)
	r.stop()
	if n := log.count("files are not as they should be"); n != 2 {
		t.Errorf("%d lines for two times away", n)
	}
}

// A site that was put back while a job runs has older versions, and those are what is there: the files
// follow, as they do at a job's start.
func TestASiteThatIsPutBack(t *testing.T) {
	s := newSite(t, "a/1", "one", "a/2", "two")
	dir := t.TempDir()
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Delete: true})
	s.set("a/1", "changed")
	s.delete("a/2")
	s.set("a/3", "three")
	holds(t, dir, "1", "changed", "3", "three")
	s.stop()
	s.putBack("a/1", "one", "a/2", "two")
	s.start()
	holds(t, dir, "1", "one", "2", "two")
	r.await("two keys", func(st State) bool { return good(st) && st.Keys == 2 && st.Pending == 0 })
	s.set("a/1", "changed again") // a version that the job has seen before
	s.delete("a/2")
	holds(t, dir, "1", "changed again")
}

// What was left by a crash is swept; a journal's torn line is none.
func TestAfterACrash(t *testing.T) {
	s := newSite(t, "a/d/1", "one")
	dir := t.TempDir()
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir}))
	write(t, filepath.Join(dir, "d", tempPrefix+"0123"), "half")
	write(t, filepath.Join(dir, liftPrefix+"0123", "x"), "half")
	write(t, filepath.Join(dir, "nested", journalName), journalHeader)
	write(t, filepath.Join(dir, "nested", tempPrefix+"0123"), "another job's")
	f, err := os.OpenFile(filepath.Join(dir, journalName), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	f.WriteString("!\n+torn")
	f.Close()
	ran := filepath.Join(t.TempDir(), "ran")
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir, Exec: "echo $GUS_PREFIX $GUS_DIR $PWD >>" + ran}))
	if got := lines(t, ran); len(got) != 1 || got[0] != "a/ "+dir+" "+dir { // it was owed
		t.Errorf("%q", got)
	}
	for _, name := range []string{"d/" + tempPrefix + "0123", liftPrefix + "0123"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Error(name, "stays:", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "nested", tempPrefix+"0123")); err != nil {
		t.Error(err)
	}
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir, Exec: "echo x >>" + ran}))
	if got := lines(t, ran); len(got) != 1 {
		t.Errorf("%q", got)
	}
	write(t, filepath.Join(dir, journalName), "something else")
	if err := once(t, s, Pull{Prefix: "a/", Dir: dir}); err == nil || !strings.Contains(err.Error(), "was not written by this program") {
		t.Error(err)
	}
}

// A second job for a directory is refused as long as the first one runs.
func TestTwoJobsForADirectory(t *testing.T) {
	s := newSite(t, "a/1", "one")
	dir := t.TempDir()
	r := start(t, s, Pull{Prefix: "a/", Dir: dir})
	r.await("good", good)
	if err := once(t, s, Pull{Prefix: "b/", Dir: dir}); err == nil || !strings.Contains(err.Error(), "another job") {
		t.Error(err)
	}
	if err := quick(Pull{Prefix: "a/", Dir: dir, EndIfTaken: true}).Run(t.Context(), s.client()); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	log := &counter{}
	waits := start(t, s, Pull{Prefix: "a/", Dir: dir, Log: log.logger(t)})
	eventually(t, func() string {
		if n := log.count("another job puts files there"); n != 1 {
			return fmt.Sprint(n, " lines")
		}
		return ""
	})
	time.Sleep(50 * time.Millisecond) // many attempts
	if n := log.count(""); n != 1 || waits.state() != (State{}) {
		t.Errorf("%d lines, and the row of the other job is %+v", n, waits.state())
	}
	r.stop()
	waits.await("good", good)
	waits.stop()
	must(t, once(t, s, Pull{Prefix: "b/", Dir: dir}))
}

// A run that ends names each key that is no file, up to a number.
func TestProblemsAreLines(t *testing.T) {
	s := newSite(t, "a/x", "1", "a/..", "1", "a/.gus-1", "1")
	p := Pull{Prefix: "a/", Dir: t.TempDir()}
	for _, dry := range []bool{false, true} {
		p.DryRun = dry
		var all Problems
		if err := once(t, s, p); !errors.As(err, &all) || len(all) != 2 || !strings.HasPrefix(all[0], `key "a/..": `) || !strings.HasPrefix(all[1], `key "a/.gus-1": `) {
			t.Errorf("%q", all)
		}
	}
	for n := range 30 {
		s.set(fmt.Sprintf("a/%02d/", n), "1")
	}
	var all Problems
	if err := once(t, s, p); !errors.As(err, &all) || len(all) != 21 || all[20] != "and 12 more" {
		t.Errorf("%q", all)
	}
}

// What somebody removes comes back with the next batch; what somebody edits stays until its key changes.
func TestFilesThatAreRemovedByHand(t *testing.T) {
	s := newSite(t, "a/conf", "include d/more\n", "a/d/more", "x\n", "a/edited", "1")
	dir := t.TempDir()
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Check: "cat $(cut -d' ' -f2 conf)"})
	holds(t, dir, "conf", "include d/more\n", "d/more", "x\n", "edited", "1")
	r.await("good", good)
	must(t, os.RemoveAll(filepath.Join(dir, "d")))
	write(t, filepath.Join(dir, "edited"), "by hand")
	s.set("a/new", "1")
	holds(t, dir, "conf", "include d/more\n", "d/more", "x\n", "edited", "by hand", "new", "1")
	r.await("four keys", func(st State) bool { return good(st) && st.Keys == 4 && st.Pending == 0 })
	s.set("a/edited", "2")
	holds(t, dir, "conf", "include d/more\n", "d/more", "x\n", "edited", "2", "new", "1")
}

// A directory that is replaced while a job runs is filled anew.
func TestADirectoryThatIsReplaced(t *testing.T) {
	s := newSite(t, "a/1", "one", "a/2", "two")
	dir := filepath.Join(t.TempDir(), "dir")
	r := start(t, s, Pull{Prefix: "a/", Dir: dir})
	holds(t, dir, "1", "one", "2", "two")
	r.await("good", good)
	must(t, os.Rename(dir, dir+".old"))
	s.set("a/1", "changed")
	holds(t, dir, "1", "changed", "2", "two")
}

// A dry run says what would be done, and does nothing.
func TestADryRun(t *testing.T) {
	s := newSite(t, "a/1", "one", "a/2", "two", "a/3", "three")
	dir := filepath.Join(t.TempDir(), "dir")
	run := func() (did []string) {
		p := Pull{Prefix: "a/", Dir: dir, DryRun: true, Delete: true, Exec: "false", Change: func(c Change) {
			did = append(did, fmt.Sprintf("%s %s %d", c.Op, filepath.Base(c.File), c.Size))
		}}
		must(t, quick(p).Run(t.Context(), s.client()))
		return did
	}
	if got := run(); !slices.Equal(got, []string{"add 1 3", "add 2 3", "add 3 5"}) {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir}))
	s.set("a/1", "changed")
	s.delete("a/2")
	if got := run(); !slices.Equal(got, []string{"change 1 7", "delete 2 0"}) {
		t.Errorf("%q", got)
	}
	holds(t, dir, "1", "one", "2", "two", "3", "three")
}

func TestValidate(t *testing.T) {
	for _, p := range []Pull{
		{Prefix: "app", Dir: "x"}, {Prefix: "_gus/", Dir: "x"}, {Prefix: "_gus/sync/", Dir: "x"}, {Prefix: "a\n/", Dir: "x"}, {Prefix: "a/"}, {Dir: "x", Timeout: -1},
	} {
		if err := p.Validate(); err == nil {
			t.Errorf("%+v is valid", p)
		}
		if err := p.Run(context.Background(), nil); err == nil {
			t.Errorf("%+v runs", p)
		}
	}
}

// System keys are no files, also where all keys are.
func TestAllKeys(t *testing.T) {
	s := newSite(t, "a", "1", "_gus/sync/x/y", "{}")
	dir := t.TempDir()
	r := start(t, s, Pull{Dir: dir})
	holds(t, dir, "a", "1")
	s.set("_gus/sync/x/y", "{1}")
	s.set("b", "2")
	holds(t, dir, "a", "1", "b", "2")
	r.await("good", good)
	s.together("Z", "3", "_gus/sync/x/y", "{2}") // told in this order: the last one is no file, and ends the batch all the same
	holds(t, dir, "a", "1", "b", "2", "Z", "3")
}

// Files wait for the end of a batch, which a keepalive tells as well; of a key no watch goes back.
func TestTheEndOfABatch(t *testing.T) {
	p, err := quick(Pull{Prefix: "a/", Dir: t.TempDir(), DryRun: true}).withDefaults()
	must(t, err)
	j := newJob(p, nil)
	j.watch, j.depsSynced, j.hold.depsWhole = 1, true, true
	for _, step := range []struct {
		client.Event
		due     bool
		version client.Version // that a/1 is to have then
	}{
		{client.Event{Type: client.EventSet, Key: "a/1", Version: "1.1"}, false, "1.1"},
		{client.Event{Type: client.EventSynced}, true, "1.1"},
		{client.Event{Type: client.EventSet, Key: "a/1", Version: "3.1", More: true}, false, "3.1"},
		{client.Event{Type: client.EventAlive}, true, "3.1"},
		{client.Event{Type: client.EventDelete, Key: "a/1", Version: "2.1", More: true}, false, "3.1"},
		{client.Event{Type: client.EventSet, Key: "a/1", Version: "2.1"}, true, "3.1"},
	} {
		must(t, j.take(told{Event: step.Event}))
		if _, due := j.due(); due != step.due || j.known["a/1"].version != step.version {
			t.Errorf("after %+v: due %v, version %s", step.Event, due, j.known["a/1"].version)
		}
	}
}
