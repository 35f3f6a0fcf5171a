//go:build unix

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTheTourOfTheReadme types what the README says into a shell, a line at a time, and
// waits where a reader would look.
func TestTheTourOfTheReadme(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```bash\n(cd \"\\$\\(mktemp -d\\)\".*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("the README has no tour")
	}
	lines := slices.Collect(strings.Lines(string(block[1])))
	look := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "gus sync status") })
	if look < 0 {
		t.Fatal("the tour does not look at what all sites have")
	}

	sh := startShell(t, bash)
	sh.typeIn(lines[:look]...)
	dir := ""
	eventuallyOK(t, "all sites have the same", func() (err error) {
		if dir, err = onlyDir(sh.temp); err != nil {
			return err
		}
		return sameAsConf(dir)
	})
	eventuallyOK(t, "all sites say so", func() error {
		cmd := exec.Command("gus", "sync", "status", "app/", "--json", "--data", filepath.Join(dir, "kiosk"))
		cmd.Env = sh.cmd.Env
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		return allTheSame(string(out), 4)
	})
	sh.typeIn(lines[look:]...)
	out := sh.end("wait\n")
	version := regexp.MustCompile(`(?m)^(?:a|b|c|kiosk) +app/ +([0-9a-f]{16}) +2 `).FindAllStringSubmatch(out, -1)
	if len(version) != 4 || version[0][1] != version[3][1] || strings.Count(out, "==> files/changed-") != 4 || strings.Contains(out, "diff") {
		t.Errorf("it prints:\n%s", out)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "files/c/app.conf")); string(b) != "port = 9090\n" || err != nil {
		t.Errorf("app.conf at c: %q, %v", b, err)
	}
}

// sameAsConf says which site's files are not those of conf.
func sameAsConf(dir string) error {
	want, err := digest(filepath.Join(dir, "conf"))
	for _, s := range []string{"a", "b", "c", "kiosk"} {
		got, err2 := digest(filepath.Join(dir, "files", s))
		if err = errors.Join(err, err2); err == nil && got != want {
			err = fmt.Errorf("%s has other files", s)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "conf/app.conf")); string(b) != "port = 9090\n" || err != nil {
		return fmt.Errorf("app.conf is %q yet, %v", b, err)
	}
	return err
}

// onlyDir returns the one directory in dir.
func onlyDir(dir string) (string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d directories in %s", len(all), dir)
	}
	return strings.Join(all, ""), err
}

// shell is a shell that reads what is typed.
type shell struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  bytes.Buffer
	temp string // for temporary files
}

func startShell(t *testing.T, path string) *shell {
	s := &shell{t: t, temp: t.TempDir(), cmd: exec.Command(path, "--norc", "--noprofile")}
	home := t.TempDir()
	s.cmd.Dir = home
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + s.temp, "CONFIGURATION_DIRECTORY=" + home}
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.SysProcAttr = &s.out, &s.out, attributes()
	s.cmd.WaitDelay = patience // for those that hold its output, once it has ended
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end("kill $(jobs -p); wait\n") })
	return s
}

// typeIn types lines.
func (s *shell) typeIn(lines ...string) {
	s.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(s.in, l); err != nil {
			s.t.Fatalf("the shell has ended: %v", err)
		}
	}
}

// end types the last lines, waits for the shell's end, and returns all that was printed.
func (s *shell) end(lines string) string {
	s.t.Helper()
	if s.in == nil {
		return s.out.String()
	}
	_, _ = io.WriteString(s.in, lines) // one that has ended reads no more
	s.in.Close()
	s.in = nil
	hung := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer hung.Stop()
	if err := s.cmd.Wait(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			s.t.Errorf("the shell: %v", err)
		}
	}
	return s.out.String()
}
