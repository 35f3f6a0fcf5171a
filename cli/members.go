package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) membersCommand() *cli.Command {
	return command(cli.Command{
		Name:      "members",
		Usage:     "the sites of the cluster, as this one sees them",
		ArgsUsage: " ",
		Description: "A site is up where it is connected with this one, unreachable where only others hear of it, down\n" +
			"where nobody does. What gossip says decides nothing: whether there is a quorum, `gus status` says.\n" +
			"Voters show the observers that have been there since the voter's start, down where they are not\n" +
			"connected with it. Observers know the voters and themselves.",
		Flags: clientFlags(),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0); err != nil {
				return err
			}
			return ask(c, a.members)
		},
	})
}

func (a *app) members(c *cli.Context, cl *client.Client) error {
	s, err := cl.Status(c.Context)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(s.Members)
	}
	printMembers(a.out, s.Members, time.Now())
	return nil
}

const memberFormat = "%-16s  %-8s  %-19s  %9s  %s\n"

// printMembers prints a table in 80 columns, names and addresses permitting.
func printMembers(w io.Writer, members []client.Member, now time.Time) {
	fmt.Fprintf(w, memberFormat, "SITE", "ROLE", "STATE", "RTT", "ADDRESS")
	for _, m := range members {
		fmt.Fprintf(w, memberFormat, m.Name, m.Role, state(m, now), rtt(m), dash(m.Address))
	}
}

func state(m client.Member, now time.Time) string {
	switch {
	case m.Self:
		return "this site"
	case m.State == client.StateUp:
		return "up " + ago(m.Since, now)
	case m.State == client.StateUnreachable:
		return "UNREACHABLE " + ago(m.Since, now)
	case m.State == client.StateUnseen:
		return "never seen"
	}
	return "DOWN " + ago(m.Since, now)
}

func rtt(m client.Member) string {
	if m.RTT == 0 {
		return "-"
	}
	return millis(time.Duration(m.RTT))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
