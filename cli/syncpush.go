package cli

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/urfave/cli/v2"

	"gus/agent/client"
	"gus/agent/files"
)

func (a *app) syncPushCommand() *cli.Command {
	return command(cli.Command{
		Name:      "push",
		Usage:     "write files to keys",
		ArgsUsage: "DIR PREFIX",
		Description: "Reads all files below DIR, and sees that each can be a key, before it writes the first one: to the key of\n" +
			"the same name below PREFIX, which ends with a slash, and only where bytes differ. A symbolic link, a device,\n" +
			"or a file over 1 MiB is an error. .git, what editors leave (*~, .*.swp, .#*, #*#) and gus's own files are\n" +
			"left out. --dry-run shows the difference. Where it fails on the way it says how far it has come, and\n" +
			"can be run again. With --delete it asks, or wants --yes, before it deletes keys.",
		Flags: clientFlags(
			&cli.BoolFlag{Name: "delete", Usage: "delete keys below PREFIX that no file stands for"},
			&cli.BoolFlag{Name: "yes", Usage: "do not ask before keys are deleted"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the difference, and change nothing"},
		),
		Action: func(c *cli.Context) error {
			if err := wantSyncArgs(c, 2, 2); err != nil {
				return err
			}
			return connect(c, a.syncPush)
		},
	})
}

// pushed is what push prints with --json.
type pushed struct {
	files.Summary
	DryRun  bool           `json:"dry_run,omitempty"`
	Changes []files.Change `json:"changes,omitempty"` // of a dry run
}

func (a *app) syncPush(c *cli.Context, cl *client.Client) error {
	p := files.Push{
		Dir: c.Args().Get(0), Prefix: c.Args().Get(1), Delete: c.Bool("delete"), DryRun: c.Bool("dry-run"),
		Ask: c.Duration("timeout"),
	}
	if err := p.Validate(); err != nil {
		return usage("sync push: %v", err)
	}
	if p.Delete && !c.Bool("yes") {
		p.Confirm = func(keys int) error {
			if !isTerminal(a.in) {
				return usage("sync push: nobody can be asked whether to delete %s: add --yes, or --dry-run to see them: nothing changed", count(keys, "key"))
			}
			return a.confirm(c.Context, fmt.Sprintf("delete %s below %s that no file stands for? [y/N] ", count(keys, "key"), printable(p.Prefix)))
		}
	}
	out := pushed{DryRun: p.DryRun}
	if p.DryRun {
		p.Change = func(ch files.Change) {
			if out.Changes = append(out.Changes, ch); !c.Bool("json") {
				a.printDifference(c, ch)
			}
		}
	}
	var err error
	out.Summary, err = p.Run(c.Context, cl)
	if c.Bool("json") && err == nil {
		return a.printJSON(out)
	}
	if err == nil {
		a.printSummary(out)
	}
	return err
}

func (a *app) printSummary(p pushed) {
	format := "%d added, %d changed, %d deleted, %d the same"
	if p.DryRun {
		format = "%d to add, %d to change, %d to delete, %d the same"
	}
	fmt.Fprintf(a.out, format+"\n", p.Added, p.Changed, p.Deleted, p.Same)
	if len(p.Skipped) > 0 {
		fmt.Fprintf(a.err, "left out: %s\n", printable(strings.Join(p.Skipped, ", ")))
	}
}

// printDifference prints a change, and lines where they are text.
func (a *app) printDifference(c *cli.Context, ch files.Change) {
	ch.File = ""
	a.printChange(c, ch)
	if ch.Op == files.Modify && ch.New != nil && isText(ch.Old) && isText(ch.New) {
		d := diff.Diff(ch.Key, ch.Old, ch.Key, ch.New)
		if _, after, ok := bytes.Cut(d, []byte("\n+++ ")); ok { // two lines of names that were said
			_, d, _ = bytes.Cut(after, []byte("\n"))
		}
		for line := range bytes.Lines(d) {
			fmt.Fprintf(a.out, "    %s\n", bytes.TrimSuffix(line, []byte("\n")))
		}
	}
}

// isText says whether a terminal may show b.
func isText(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}
