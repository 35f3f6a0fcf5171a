//go:build unix

package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A thousand changes in a moment: the last one lands, and the command sees it, run few times.
func TestAThousandChanges(t *testing.T) {
	s := newSite(t, "a/n", "0", "a/other", "x")
	dir := t.TempDir()
	ran := filepath.Join(t.TempDir(), "ran")
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Exec: "cat n >>" + ran + "; echo >>" + ran})
	r.await("good", good)
	for n := range 1000 {
		s.set("a/n", strconv.Itoa(n+1))
	}
	holds(t, dir, "n", "1000", "other", "x")
	eventually(t, func() string {
		if got := lines(t, ran); got[len(got)-1] != "1000" {
			return fmt.Sprint("the command saw ", got[len(got)-1])
		}
		return ""
	})
	if n := len(lines(t, ran)); n > 500 {
		t.Errorf("the command ran %d times", n)
	}
	before := len(lines(t, ran))
	for range 10 { // nothing changes: nothing runs
		s.set("a/n", "1000")
	}
	v := r.state().Version
	r.await("another version", func(st State) bool { return good(st) && st.Version != v })
	if n := len(lines(t, ran)); n != before {
		t.Errorf("the command ran %d times for nothing", n-before)
	}
}

// A batch of changes is one run of the command.
func TestABatchIsOneRun(t *testing.T) {
	s := newSite(t)
	for n := range 100 {
		s.set(fmt.Sprintf("a/%03d", n), "x")
	}
	ran := filepath.Join(t.TempDir(), "ran")
	must(t, once(t, s, Pull{Prefix: "a/", Dir: t.TempDir(), Exec: "ls | wc -l >>" + ran}))
	if got := lines(t, ran); len(got) != 1 || strings.TrimSpace(got[0]) != "100" {
		t.Errorf("%q", got)
	}
}

// A command that fails is run again until it does not, after a restart as well.
func TestACommandThatFails(t *testing.T) {
	s := newSite(t, "a/1", "one")
	dir, top := t.TempDir(), t.TempDir()
	ran, ok := filepath.Join(top, "ran"), filepath.Join(top, "ok")
	p := Pull{Prefix: "a/", Dir: dir, Exec: "echo x >>" + ran + "; echo no luck >&2; test -e " + ok}
	if err := once(t, s, p); err == nil || !strings.Contains(err.Error(), "exit status 1: no luck") {
		t.Error(err)
	}
	r := start(t, s, p)
	st := r.await("three failures", func(st State) bool { return st.ExecFailures >= 3 })
	if !strings.Contains(st.Error, "no luck") || st.Keys != 1 || st.Pending != 0 {
		t.Errorf("%+v", st)
	}
	r.stop()
	holds(t, dir, "1", "one")
	write(t, ok, "")
	n := len(lines(t, ran))
	r = start(t, s, p)
	r.await("good", good)
	r.stop()
	must(t, once(t, s, p))
	if got := len(lines(t, ran)); got != n+1 {
		t.Errorf("the command ran %d times after that, want once", got-n)
	}
}

// A command that hangs is ended at its timeout, with all that it started.
func TestACommandThatHangs(t *testing.T) {
	s := newSite(t, "a/1", "one")
	top := t.TempDir()
	pids := filepath.Join(top, "pids")
	p := Pull{
		Prefix: "a/", Dir: t.TempDir(), Timeout: 2 * time.Second,
		Exec: "trap '' TERM; sleep 1000 & echo $! >>" + pids + "; echo $$ >>" + pids + "; wait; wait",
	}
	if err := once(t, s, p); err == nil || !strings.Contains(err.Error(), "took more than 2s and was killed") {
		t.Error(err)
	}
	for _, pid := range lines(t, pids) {
		n, err := strconv.Atoi(pid)
		must(t, err)
		eventually(t, func() string {
			if syscall.Kill(n, 0) == nil && !zombie(n) {
				return "process " + pid + " lives"
			}
			return ""
		})
	}
}

// zombie says whether a process has ended and nobody has asked how.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(b), ") Z ")
}

// Who ends the job ends its command, which is run again at the next start.
func TestACommandThatIsInterrupted(t *testing.T) {
	s := newSite(t, "a/1", "one")
	top := t.TempDir()
	ran := filepath.Join(top, "ran")
	p := Pull{Prefix: "a/", Dir: t.TempDir(), Exec: "echo x >>" + ran + "; test $(wc -l <" + ran + ") -gt 1 || exec sleep 1000"}
	r := start(t, s, p)
	eventually(t, func() string {
		if lines(t, ran)[0] != "x" {
			return "it does not run"
		}
		return ""
	})
	r.stop()
	must(t, once(t, s, p))
	if got := lines(t, ran); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// Check sees all files as they would be, and where it says no, none is put in place.
func TestCheck(t *testing.T) {
	s := newSite(t, "a/conf", "limit 1\n", "a/d/more", "x\n")
	dir, top := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "theirs/by-hand"), "theirs\n")
	must(t, os.Symlink("by-hand", filepath.Join(dir, "theirs/link")))
	seen, ran := filepath.Join(top, "seen"), filepath.Join(top, "ran")
	p := Pull{
		Prefix: "a/", Dir: dir, Delete: true,
		Check: `test "$PWD" = "$GUS_STAGE" && test -d "$GUS_DIR" && find . | sort >` + seen + ` && cat theirs/link && if grep bad conf; then exit 3; fi`,
		Exec:  "echo x >>" + ran,
	}
	r := start(t, s, p)
	holds(t, dir, "conf", "limit 1\n", "d/more", "x\n", "theirs/by-hand", "theirs\n")
	first := r.await("good", good)
	if got := strings.Join(lines(t, seen), " "); got != ". ./conf ./d ./d/more ./theirs ./theirs/by-hand ./theirs/link" {
		t.Error(got)
	}
	s.set("a/conf", "bad 2\n")
	s.set("a/e/new", "1")
	st := r.await("a failed check", func(st State) bool { return st.Error != "" && st.Pending == 2 })
	if !strings.Contains(st.Error, "changed files were not put in place: check: ") || !strings.Contains(st.Error, "exit status 3: bad 2") || st.Version != first.Version {
		t.Errorf("%+v", st)
	}
	holds(t, dir, "conf", "limit 1\n", "d/more", "x\n", "theirs/by-hand", "theirs\n")
	s.set("a/conf", "limit 3\n")
	s.delete("a/d/more")
	holds(t, dir, "conf", "limit 3\n", "e/new", "1", "theirs/by-hand", "theirs\n")
	r.await("good", good)
	r.stop()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ownPrefix) && e.Name() != journalName {
			t.Error(e.Name(), "is left")
		}
	}
	for _, line := range lines(t, ran) {
		if line != "x" {
			t.Error(line)
		}
	}
}

// What a command left in the background is its own: it ran well.
func TestACommandThatStaysInTheBackground(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for output that does not end")
	}
	s := newSite(t, "a/1", "one")
	pid := filepath.Join(t.TempDir(), "pid")
	must(t, once(t, s, Pull{Prefix: "a/", Dir: t.TempDir(), Exec: "sleep 1000 & echo $! >" + pid}))
	n, err := strconv.Atoi(lines(t, pid)[0])
	must(t, err)
	must(t, syscall.Kill(n, syscall.SIGKILL)) // it was still there
}
