package cli

import (
	"bufio"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) historyCommand() *cli.Command {
	return command(cli.Command{
		Name:      "history",
		Usage:     "what a key was",
		ArgsUsage: "KEY",
		Description: "Prints the versions of a key that this site has, the newest first: of each epoch (10 s, or less where\n" +
			"much is written) the last one, as far back as the agent keeps epochs (`gus status`). An epoch of - is\n" +
			"yet to come. A version can be read by `gus get --version`, and all keys of an epoch by --epoch.",
		Flags: clientFlags(),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 1, 1); err != nil {
				return err
			}
			return ask(c, a.history)
		},
	})
}

const historyFormat = "%-12s  %-19s  %-12s  %9s  %s\n"

func (a *app) history(c *cli.Context, cl *client.Client) error {
	out := bufio.NewWriter(a.out)
	n := 0
	for v, err := range cl.History(c.Context, c.Args().First()) {
		if err != nil {
			out.Flush()
			return err
		}
		n++
		if c.Bool("json") {
			err = printJSON(out, v)
		} else {
			if n == 1 {
				fmt.Fprintf(out, historyFormat, "EPOCH", "WRITTEN (UTC)", "BY", "SIZE", "VERSION")
			}
			epoch, size := "-", "deleted"
			if v.Epoch > 0 {
				epoch = strconv.FormatUint(v.Epoch, 10)
			}
			if !v.Deleted {
				size = strconv.Itoa(v.Size)
			}
			_, err = fmt.Fprintf(out, historyFormat, epoch, v.Time.UTC().Format(time.DateTime), v.Writer, size, v.Version)
		}
		if err != nil {
			return fmt.Errorf("print the history: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print the history: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("%w: this site knows of no version of %s", client.ErrNotFound, printable(c.Args().First()))
	}
	return nil
}
