package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) syncCommand() *cli.Command {
	return command(cli.Command{
		Name:      "sync",
		Usage:     "keys to files, files to keys, and which site has what",
		ArgsUsage: "pull|push|status",
		Description: "`gus sync pull PREFIX DIR` keeps files as keys are, `gus sync push DIR PREFIX` writes files to keys,\n" +
			"`gus sync status` shows which site has which version of which files.",
		Subcommands: []*cli.Command{a.syncPullCommand(), a.syncPushCommand(), a.syncStatusCommand()},
	})
}

// wantSyncArgs checks the number of arguments of a command within sync.
func wantSyncArgs(c *cli.Context, least, most int) error {
	if n := c.NArg(); n < least || n > most {
		return usage("sync %s: %s: usage: gus sync %s %s", c.Command.Name, count(n, "argument"), c.Command.Name, c.Command.ArgsUsage)
	}
	return nil
}

func (a *app) syncStatusCommand() *cli.Command {
	return command(cli.Command{
		Name:      "status",
		Usage:     "which site has which version of which files",
		ArgsUsage: "[PREFIX]",
		Description: "One line for each job of `gus sync pull` and of the agents' configuration files whose prefix begins\n" +
			"with PREFIX. Two sites with the same VERSION of a prefix have the same in place. Without --local a quorum\n" +
			"is asked; with it, what this site knows, which may be old. A job that runs no more is shown for a day.",
		Flags: clientFlags(&cli.BoolFlag{Name: "local", Usage: "what this site knows; may be stale"}),
		Action: func(c *cli.Context) error {
			if err := wantSyncArgs(c, 0, 1); err != nil {
				return err
			}
			return connect(c, a.syncStatus)
		},
	})
}

// siteSync is a job of a site.
type siteSync struct {
	Site string `json:"site"`
	client.SyncState
}

func (a *app) syncStatus(c *cli.Context, cl *client.Client) error {
	all, err := readSyncs(c, cl, a.aged())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s siteSync) bool { return !strings.HasPrefix(s.Prefix, c.Args().First()) })
	slices.SortFunc(all, func(x, y siteSync) int {
		return cmp.Or(cmp.Compare(x.Prefix, y.Prefix), cmp.Compare(x.Site, y.Site), cmp.Compare(x.Dir, y.Dir))
	})
	if !c.Bool("json") {
		printSyncs(a.out, all, time.Now())
		return nil
	}
	for _, s := range all {
		if err := a.printJSON(s); err != nil {
			return err
		}
	}
	return nil
}

// readSyncs reads what the sites tell of their jobs, several keys at a time.
func readSyncs(c *cli.Context, cl *client.Client, aged func(time.Duration)) (all []siteSync, err error) {
	var keys []string
	l := client.Listing{Prefix: client.SyncKeys, Local: c.Bool("local"), Timeout: c.Duration("timeout"), Aged: aged}
	for e, err := range cl.List(c.Context, l) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, e.Key)
	}
	const workers = 16
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(keys); i += workers {
				s, found, e := readSync(c, cl, keys[i])
				mu.Lock()
				if err = cmp.Or(err, e); found {
					all = append(all, s)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all, err
}

func readSync(c *cli.Context, cl *client.Client, key string) (s siteSync, found bool, err error) {
	read := cl.Get
	if c.Bool("local") {
		read = cl.GetLocal
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	r, err := read(ctx, key)
	if errors.Is(err, client.ErrNotFound) {
		return s, false, nil // it was removed meanwhile
	}
	if err != nil {
		return s, false, err
	}
	var ok bool
	if s.Site, _, ok = strings.Cut(strings.TrimPrefix(key, client.SyncKeys), "/"); !ok {
		return s, false, nil
	}
	if err := json.Unmarshal(r.Value, &s.SyncState); err != nil {
		return s, false, fmt.Errorf("read what %s tells: %w", key, err)
	}
	return s, true, nil
}

const syncFormat = "%-12s  %-14s  %-16s  %6s  %-9s  %s\n"

// printSyncs prints a job a line, and what is wrong below it.
func printSyncs(w io.Writer, all []siteSync, now time.Time) {
	fmt.Fprintf(w, syncFormat, "SITE", "PREFIX", "VERSION", "FILES", "CHANGED", "DIRECTORY")
	for _, s := range all {
		changed := "-"
		if !s.Changed.IsZero() {
			changed = ago(s.Changed, now) + " ago"
		}
		fmt.Fprintf(w, syncFormat, s.Site, dash(printable(s.Prefix)), dash(s.Version), thousands(s.Keys), changed, printable(s.Dir))
		printSyncTrouble(w, s.SyncState, now)
	}
}

func printSyncTrouble(w io.Writer, s client.SyncState, now time.Time) {
	if s.Stopped {
		fmt.Fprintln(w, "  stopped: it runs no more, or its agent has not heard of it for two minutes")
	}
	if s.Error != "" {
		fmt.Fprint(w, wrap("  ERROR for "+ago(s.ErrorSince, now)+": "+printable(s.Error), "    "))
	}
}

// syncLines say how this site's jobs are, for status.
func syncLines(all []client.SyncState, now time.Time) (lines []string) {
	for _, s := range all {
		line := fmt.Sprintf("%s to %s: %s", cmp.Or(printable(s.Prefix), "all keys"), printable(s.Dir), count(s.Keys, "file"))
		switch {
		case s.Stopped:
			line += ", stopped"
		case s.Error != "":
			line += ", NOT AS THEY SHOULD BE for " + ago(s.ErrorSince, now)
		case !s.Changed.IsZero():
			line += ", changed " + ago(s.Changed, now) + " ago"
		}
		lines = append(lines, line)
	}
	return lines
}
