//go:build unix

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gus/agent/client"
)

// patience is for whatever must come to pass by itself: so generous that only a hang
// meets it.
const patience = 2 * time.Minute

// eventuallyOK calls f until it returns nil.
func eventuallyOK(t *testing.T, what string, f func() error) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	end := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-end:
			t.Fatalf("%s: for %v: %v", what, patience, err)
		}
	}
}

// runSite is a site whose agent is a process, and whose job that keeps files is another one,
// or the agent's own.
type runSite struct {
	t       *testing.T
	name    string
	home    string // all else is below it
	listen  string
	public  string // where the others reach it
	own     bool   // the agent keeps the files
	client  *client.Client
	running map[string]*running // "agent" and "pull", while they are to run
}

// running is a process.
type running struct {
	cmd      *exec.Cmd
	mu       sync.Mutex
	expected bool // that it ends
	ended    chan struct{}
	err      error // after that
}

func (s *runSite) path(name string) string { return filepath.Join(s.home, name) }
func (s *runSite) files() string           { return s.path("files") }

// command is gus with the site's directory, and nothing of whoever runs the tests.
func (s *runSite) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "gus", args...)
	cmd.Dir = s.home
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "TMPDIR=" + os.TempDir(),
		"CONFIGURATION_DIRECTORY=" + s.home, "GUS_DATA=" + s.path("data"), "GUS_SOCKET=" + s.path("sock"),
	}
	return cmd
}

// gus runs gus to its end and returns what it prints.
func (s *runSite) gus(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := s.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("gus %q at %s: %w: %s", args, s.name, err, errs.String())
	}
	return out.String(), nil
}

func (s *runSite) must(args ...string) string {
	s.t.Helper()
	out, err := s.gus(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// start starts the agent, and the job beside it, where they do not run.
func (s *runSite) start() {
	s.t.Helper()
	if s.running["agent"] == nil {
		s.run("agent", "agent", "--listen", s.listen, "--advertise", s.public)
	}
	if s.running["pull"] == nil && !s.own {
		s.run("pull", "sync", "pull", scenarioPrefix, s.files(), "--delete", "--exec", scenarioExec)
	}
}

// run starts a process, whose log is in a file of its name.
func (s *runSite) run(name string, args ...string) {
	s.t.Helper()
	log, err := os.OpenFile(s.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close() // the process has its own
	r := &running{cmd: s.command(context.Background(), args...), ended: make(chan struct{})}
	r.cmd.Stderr, r.cmd.SysProcAttr = log, attributes()
	if err := r.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.running[name] = r
	go func() { // ends with the process; stop waits for it
		defer close(r.ended)
		r.err = r.cmd.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.expected {
			s.t.Errorf("%s of %s ended unasked: %v: %s", name, s.name, r.err, tail(s.path(name+".log")))
		}
	}()
}

// stop ends a process by a signal, and waits for it.
func (s *runSite) stop(name string, sig syscall.Signal) {
	s.t.Helper()
	r := s.running[name]
	if r == nil {
		return
	}
	delete(s.running, name)
	r.mu.Lock()
	r.expected = true
	r.mu.Unlock()
	_ = r.cmd.Process.Signal(sig) // one that has ended says so above
	select {
	case <-r.ended:
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		<-r.ended
		s.t.Errorf("%s of %s was sent %v and did not end in %v", name, s.name, sig, patience)
	}
	if sig != syscall.SIGKILL && r.err != nil {
		s.t.Errorf("%s of %s ended badly after %v: %v: %s", name, s.name, sig, r.err, tail(s.path(name+".log")))
	}
}

// freeze holds the agent, as a machine that hangs does.
func (s *runSite) freeze(frozen bool) {
	sig := syscall.SIGCONT
	if frozen {
		sig = syscall.SIGSTOP
	}
	if r := s.running["agent"]; r != nil {
		_ = r.cmd.Process.Signal(sig)
	}
}

// close ends what runs, well.
func (s *runSite) close() {
	s.freeze(false)
	s.stop("pull", syscall.SIGTERM)
	s.stop("agent", syscall.SIGTERM)
	s.client.Close()
}

// tail returns the last lines of a file, for an error.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return "\n" + strings.Join(lines[max(0, len(lines)-15):], "\n")
}
