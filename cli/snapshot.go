package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent"
	"gus/agent/client"
)

func (a *app) snapshotCommand() *cli.Command {
	return command(cli.Command{
		Name:      "snapshot",
		Usage:     "backups: save, verify, list and restore",
		ArgsUsage: "save|verify|list|restore",
		Description: "A backup is one file with all keys of a site as they were at one moment. `gus agent --backup-every`\n" +
			"saves them by itself.",
		Subcommands: []*cli.Command{
			a.snapshotSaveCommand(), a.snapshotVerifyCommand(), a.snapshotListCommand(), a.snapshotRestoreCommand(),
		},
	})
}

// wantSnapshotArgs checks the number of arguments of a command within snapshot.
func wantSnapshotArgs(c *cli.Context, least, most int) error {
	if n := c.NArg(); n < least || n > most {
		return usage("snapshot %s: %s: usage: gus snapshot %s %s", c.Command.Name, count(n, "argument"), c.Command.Name, c.Command.ArgsUsage)
	}
	return nil
}

func (a *app) snapshotSaveCommand() *cli.Command {
	return command(cli.Command{
		Name:      "save",
		Usage:     "save all keys in a file",
		ArgsUsage: "FILE",
		Description: "Saves what this site holds: from the agent, or from the data directory where none runs. It is one\n" +
			"state: all that this site had saved when the command began, and so each write that was done through it. The\n" +
			"file is written aside, synced, read back, and only then has its name; one that is there is not replaced without --force.\n" +
			"It has the newest write of each key: the history (`gus history`) is not in it.",
		Flags: clientFlags(&cli.BoolFlag{Name: "force", Usage: "replace the file, once the new one is good"}),
		Action: func(c *cli.Context) error {
			if err := wantSnapshotArgs(c, 1, 1); err != nil {
				return err
			}
			return connect(c, a.snapshotSave)
		},
	})
}

func (a *app) snapshotSave(c *cli.Context, cl *client.Client) error {
	keys, running, err := runs(c, cl)
	if err != nil {
		return err
	}
	steps := a.stepsOf(keys)
	s := agent.Saving{File: c.Args().First(), Force: c.Bool("force"), Progress: steps.is}
	var b agent.Backup
	if running {
		b, err = agent.SaveRunning(c.Context, cl, s)
	} else {
		data := c.String("data")
		if data == "" {
			data, err = ownData(c)
		}
		if err == nil {
			b, err = agent.SaveStopped(data, s, programVersion())
		}
	}
	steps.end()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(b)
	}
	fmt.Fprintf(a.out, "saved %s of %s in %s: epoch %d, %s, verified\n", count(int(b.Keys), "key"), b.Site, b.File, b.Epoch, size(b.Size))
	return nil
}

// runs says whether the agent runs, and how many keys it has. Where there is neither an agent nor a site's
// data directory, it is an error.
func runs(c *cli.Context, cl *client.Client) (keys int, running bool, err error) {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	s, err := cl.Status(ctx)
	if errors.Is(err, client.ErrNotRunning) && exists(filepath.Join(dataDir(c), "identity")) {
		return 0, false, nil
	}
	return s.Keys, err == nil, err
}

// steps tells whoever sits at a terminal of what is done in several steps.
type steps struct {
	app *app
	of  int // keys; 0: nobody knows
	now string
	p   *progress
}

func (a *app) stepsOf(keys int) *steps { return &steps{app: a, of: keys} }

func (s *steps) is(step string, keys int) {
	if s.now != step {
		s.end()
		s.now, s.p = step, s.app.progressOf("keys "+step, s.of, nil)
	}
	s.p.is(keys)
}

func (s *steps) end() { s.p.end() }

func (a *app) snapshotVerifyCommand() *cli.Command {
	return command(cli.Command{
		Name:        "verify",
		Usage:       "read a backup to its end, and say what it has",
		ArgsUsage:   "FILE",
		Description: "Exits with 1 where the file is damaged, not whole, or none of gus, and says where. It asks no agent.",
		Flags:       []cli.Flag{jsonFlag()},
		Action:      a.snapshotVerify,
	})
}

