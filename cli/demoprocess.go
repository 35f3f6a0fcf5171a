package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"gus/agent/client"
)

// startProcess starts the site's agent as a process and waits until it answers.
func (d *demoSites) startProcess(ctx context.Context, s *demoSite) error {
	cmd := exec.Command(d.program, "agent", "--data", s.data, "--socket", s.socket(), "--listen", s.addr.String(),
		"--seed", strings.Join(d.others(s), ","), "--log-level", "error")
	cmd.Args[0] = os.Args[0]
	for _, v := range os.Environ() { // what is set there is for other agents
		if !strings.HasPrefix(v, "GUS_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start site %s: %w", s.name, err)
	}
	s.pid, s.done = cmd.Process.Pid, make(chan error, 1)
	s.stop = func() {
		if cmd.Process.Signal(os.Interrupt) != nil { // a system without
			_ = cmd.Process.Kill()
		}
	}
	go func() { s.done <- cmd.Wait() }()
	for {
		_, err := s.client.Status(ctx)
		if err == nil {
			return nil
		}
		select {
		case err := <-s.done:
			s.pid = 0
			return fmt.Errorf("start site %s: its agent ended: %w", s.name, errors.Join(err, ctx.Err()))
		case <-time.After(10 * time.Millisecond):
		}
		if !errors.Is(err, client.ErrNotRunning) {
			return fmt.Errorf("start site %s: %w", s.name, err)
		}
	}
}
