package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// commandGrace is how long a command's process group is given between SIGTERM and SIGKILL,
// and how long its output is waited for after it ended.
const commandGrace = 2 * time.Second

// command is one that a job runs.
type command struct {
	what    string // for people: "check" or "exec"
	line    string // for /bin/sh -c
	dir     string
	env     []string
	timeout time.Duration
	out     io.Writer // gets what it prints
}

// run runs c and waits for it. At its timeout, or when ctx ends, its process group
// is ended. What it left running in the background is not.
func (c command) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimeout)
	defer cancel()
	last := &tail{}
	x := exec.CommandContext(ctx, "/bin/sh", "-c", c.line)
	x.Dir, x.Env = c.dir, append(os.Environ(), c.env...)
	x.Stdout = io.MultiWriter(last, c.out)
	x.Stderr = x.Stdout
	x.Cancel = func() error { return endGroup(x, false) }
	x.WaitDelay = commandGrace
	group(x)
	if err := x.Start(); err != nil {
		return fmt.Errorf("%s: %w", c.what, err)
	}
	err := x.Wait()
	if ctx.Err() != nil {
		_ = endGroup(x, true) // whoever is left
	}
	switch {
	case errors.Is(context.Cause(ctx), errTimeout) && err != nil:
		return fmt.Errorf("%s: `%s` took more than %v and was killed%s", c.what, c.line, c.timeout, last)
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil:
		return nil
	}
	return fmt.Errorf("%s: `%s`: %w%s", c.what, c.line, err, last)
}

var errTimeout = errors.New("timeout")

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 1 << 10
	t.b = append(t.b, p[max(0, len(p)-most):]...)
	if len(t.b) > 2*most {
		t.b = append(t.b[:0], t.b[len(t.b)-most:]...)
	}
	return len(p), nil
}

// String returns the last line, for the end of an error.
func (t *tail) String() string {
	b := bytes.TrimSpace(t.b)
	line := strings.ToValidUTF8(string(b[bytes.LastIndexByte(b, '\n')+1:]), "?")
	if len(line) > 300 {
		line = strings.ToValidUTF8(line[:300], "") + "..."
	}
	if line == "" {
		return ""
	}
	return ": " + line
}
