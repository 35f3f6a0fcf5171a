package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) rollbackCommand() *cli.Command {
	return command(cli.Command{
		Name:      "rollback",
		Usage:     "put back what begins with a prefix as it was",
		ArgsUsage: "PREFIX",
		Description: "Writes the keys that begin with PREFIX and have other values than at the end of an epoch as they were\n" +
			"then, and removes those that were not there. These are new writes: nothing goes back in time, they are in the history,\n" +
			"and can be rolled back themselves. It asks whether to, and where nobody can be asked it wants --yes. Each key is\n" +
			"written by itself; when one fails no further one is begun, and it may be run again. '' is all keys; those below _gus/ are\n" +
			"left alone. --timeout is for each page and each key.",
		Flags: clientFlags(append(pastFlags(),
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be done, and change nothing"},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"})...),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 1, 1); err != nil {
				return err
			}
			return a.rollback(c)
		},
	})
}

// rolledBack is what rollback says of a key with --json.
type rolledBack struct {
	Key     string         `json:"key"`
	Action  string         `json:"action"`            // "set" or "delete"
	To      client.Version `json:"to,omitempty"`      // the version whose value is written again
	From    client.Version `json:"from,omitempty"`    // the version that was there
	Version client.Version `json:"version,omitempty"` // the one that was written; absent with --dry-run and where it failed
	Error   string         `json:"error,omitempty"`
}

func rollingBack(d difference) rolledBack {
	r := rolledBack{Key: d.Key, Action: "delete"}
	if d.Then != nil {
		r.Action, r.To = "set", d.Then.Version
	}
	if d.Now != nil {
		r.From = d.Now.Version
	}
	return r
}

func (a *app) rollback(c *cli.Context) error {
	prefix := c.Args().First()
	asks := !c.Bool("yes") && !c.Bool("dry-run")
	flag, err := pastFlag(c)
	switch {
	case err != nil:
		return err
	case flag == "":
		return usage("rollback: to when? name an epoch by --epoch, --at or --ago")
	case asks && !isTerminal(a.in):
		return usage("rollback: nobody can be asked whether to roll back what begins with %q: add --yes, or --dry-run to see it", prefix)
	case strings.HasPrefix(prefix, systemPrefix):
		return fmt.Errorf("%w: keys below %s are the system's: nothing changed", client.ErrRefused, systemPrefix)
	}
	return connectMany(c, func(c *cli.Context, cl *client.Client) error {
		epoch, err := pastOf(c, cl)
		if err != nil {
			return fmt.Errorf("nothing changed: %w", err)
		}
		if c.Bool("dry-run") {
			return a.printRollback(c, cl, epoch.Number)
		}
		// Nothing is written before all that is to be compared could be read. What
		// differs is not held in memory: it is looked for once more.
		n := 0
		err = differences(c, cl, prefix, epoch.Number, 0, func(difference) error {
			n++
			return nil
		})
		if err != nil {
			return fmt.Errorf("nothing changed: %w", err)
		}
		if asks && n > 0 {
			if err := a.confirm(c.Context, fmt.Sprintf("write %s beginning with %s as in %s? [y/N] ", count(n, "key"), printable(prefix), describeEpoch(epoch))); err != nil {
				return err
			}
		}
		return a.rollBackAll(c, cl, epoch, n)
	})
}

// printRollback prints what would be done.
func (a *app) printRollback(c *cli.Context, cl *client.Client, epoch uint64) error {
	out := bufio.NewWriter(a.out)
	show := func(key string) string { return key }
	if isTerminal(a.out) {
		show = printable
	}
	err := differences(c, cl, c.Args().First(), epoch, 0, func(d difference) error {
		r := rollingBack(d)
		if c.Bool("json") {
			return printJSON(out, r)
		}
		_, err := fmt.Fprintf(out, "%-6s %s\n", r.Action, show(r.Key))
		return err
	})
	if err := errors.Join(err, out.Flush()); err != nil {
		return fmt.Errorf("what would be done is not whole: %w", err)
	}
	return nil
}

// rolled is what became of one key.
type rolled struct {
	outcomeOfKey
	said rolledBack
}

// rollBackAll writes what differs, which was n keys a moment ago, as it was. When one fails it begins no
// further one.
func (a *app) rollBackAll(c *cli.Context, cl *client.Client, epoch client.PastEpoch, n int) error {
	t := tally{what: "rolled back", unit: "key"}
	p := a.progressOf("keys rolled back", n, a.out)
	out := bufio.NewWriter(a.out)
	w := window[rolled]{done: func(r rolled) error {
		t.add(r.outcomeOfKey)
		p.is(t.done)
		if c.Bool("json") {
			printJSON(out, r.said) // an error is one of out's, and comes at its end
		}
		return nil
	}}
	err := differences(c, cl, c.Args().First(), epoch.Number, 0, func(d difference) error {
		if t.failed() || c.Context.Err() != nil {
			return errEnough
		}
		t.begun++
		number, size := t.begun, 0
		if d.Then != nil {
			size = d.Then.Size
		}
		return w.begin(size, func() rolled { return rollBackKey(c, cl, epoch.Number, number, d) })
	})
	w.finish()
	w.wg.Wait()
	p.end()
	if !c.Bool("json") && !t.failed() && err == nil {
		fmt.Fprintf(out, "%s rolled back to %s\n", count(t.done, "key"), describeEpoch(epoch))
	}
	ferr := out.Flush()
	if err == nil {
		n = t.begun
	}
	if err := t.ended(max(n, t.begun), err, c.Context); err != nil {
		return fmt.Errorf("rollback: %w", err)
	}
	return ferr
}

// rollBackKey writes a key as it was; number is how many were begun by then.
func rollBackKey(c *cli.Context, cl *client.Client, epoch uint64, number int, d difference) rolled {
	r, err := writeAsItWas(c, cl, epoch, d)
	said := rollingBack(d)
	if said.Version = r.Version; err != nil {
		said.Version, said.Error = "", err.Error()
	}
	return rolled{outcomeOfKey{number: number, key: d.Key, err: err}, said}
}

func writeAsItWas(c *cli.Context, cl *client.Client, epoch uint64, d difference) (client.Result, error) {
	timeout := c.Duration("timeout")
	if d.Then == nil {
		return within(c.Context, timeout, func(ctx context.Context) (client.Result, error) { return cl.Delete(ctx, d.Key) })
	}
	value, err := valueAt(c.Context, cl, d.Key, epoch, timeout)
	if err != nil {
		return client.Result{}, err
	}
	return within(c.Context, timeout, func(ctx context.Context) (client.Result, error) { return cl.Set(ctx, d.Key, value) })
}
