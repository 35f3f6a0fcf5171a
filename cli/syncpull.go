package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
	"gus/agent/files"
)

func (a *app) syncPullCommand() *cli.Command {
	return command(cli.Command{
		Name:      "pull",
		Usage:     "keep files as keys are",
		ArgsUsage: "PREFIX DIR",
		Description: "Writes each key below PREFIX to the file of the same name below DIR, whole or not at all, and only where\n" +
			"bytes differ; and goes on until stopped. PREFIX ends with a slash; '' is all keys. Mode and owner of a\n" +
			"file that is replaced stay; new files have mode 0644, new directories 0755. Without the agent, or a quorum,\n" +
			"the files stay as they are. What cannot be a file is named, and everything else goes on.\n\n" +
			"Commands are run by /bin/sh -c with GUS_PREFIX and GUS_DIR. --check runs in GUS_STAGE, a directory that\n" +
			"holds all that DIR would: where it fails, nothing changes. --exec runs in DIR once for each batch of\n" +
			"changes, again after a failure, and at the next start if it has not succeeded.\n\n" +
			"With --template a key NAME.tmpl is a Go text/template for the file NAME, with the functions key, keys, site\n" +
			"and env:  listen {{ key \"app/port\" }} at {{ site }}\n\n" +
			"The agent's configuration file may have any number of these, as [[sync]]: see `gus agent --help`.",
		Flags: clientFlags(
			&cli.StringFlag{Name: "check", Usage: "the `COMMAND` that sees new files before they are put in place"},
			&cli.StringFlag{Name: "exec", Usage: "the `COMMAND` that is run after files were changed"},
			&cli.DurationFlag{Name: "exec-timeout", Usage: "end a command, with all that it has started, after the duration `D`", Value: files.DefaultTimeout},
			&cli.BoolFlag{Name: "template", Usage: "render the values of keys that end with .tmpl"},
			&cli.BoolFlag{Name: "delete", Usage: "remove files of deleted keys that this has put in place"},
			&cli.BoolFlag{Name: "once", Usage: "end when all is in place; exit with 1 when something could not be"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be changed, and change nothing"},
		),
		Action: func(c *cli.Context) error {
			if err := wantSyncArgs(c, 2, 2); err != nil {
				return err
			}
			return connect(c, a.syncPull)
		},
	})
}

func (a *app) syncPull(c *cli.Context, cl *client.Client) error {
	p := files.Pull{
		Prefix: c.Args().Get(0), Dir: c.Args().Get(1),
		Template: c.Bool("template"), Delete: c.Bool("delete"),
		Check: c.String("check"), Exec: c.String("exec"), Timeout: c.Duration("exec-timeout"),
		Ask: c.Duration("timeout"), DryRun: c.Bool("dry-run"), Once: c.Bool("once"),
		Output: a.err, EndIfTaken: true,
	}
	if err := p.Validate(); err != nil {
		return usage("sync pull: %v", err)
	}
	if p.Timeout == 0 {
		return usage("sync pull: --exec-timeout 0s: must be more than nothing")
	}
	if p.DryRun {
		p.Change = func(ch files.Change) { a.printChange(c, ch) }
		return a.lastOf(p.Run(c.Context, cl))
	}
	if !p.Once { // else the error says it
		p.Log = newLog(a.err, "text", nil)
	}
	r := reporter{cl: cl, wake: make(chan struct{}, 1)}
	if c.Bool("json") {
		r.show = func(s client.SyncState) { _ = a.printJSON(s) } // a reader that is gone is no reason to leave the files
	}
	p.Report = r.note
	stop := r.start(c.Context)
	err := p.Run(c.Context, cl)
	stop()
	return a.lastOf(err)
}

// lastOf prints all but the last of several problems, a line each, and returns that.
func (a *app) lastOf(err error) error {
	p, ok := errors.AsType[files.Problems](err)
	if !ok {
		return err
	}
	last := len(p) - 1
	for _, line := range p[:last] {
		fmt.Fprintln(a.err, "gus:", line)
	}
	return errors.New(p[last])
}

// printChange prints what a dry run would do.
func (a *app) printChange(c *cli.Context, ch files.Change) {
	switch {
	case c.Bool("json"):
		_ = a.printJSON(ch)
	case ch.Op == files.Remove:
		fmt.Fprintf(a.out, "%-6s  %s\n", ch.Op, printable(changed(ch)))
	default:
		fmt.Fprintf(a.out, "%-6s  %s (%s)\n", ch.Op, printable(changed(ch)), size(int64(ch.Size)))
	}
}

// changed is what ch changes: a key of a push has its file's name besides.
func changed(ch files.Change) string {
	if ch.File != "" && ch.New == nil && ch.Old == nil {
		return ch.File
	}
	return ch.Key
}

// reporter tells the agent how the job is that runs here, the last state first.
type reporter struct {
	cl   *client.Client
	show func(client.SyncState) // nil: nobody looks

	mu   sync.Mutex
	last client.SyncState
	told bool
	wake chan struct{}
}

func (r *reporter) note(s client.SyncState) {
	r.mu.Lock()
	news := !r.told || !r.last.Same(s)
	r.last, r.told = s, true
	r.mu.Unlock()
	if news && r.show != nil {
		r.show(s)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// start tells the agent until stop is called, which tells it that the job has ended. An agent that
// is away is told later.
func (r *reporter) start(ctx context.Context) (stop func()) {
	ctx = context.WithoutCancel(ctx)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		beat := time.NewTicker(30 * time.Second)
		defer beat.Stop()
		for {
			select {
			case <-r.wake:
			case <-beat.C:
			case <-quit:
				r.tell(ctx, true)
				return
			}
			r.tell(ctx, false)
		}
	})
	return func() { close(quit); wg.Wait() }
}

func (r *reporter) tell(ctx context.Context, end bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r.mu.Lock()
	s, told := r.last, r.told
	r.mu.Unlock()
	if s.Stopped = end && !s.Once; told {
		_ = r.cl.PutSync(ctx, s) // it is for people, and comes again
	}
}
