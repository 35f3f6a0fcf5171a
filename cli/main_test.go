package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gus/agent/client"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"gus":    func() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
		"dirsum": dirsum,
	})
}

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// TestScripts runs the stories in testdata/script with real processes. Beside the
// usual commands there are
//
//	exits CODE PROGRAM ARG...   run it and want this exit code
//	await SOCKET N              wait until the agent there reaches N voters
//	eventually ARG...           run gus with the arguments until it succeeds
//	eventually-says WORD ARG... run gus with the arguments until stdout has the word
//	eventually-file FILE WORD   wait until the file has the word
//	readenv NAME FILE           set a variable to what a file holds
//	sigterm                     send SIGTERM to all that runs in the background
//
// the variables $A to $F, which are UDP addresses that nobody uses, and the
// file large, one byte over the limit of values.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":           exits,
			"await":           await,
			"eventually":      eventually,
			"eventually-says": eventuallySays,
			"eventually-file": eventuallyFile,
			"readenv":         readEnv,
			"sigterm":         sigterm,
		},
	})
}

func setUp(e *testscript.Env) error {
	e.Setenv("CONFIGURATION_DIRECTORY", e.WorkDir) // not that of whoever runs the tests
	if err := os.WriteFile(filepath.Join(e.WorkDir, "large"), make([]byte, client.MaxValue+1), 0o600); err != nil {
		return err
	}
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		e.Setenv(name, c.LocalAddr().String())
		defer c.Close()
	}
	return nil
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("run %v: %v", args[1:], err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("%v exits with %d, want %d", args[1:], code, want)
	}
}

// poll tries f until it succeeds, for a minute.
func poll(ts *testscript.TestScript, f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			ts.Fatalf("for a minute: %v", err)
		}
	}
}

func await(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: await SOCKET N")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	c := client.New(ts.MkAbs(args[0]))
	defer c.Close()
	poll(ts, func(ctx context.Context) error {
		s, err := c.Status(ctx)
		if err == nil && s.Quorum.Reached != want {
			err = fmt.Errorf("%d voters are in reach, want %d", s.Quorum.Reached, want)
		}
		return err
	})
}

func eventually(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, func(context.Context) error { return ts.Exec("gus", args...) })
}

func eventuallySays(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, func(context.Context) error {
		if err := ts.Exec("gus", args[1:]...); err != nil {
			return err
		}
		if out := ts.ReadFile("stdout"); !strings.Contains(out, args[0]) {
			return fmt.Errorf("%q is missing in %s", args[0], out)
		}
		return nil
	})
}

func eventuallyFile(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: eventually-file FILE WORD")
	}
	poll(ts, func(context.Context) error {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && !strings.Contains(string(b), args[1]) {
			err = fmt.Errorf("%q is missing in %s", args[1], b)
		}
		return err
	})
}

func readEnv(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: readenv NAME FILE")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

func sigterm(ts *testscript.TestScript, _ bool, _ []string) {
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(syscall.SIGTERM))
	}
}
