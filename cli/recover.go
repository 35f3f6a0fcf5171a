package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent"
)

func (a *app) recoverCommand() *cli.Command {
	return command(cli.Command{
		Name:      "recover",
		Usage:     "make a new cluster from this stopped site, where a quorum is gone for good",
		ArgsUsage: " ",
		Description: "For the day when so many voters are lost, with their disks, that no quorum can ever answer again. It says\n" +
			"what this site holds and what may be lost: writes that others acknowledged and this site has not seen. Then it makes a\n" +
			"new cluster, whose only voter is this site, with all that it holds. The old identity and database are kept\n" +
			"aside in the data directory, and with it the history: that of the new cluster begins with these keys. It asks\n" +
			"the other voters first, and refuses where a quorum answers.\n\n" +
			"Run it at one site only, the one that holds the most, and take the others' old data out of the way: they\n" +
			"belong to another cluster then, and are told so where they meet this site. An observer can be recovered, too.",
		Flags: []cli.Flag{
			dataFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "dry-run", Usage: "say what this site holds and what may be lost, and change nothing"},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
		},
		Action: a.recover,
	})
}

func (a *app) recover(c *cli.Context) (err error) {
	if err := wantArgs(c, 0, 0); err != nil {
		return err
	}
	asks := !c.Bool("yes") && !c.Bool("dry-run")
	if asks && !isTerminal(a.in) {
		return usage("recover: nobody can be asked whether to go on: add --yes, or --dry-run to see what may be lost")
	}
	data, err := ownData(c)
	if err != nil {
		return err
	}
	if done, err := agent.FinishRecovery(data); err != nil || done.Cluster != "" {
		if err == nil {
			err = a.printRecovered(c, done, "finished what was cut off: ")
		}
		return err
	}
	r, err := agent.OpenRecovery(c.Context, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if c.Bool("dry-run") && c.Bool("json") {
		return a.printJSON(r.Survey)
	}
	if !c.Bool("json") {
		a.printSurvey(r.Survey)
	}
	if c.Bool("dry-run") {
		return nil
	}
	if asks {
		if err := a.confirm(c.Context, "make a new cluster of this? [y/N] "); err != nil {
			return err
		}
	}
	steps := a.stepsOf(int(r.Survey.Keys + r.Survey.Deleted))
	done, err := r.Run(steps.is)
	steps.end()
	if err != nil {
		return err
	}
	return a.printRecovered(c, done, "")
}

// printSurvey says what a site holds and what may be lost.
func (a *app) printSurvey(s agent.Survey) {
	fmt.Fprintf(a.out, "%s (%s) of cluster %s holds %s", s.Site, s.Role, s.Cluster, count(int(s.Keys), "key"))
	if !s.Newest.IsZero() {
		fmt.Fprintf(a.out, ", the newest written %s UTC", s.Newest.Format(time.DateTime))
	}
	fmt.Fprintln(a.out, ".")
	if s.Unsettled > 0 {
		fmt.Fprintf(a.out, "Of these %s not known to be held by a quorum; they are kept.\n", areWrites(s.Unsettled))
	}
	if s.Forgot {
		fmt.Fprint(a.out, wrap("This directory is OLDER than what the site has told the others: a copy, or an image that was put back. What it has done since is lost.", ""))
	}
	fmt.Fprint(a.out, wrap(fmt.Sprintf("May be lost: writes that %d of the %d voters acknowledged and this site has not seen.", s.Quorum, s.Voters), "  "))
	for _, o := range s.Others {
		fmt.Fprint(a.out, wrap("  "+o.Name+": "+lostLine(o), "    "))
	}
}

func areWrites(n int64) string {
	if n == 1 {
		return "1 is"
	}
	return thousands(int(n)) + " are"
}

// lostLine says what is known of another voter.
func lostLine(o agent.LostVoter) string {
	line := "where it was is not known, so it was not asked"
	switch {
	case o.Answers:
		line = "ANSWERS at " + o.Address + ", and is no quorum; if it holds more than this site, recover there"
	case o.Address != "":
		line = "does not answer at " + o.Address
	}
	switch {
	case !o.Heard:
		return line + "; this site has never heard how far it had come"
	case o.Unseen == 0:
		return line + "; all of its saves that this site has heard of were looked at, and what it saved later is not known here"
	}
	return line + fmt.Sprintf("; %s of its saves that this site has heard of were not looked at, nor any later ones", thousands(int(o.Unseen)))
}

func (a *app) printRecovered(c *cli.Context, r agent.Restored, what string) error {
	if c.Bool("json") {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "%srecovered %s, the only voter of the new cluster %s\n", what, r.Site, r.Cluster)
	fmt.Fprintf(a.out, "The old identity and database are in %s, which nothing needs any more.\n", r.Old)
	a.printNewCluster(r)
	return nil
}
