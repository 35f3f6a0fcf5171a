package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"gus/agent"
	"gus/agent/client"
)

func (a *app) snapshotRestoreCommand() *cli.Command {
	return command(cli.Command{
		Name:      "restore",
		Usage:     "make a new cluster of one site from a backup, or write its keys into the one that runs",
		ArgsUsage: "FILE",
		Description: "With --name it makes, in the absent or empty data directory, the only site of a new cluster with the keys\n" +
			"of the backup: all or nothing. `gus token` and `gus join` then let other sites in. What remains of the cluster\n" +
			"that the backup is of has nothing to do with it. A backup has no history (`gus history`): that of the new cluster begins\n" +
			"with these keys.\n\n" +
			"With --into it writes the keys through the agent, as new writes: each below the given prefix, at its\n" +
			"own place with --into ''. --prefix chooses which of them. Keys that are not in the backup stay, and so do\n" +
			"those below _gus/, which are the system's. It asks whether to, and where nobody can be asked it wants --yes. If it\n" +
			"fails in the middle it says what was written, and may be run again. --timeout is for each key.\n\n" +
			"All of the backup is checked before anything is changed.",
		Flags: clientFlags(
			nameFlag(),
			&cli.StringFlag{Name: "into", Usage: "write the keys into the cluster that runs, each below `PREFIX`; '': at its own place"},
			&cli.StringFlag{Name: "prefix", Usage: "with --into: only keys that begin with `PREFIX` in the backup"},
			&cli.BoolFlag{Name: "dry-run", Usage: "with --into: print the keys that would be written, and write none"},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "with --into: do not ask"},
		),
		Action: a.snapshotRestore,
	})
}

func (a *app) snapshotRestore(c *cli.Context) error {
	if err := wantSnapshotArgs(c, 1, 1); err != nil {
		return err
	}
	into := c.IsSet("into")
	switch {
	case !into && (c.IsSet("prefix") || c.Bool("dry-run") || c.Bool("yes")):
		return usage("snapshot restore: --prefix, --dry-run and --yes go with --into")
	case !into && c.String("name") == "":
		return usage("snapshot restore: a new cluster, or the one that runs? add --name NAME for the first, --into PREFIX for the second")
	case !into:
		return a.restoreNew(c)
	case c.IsSet("name") && c.String("name") != os.Getenv("GUS_NAME"):
		return usage("snapshot restore: --name makes a new cluster, --into writes into the one that runs: one of them")
	case !c.Bool("yes") && !c.Bool("dry-run") && !isTerminal(a.in):
		return usage("snapshot restore: nobody can be asked whether to write the keys: add --yes, or --dry-run to see them")
	case strings.HasPrefix(c.String("into"), systemPrefix):
		return fmt.Errorf("%w: keys below %s are the system's: nothing changed", client.ErrRefused, systemPrefix)
	}
	return a.restoreInto(c)
}

func (a *app) restoreNew(c *cli.Context) error {
	data, err := ownData(c)
	if err != nil {
		return err
	}
	steps := a.stepsOf(0)
	r, err := agent.Restore(c.Args().First(), data, c.String("name"), steps.is)
	steps.end()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "restored %s in %s, as %s, the only site of the new cluster %s\n", count(int(r.Keys), "key"), r.Data, r.Site, r.Cluster)
	a.printNewCluster(r)
	return nil
}

// printNewCluster says what comes after a new cluster was made.
func (a *app) printNewCluster(r agent.Restored) {
	fmt.Fprintf(a.out, "Back up %s: without it no site can join any more,\nand whoever has it can let in anybody.\n", r.CAKey)
	fmt.Fprintln(a.out, "Next: run `gus agent` here. Then `gus token` makes a token, with which sites can `gus join --observer`.")
}

// restoration is keys of a backup that are to be written.
type restoration struct {
	file, prefix, into string
	keys               int
}

// each calls f with the keys that are chosen, under the name that they are to have.
func (r *restoration) each(f func(key string, value []byte) error) error {
	return agent.BackupKeys(r.file, func(key string, value []byte) error {
		if !strings.HasPrefix(key, r.prefix) || strings.HasPrefix(key, systemPrefix) {
			return nil
		}
		return f(r.into+key, value)
	})
}

// restoredInto is what restore prints with --json.
type restoredInto struct {
	Written  int      `json:"written"` // with --dry-run: how many would be
	Same     int      `json:"same"`    // had their value already
	Keys     []string `json:"keys,omitempty"`
	Unknown  []int    `json:"unknown_keys,omitempty"`
	Failed   []int    `json:"failed_keys,omitempty"` // and nothing changed
	NotTried int      `json:"not_tried"`
}

func (a *app) restoreInto(c *cli.Context) error {
	r := &restoration{file: c.Args().First(), prefix: c.String("prefix"), into: c.String("into")}
	p := a.progressOf("keys verified", 0, nil)
	err := r.each(func(key string, _ []byte) error {
		r.keys++
		p.is(r.keys)
		return agent.CheckKey(key)
	})
	p.end()
	if err != nil {
		return fmt.Errorf("%w: nothing was changed", err)
	}
	return connectMany(c, func(c *cli.Context, cl *client.Client) error {
		if !c.Bool("yes") && !c.Bool("dry-run") && r.keys > 0 {
			where := "to their own places"
			if r.into != "" {
				where = "below " + printable(r.into)
			}
			if err := a.confirm(c.Context, fmt.Sprintf("write %s of %s %s? [y/N] ", count(r.keys, "key"), r.file, where)); err != nil {
				return err
			}
		}
		return a.restoreAll(c, cl, r)
	})
}

// restoreAll writes the keys. When one fails it begins no further one.
func (a *app) restoreAll(c *cli.Context, cl *client.Client, r *restoration) error {
	i := importer{cl: cl, timeout: c.Duration("timeout"), dry: c.Bool("dry-run")}
	t := tally{what: "written", unit: "key"}
	var doomed []string // with --dry-run: those that would be written
	p := a.progressOf("keys", r.keys, nil)
	w := window[outcomeOfKey]{done: func(o outcomeOfKey) error {
		t.add(o)
		p.is(t.done + t.same)
		if i.dry && o.err == nil && !o.same {
			doomed = append(doomed, o.key)
		}
		return nil
	}}
	err := r.each(func(key string, value []byte) error {
		if t.failed() || c.Context.Err() != nil {
			return errEnough
		}
		t.begun++
		number := t.begun
		return w.begin(len(value), func() outcomeOfKey {
			same, err := i.put(c.Context, key, value)
			return outcomeOfKey{number, key, same, err}
		})
	})
	w.finish()
	w.wg.Wait()
	p.end()
	err = notEnough(err)
	if c.Bool("json") {
		err = errors.Join(err, a.printJSON(restoredInto{t.done, t.same, doomed, t.unknown, t.unchanged, r.keys - t.begun}))
	}
	if failed := t.verdict(r.keys, c.Context); failed != nil {
		return fmt.Errorf("snapshot restore: %w", errors.Join(failed, err))
	}
	if err != nil || c.Bool("json") {
		return err
	}
	if i.dry {
		for _, key := range doomed {
			fmt.Fprintln(a.out, key)
		}
		fmt.Fprintf(a.err, "%s would be written, %s the same already\n", count(t.done, "key"), thousands(t.same))
		return nil
	}
	fmt.Fprintf(a.out, "%s written, %s the same already\n", count(t.done, "key"), thousands(t.same))
	return nil
}
