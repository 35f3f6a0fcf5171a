//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gus/agent/client"
	"gus/register"
)

// deadline is the harness's own for whatever must come to an end by itself: so
// generous that only a hang meets it.
const deadline = 2 * time.Minute

// site is one of the cluster, its agent a process or at times none.
type site struct {
	name    string
	number  register.Voter
	dir     string // of its own; data, log and the rest are in it
	data    string
	listen  string // where its agent's socket is
	public  string // where others reach it
	program string
	fail    func(error)
	client  *client.Client

	hands sync.Mutex // held by whoever stops and starts the agent

	mu      sync.Mutex
	process *process
}

// process is an agent that runs, or has run.
type process struct {
	cmd      *exec.Cmd
	expected atomic.Bool   // it was told to end
	ended    chan struct{} // closed when it has
	err      error         // how, after that
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// run runs gus to its end, and returns what it prints.
func (s *site) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.program, append(args, "--data", s.data)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gus %s at %s: %w: %s", args[0], s.name, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// start starts the agent and returns when it answers.
func (s *site) start() error {
	log, err := os.OpenFile(s.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	p := &process{ended: make(chan struct{})}
	p.cmd = exec.Command(s.program, "agent", "--data", s.data, "--socket", s.path("s"), "--listen", s.listen, "--advertise", s.public)
	p.cmd.Env = append(os.Environ(), "GUS_TORTURE_CLOCK="+s.path("clock"))
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = attributes()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start the agent of %s: %w", s.name, err)
	}
	go s.attend(p) // ends with the process; stop waits for it
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	return s.await(p)
}

// attend waits for the end of p.
func (s *site) attend(p *process) {
	p.err = p.cmd.Wait()
	if !p.expected.Load() {
		s.fail(fmt.Errorf("the agent of %s ended unasked: %v: %s", s.name, p.err, lastLine(s.path("log"))))
	}
	close(p.ended)
}

// await waits until p answers.
func (s *site) await(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if _, err = s.client.Status(ctx); err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the agent of %s ended at its start: %v: %s", s.name, p.err, lastLine(s.path("log")))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("the agent of %s does not answer for %v after its start: %w", s.name, deadline, err)
}

// signal sends the agent a signal.
func (s *site) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	if err := s.process.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the agent of %s: %w", s.name, err)
	}
	return nil
}

// stop ends the agent by a signal and waits for it. One that was asked politely
// ends well.
func (s *site) stop(sig syscall.Signal) error {
	s.mu.Lock()
	p := s.process
	s.process = nil
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	p.expected.Store(true)
	_ = p.cmd.Process.Signal(sig) // where it has ended, its attendant says so
	select {
	case <-p.ended:
	case <-time.After(deadline):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("the agent of %s was sent %v and did not end in %v", s.name, sig, deadline)
	}
	if sig != syscall.SIGKILL && p.err != nil {
		return fmt.Errorf("the agent of %s ended badly after %v: %w: %s", s.name, sig, p.err, lastLine(s.path("log")))
	}
	return nil
}

// setClock makes the agent's clock wrong by d, also after a restart.
func (s *site) setClock(d time.Duration) error {
	if err := os.WriteFile(s.path("clock.new"), []byte(d.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(s.path("clock.new"), s.path("clock"))
}

// lastLine returns the last line of a file, for an error.
func lastLine(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
