package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) watchCommand() *cli.Command {
	return command(cli.Command{
		Name:      "watch",
		Usage:     "print changes as they come, or run a command for them",
		ArgsUsage: "[PREFIX] [-- COMMAND ARG...]",
		Description: "Prints a line for each change of a key that begins with PREFIX, of any without one: set KEY VERSION\n" +
			"SIZE WRITER or delete KEY VERSION WRITER. Of each key versions only grow and the last one always\n" +
			"comes; those in between may be left out. It goes on until it is stopped, also while the agent is\n" +
			"away, and then resumes where it was; only at the beginning the agent must be there. --json prints the\n" +
			"events as the agent tells them; --after takes the cursor of one. Where that is of no use any more it\n" +
			"exits with 1; without --after it tells the state again.\n\n" +
			"With a COMMAND it prints nothing and runs that for each changed key, one at a time, with the value on\n" +
			"stdin and GUS_KEY, GUS_EVENT (set or delete), GUS_VERSION and GUS_CURSOR in its environment. While one\n" +
			"runs, further changes of a key become one. A command that fails is reported and not run again until\n" +
			"its key changes. Keys reach it as data, through no shell. When the watch is stopped, the command gets a\n" +
			"SIGTERM, with all that it started, and 10 s to end.",
		Flags: clientFlags(
			&cli.StringFlag{Name: "after", Usage: "go on after the `CURSOR` of an event"},
			&cli.BoolFlag{Name: "state", Usage: "begin with the keys that are there, each as a set"},
			&cli.BoolFlag{Name: "values", Usage: "print values, too: quoted, or with --json in base64"},
		),
		Action: func(c *cli.Context) error {
			args, command := splitAtDashes(c.Args().Slice())
			switch {
			case len(args) > 1:
				return usage("watch: too many arguments from %q on: a command goes after --, as in gus watch app/ -- COMMAND", args[1])
			case command != nil && len(command) == 0:
				return usage("watch: there is no command behind the --")
			case command != nil && (c.Bool("json") || c.Bool("values")):
				return usage("watch: --json and --values are for what is printed, and a command prints itself")
			case c.Bool("state") && c.String("after") != "":
				return usage("watch: --state begins anew, --after goes on: one of them")
			}
			w := client.Watching{Prefix: slices.Concat(args, []string{""})[0], After: c.String("after"), State: c.Bool("state"), Values: c.Bool("values"), Timeout: c.Duration("timeout")}
			return connect(c, func(c *cli.Context, cl *client.Client) error {
				if command != nil {
					return a.watchAndRun(c.Context, cl, w, command)
				}
				return a.watchAndPrint(c, cl, w)
			})
		},
	})
}

// splitAtDashes parts arguments at the first "--". What is behind it is nil where there
// is none.
func splitAtDashes(args []string) (before, behind []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], append([]string{}, args[i+1:]...)
	}
	return args, nil
}

// watchAndPrint prints events until it is stopped.
func (a *app) watchAndPrint(c *cli.Context, cl *client.Client, w client.Watching) error {
	out := bufio.NewWriter(a.out)
	p := eventPrinter{out: out, show: func(key string) string { return key }, values: w.Values}
	if isTerminal(a.out) {
		p.show = printable
	}
	print := p.line
	if c.Bool("json") {
		print = func(e client.Event) error { return printJSON(out, e) }
	}
	f := follower{cl: cl, watching: w, say: a.tell}
	return f.follow(c.Context, func(e client.Event) error {
		err := print(e)
		if err == nil && !e.More {
			err = out.Flush()
		}
		if err != nil {
			return fmt.Errorf("print the events: %w", err)
		}
		return nil
	})
}

// tell says something on stderr that is no error of the command's.
func (a *app) tell(format string, args ...any) {
	fmt.Fprintf(a.err, "gus: "+format+"\n", args...)
}

// eventPrinter prints events for people.
type eventPrinter struct {
	out    io.Writer
	show   func(key string) string
	values bool
}

func (p eventPrinter) line(e client.Event) (err error) {
	switch e.Type {
	case client.EventSet:
		value := ""
		if p.values {
			value = " " + strconv.Quote(string(e.Value))
		}
		_, err = fmt.Fprintf(p.out, "set %s %s %d %s%s\n", p.show(e.Key), e.Version, e.Size, e.Writer, value)
	case client.EventDelete:
		_, err = fmt.Fprintf(p.out, "delete %s %s %s\n", p.show(e.Key), e.Version, e.Writer)
	}
	return err
}

// follower keeps a watch going.
type follower struct {
	cl       *client.Client
	watching client.Watching
	say      func(format string, args ...any)

	after string // what the user asked to go on after
	begun bool   // the agent has answered once
	away  bool
	old   bool // the site does not hear of all changes
}

// How long it waits before it looks again for an agent that is away: at first, and at most.
const (
	awayLeast = 100 * time.Millisecond
	awayMost  = 2 * time.Second
)

// follow calls yield with each event until ctx ends, and then returns nil. It
// returns the first error of yield, one of the agent's that time does not heal, and one of
// an agent that is not there to begin with.
func (f *follower) follow(ctx context.Context, yield func(client.Event) error) error {
	f.after = f.watching.After
	wait := awayLeast
	for {
		heard, err := f.once(ctx, yield)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, client.ErrRelist):
			if f.after != "" {
				return fmt.Errorf("watch: %w: %q is no cursor of this site's database as it is now: list the keys, and watch without --after, or with --state to have them told", client.ErrRelist, f.after)
			}
			f.say("the agent cannot go on where the watch was: all keys that are there are told again; those deleted meanwhile are not")
			f.watching.After, f.watching.State = "", true
		case !f.begun || !passing(err) && !errors.Is(err, client.ErrRefused):
			return err // refused later on: a service that starts again opens its socket to others last
		case !f.away:
			f.away = true
			f.say("%v: waiting until it is back", err)
		}
		if heard {
			wait = awayLeast
		}
		sleep(ctx, wait)
		wait = min(2*wait, awayMost)
	}
}

// tellAge says so where the site begins to miss changes, and where that ends.
func (f *follower) tellAge(e client.Event) {
	told := e.Type == client.EventSynced || e.Type == client.EventAlive
	switch old := e.Age > 0; {
	case !told || old == f.old:
	case old:
		f.old = true
		f.say("what this site shows is at least %v old: it does not hear of all changes", time.Duration(e.Age).Round(time.Second))
	default:
		f.old = false
		f.say("this site hears of all changes again")
	}
}

// once watches until the watch breaks. heard says whether anything came.
func (f *follower) once(ctx context.Context, yield func(client.Event) error) (heard bool, err error) {
	w, err := f.cl.Watch(ctx, f.watching)
	if err != nil {
		return false, err
	}
	defer w.Close()
	f.begun = true
	for {
		e, err := w.Next()
		if err != nil {
			return heard, err
		}
		heard = true
		if f.away {
			f.away = false
			f.say("the agent is back")
		}
		if e.Type == client.EventSynced {
			f.watching.State = false
		}
		f.tellAge(e)
		if f.watching.State { // whoever went on from here would miss the rest of it
			e.Cursor = ""
		}
		if err := yield(e); err != nil {
			return heard, err
		}
		if e.Cursor != "" {
			f.watching.After = e.Cursor
		}
	}
}
