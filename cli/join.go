package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent"
	"gus/agent/client"
)

func (a *app) initCommand() *cli.Command {
	return command(cli.Command{
		Name:      "init",
		Usage:     "found a cluster, with this site as its first",
		ArgsUsage: " ",
		Description: "Makes the cluster's authority, whose key stays at this site, and this site's identity. The voters\n" +
			"are the sites that hold the data: 1, 3 or 5 of them are good numbers, 9 the most. The names of the\n" +
			"others are kept for them until they join, by `gus token` here and `gus join` there. Any number of\n" +
			"other sites can join as observers, at any time: they hold a copy and do not vote.",
		Flags: []cli.Flag{
			nameFlag(),
			&cli.StringSliceFlag{Name: "voters", Usage: "the `NAMES` of all voters, this one among them, separated by commas", DefaultText: "this site alone"},
			dataFlag(), jsonFlag(),
		},
		Action: a.init,
	})
}

func nameFlag() cli.Flag {
	return &cli.StringFlag{Name: "name", EnvVars: []string{"GUS_NAME"}, Usage: "this site's `NAME`: a-z, 0-9, - and ."}
}

// siteName returns the name that was given.
func siteName(c *cli.Context) (string, error) {
	name := c.String("name")
	if name == "" {
		return "", usage("%s: a name for this site is missing: add --name NAME", c.Command.Name)
	}
	return name, nil
}

func (a *app) init(c *cli.Context) error {
	if err := wantArgs(c, 0, 0); err != nil {
		return err
	}
	name, err := siteName(c)
	if err != nil {
		return err
	}
	voters := c.StringSlice("voters")
	if len(voters) == 0 {
		voters = []string{name}
	}
	if !slices.Contains(voters, name) {
		return usage("init: --voters must name this site, too: %s is not among %s", name, strings.Join(voters, ", "))
	}
	data, err := ownData(c)
	if err != nil {
		return err
	}
	f, err := agent.Init(data, name, voters)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(f)
	}
	fmt.Fprintf(a.out, "Founded cluster %s; this is %s.\n", f.Cluster, f.Site)
	fmt.Fprintf(a.out, "Back up %s: without it no site can join any more,\nand whoever has it can let in anybody.\n", f.CAKey)
	if f.Advice != "" {
		fmt.Fprintf(a.out, "Think about it: %s.\n", f.Advice)
	}
	others := slices.DeleteFunc(slices.Clone(f.Voters), func(v string) bool { return v == f.Site })
	fmt.Fprintln(a.out, "Next: run `gus agent` here.")
	if len(others) > 0 {
		fmt.Fprintf(a.out, "Then `gus token` makes a token, with which %s can `gus join`.\n", strings.Join(others, ", "))
	}
	return nil
}

func (a *app) tokenCommand() *cli.Command {
	return command(cli.Command{
		Name:      "token",
		Usage:     "make a token with which sites can join",
		ArgsUsage: " ",
		Description: "Prints the token and nothing else. Whoever has it can join, for as long as it lives, under the name\n" +
			"of a voter that has not joined yet, or as an observer under any free name, and then read and write\n" +
			"all keys: keep it secret. It lives on in the agent of the founding site and does not age while that\n" +
			"is stopped. It may be made at any voter that reaches the founding site, and be used at any site.",
		Flags: clientFlags(
			&cli.DurationFlag{Name: "ttl", Usage: "the token lives for `D`, at most 720h", Value: time.Hour},
		),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0); err != nil {
				return err
			}
			return ask(c, a.token)
		},
	})
}

func (a *app) token(c *cli.Context, cl *client.Client) error {
	if ttl := c.Duration("ttl"); ttl <= 0 {
		return usage("token: --ttl %v: must be more than nothing", ttl)
	}
	t, err := cl.Token(c.Context, c.Duration("ttl"))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(t)
	}
	_, err = fmt.Fprintln(a.out, t.Token)
	return err
}

func (a *app) joinCommand() *cli.Command {
	return command(cli.Command{
		Name:      "join",
		Usage:     "make this machine a site of a cluster",
		ArgsUsage: "TOKEN|-",
		Description: "Asks one of the sites that the token names for a certificate for a key that is made here and never\n" +
			"leaves, and writes the identity into the data directory. With - the token comes from stdin, where\n" +
			"no other user of this machine sees it. After a failure it may be run again.\n\n" +
			"The voters' names were given when the cluster was founded. With --observer any other name does: an\n" +
			"observer holds a copy of all keys, counts for no quorum, and passes on to the nearest voter what\n" +
			"needs one. It only has to dial out. A cluster has room for 1,000 of them.",
		Flags: []cli.Flag{
			nameFlag(), dataFlag(),
			listenFlag("ask from the UDP address `HOST:PORT`; default: any"),
			&cli.BoolFlag{Name: "observer", Usage: "hold a copy of all keys, and do not vote"},
			&cli.DurationFlag{Name: "timeout", EnvVars: []string{"GUS_TIMEOUT"}, Usage: "give up after the duration `D`", Value: 30 * time.Second},
			jsonFlag(),
		},
		Action: a.join,
	})
}

func (a *app) join(c *cli.Context) error {
	if err := wantArgs(c, 1, 1); err != nil {
		return err
	}
	name, err := siteName(c)
	if err != nil {
		return err
	}
	token := c.Args().First()
	if token == "-" {
		b, err := patient(c.Context, func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.in, 1<<16)) })
		if err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
		token = string(b)
	}
	if d := c.Duration("timeout"); d <= 0 {
		return usage("join: --timeout %v: must be more than nothing", d)
	}
	data, err := ownData(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	j, err := agent.Join(ctx, agent.Joining{
		Data: data, Name: name, Token: token, Observer: c.Bool("observer"), Listen: c.String("listen"),
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(j)
	}
	as := j.Site
	if j.Number == 0 {
		as += ", an observer"
	}
	fmt.Fprintf(a.out, "Joined cluster %s as %s, through %s at %s.\n", j.Cluster, as, j.Via, j.Address)
	return nil
}
