package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

// waitKey is read to see whether a quorum answers. It is the system's, so that
// nobody has written it.
const waitKey = "_gus/wait"

func (a *app) waitCommand() *cli.Command {
	return command(cli.Command{
		Name:      "wait",
		Usage:     "wait until the agent runs and a quorum answers it",
		ArgsUsage: " ",
		Description: "A quorum answers when a linearizable read succeeds and voters enough to write are connected:\n" +
			"`gus set` would then work. It does not wait until an observer's own copy has caught up, which\n" +
			"`gus get --local` and files are read from. Prints nothing. When the time is up it exits with 4\n" +
			"where there is no quorum, with 5 where no agent runs.",
		Flags: []cli.Flag{
			jsonFlag(), socketFlag(), dataFlag(),
			&cli.DurationFlag{Name: "timeout", EnvVars: []string{"GUS_TIMEOUT"}, Usage: "give up after the duration `D`", Value: time.Minute},
		},
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0); err != nil {
				return err
			}
			return ask(c, a.wait)
		},
	})
}

// waited is what wait prints with --json.
type waited struct {
	Site   string          `json:"site"`
	Quorum client.Quorum   `json:"quorum"`
	Took   client.Duration `json:"took_ms"`
}

func (a *app) wait(c *cli.Context, cl *client.Client) error {
	const interval = 100 * time.Millisecond
	begin := time.Now()
	var before error
	for {
		s, err := answered(c.Context, cl)
		if c.Context.Err() != nil && before != nil {
			err = before // what was in the way, not that there was no time to ask again
		}
		before = err
		if err == nil && c.Bool("json") {
			return a.printJSON(waited{s.Site, s.Quorum, client.Duration(time.Since(begin))})
		}
		if err == nil || !passing(err) {
			return err
		}
		select {
		case <-c.Context.Done():
			return fmt.Errorf("waited %v: %w", time.Since(begin).Round(100*time.Millisecond), err)
		case <-time.After(interval):
		}
	}
}

// passing says whether err may be over in a moment.
func passing(err error) bool {
	for _, e := range []error{client.ErrNotRunning, client.ErrStopping, client.ErrNoQuorum, client.ErrNotSent} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// answered returns nil where a quorum answers now. A read proves that of a read
// quorum; a write would leave something behind, so of a write quorum the
// connections are asked.
func answered(ctx context.Context, cl *client.Client) (client.Status, error) {
	if _, err := cl.Get(ctx, waitKey); err != nil && !errors.Is(err, client.ErrNotFound) {
		return client.Status{}, err
	}
	s, err := cl.Status(ctx)
	if err == nil && !s.Quorum.OK {
		err = fmt.Errorf("%w: %d voters are connected, %d needed to write", client.ErrNoQuorum, s.Quorum.Reached, s.Quorum.Write)
	}
	return s, err
}