func (a *app) snapshotVerify(c *cli.Context) error {
	if err := wantSnapshotArgs(c, 1, 1); err != nil {
		return err
	}
	steps := a.stepsOf(0)
	b, err := agent.VerifyBackup(c.Args().First(), func(keys int) { steps.is("verified", keys) })
	steps.end()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(b)
	}
	fmt.Fprintf(a.out, "%s is good\n", b.File)
	fmt.Fprintf(a.out, "cluster  %s\n", b.Cluster)
	fmt.Fprintf(a.out, "site     %s\n", printable(b.Site))
	fmt.Fprintf(a.out, "saved    %s UTC, epoch %d, by version %s\n", b.Time.Format(time.DateTime), b.Epoch, printable(b.Program))
	fmt.Fprintf(a.out, "keys     %s, and %s remembered; %s not known to be settled\n", thousands(int(b.Keys)), count(int(b.Deleted), "deletion"), thousands(int(b.Unsettled)))
	fmt.Fprintf(a.out, "size     %s\n", size(b.Size))
	fmt.Fprintf(a.out, "sha256   %s\n", b.Digest)
	return nil
}

func (a *app) snapshotListCommand() *cli.Command {
	return command(cli.Command{
		Name:      "list",
		Usage:     "list the epochs of this site, or the backups in a directory",
		ArgsUsage: "[DIR]",
		Description: "Without DIR it lists the epochs that can be read, the newest thousand, the newest last, with how many keys each has\n" +
			"changed. With DIR it lists the backups there, by what their two ends say: `gus snapshot verify` reads all of one.",
		Flags: clientFlags(),
		Action: func(c *cli.Context) error {
			if err := wantSnapshotArgs(c, 0, 1); err != nil {
				return err
			}
			if c.NArg() == 1 {
				return a.listBackups(c)
			}
			return ask(c, a.listEpochs)
		},
	})
}

func (a *app) listBackups(c *cli.Context) error {
	all, err := agent.ListBackups(c.Args().First())
	if err != nil {
		return err
	}
	bad := 0
	const format = "%-19s  %-12s  %-8s  %10s  %9s  %s\n"
	if !c.Bool("json") && len(all) > 0 {
		fmt.Fprintf(a.out, format, "SAVED (UTC)", "SITE", "CLUSTER", "KEYS", "SIZE", "FILE")
	}
	for _, b := range all {
		switch {
		case c.Bool("json"):
			if err := a.printJSON(b); err != nil {
				return err
			}
		case b.Error == "":
			fmt.Fprintf(a.out, format, b.Time.Format(time.DateTime), printable(b.Site), b.Cluster[:min(8, len(b.Cluster))], thousands(int(b.Keys)), size(b.Size), printable(b.File))
		default:
			fmt.Fprintf(a.out, "%s\n", oneLine(b.Error))
		}
		if b.Error != "" {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%s of %s in %s cannot be restored", thousands(bad), count(len(all), "backup"), c.Args().First())
	}
	return nil
}

func (a *app) listEpochs(c *cli.Context, cl *client.Client) error {
	page, err := within(c.Context, c.Duration("timeout"), func(ctx context.Context) (client.Epochs, error) { return cl.Epochs(ctx, 0) })
	if err != nil {
		return err
	}
	epochs := page.Epochs
	slices.Reverse(epochs)
	const format = "%-12s  %-19s  %10s\n"
	if !c.Bool("json") && len(epochs) > 0 {
		fmt.Fprintf(a.out, format, "EPOCH", "UP TO (UTC)", "CHANGED")
	}
	for _, e := range epochs {
		if c.Bool("json") {
			if err := a.printJSON(e); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.out, format, fmt.Sprint(e.Number), e.Time.UTC().Format(time.DateTime), thousands(int(e.Keys)))
	}
	return nil
}

// backupLine says how the agent's own backups go, for status.
func backupLine(b client.BackupSchedule, now time.Time) string {
	line := "none yet"
	if !b.Last.IsZero() {
		line = fmt.Sprintf("the last %s ago, %s", ago(b.Last, now), count(b.Kept, "file"))
	}
	line += fmt.Sprintf(" in %s; every %v", printable(b.Dir), time.Duration(b.Every))
	if b.Error != "" {
		line += "; FAIL for " + ago(b.Since, now)
	}
	return line
}
