package cli

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) listCommand() *cli.Command {
	return command(cli.Command{
		Name:      "list",
		Usage:     "list keys",
		ArgsUsage: "[PREFIX]",
		Description: "Prints the keys that begin with PREFIX, all of them without one, in order, one a line. It is no\n" +
			"snapshot across keys: each is as `gus get` would have shown it during the listing. With --local\n" +
			"it asks nobody, and may be stale and lack keys. On a terminal, keys with characters that do not\n" +
			"print are quoted. With --epoch, --at or --ago it prints what this site knew then: a snapshot, as far as this site\n" +
			"had heard. --timeout is for each page of 1,000 keys.",
		Flags: clientFlags(append(pastFlags(),
			&cli.BoolFlag{Name: "long", Aliases: []string{"l"}, Usage: "also size, time (UTC), writing site and version"},
			&cli.BoolFlag{Name: "local", Usage: "what this site knows; may be stale"},
		)...),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 1); err != nil {
				return err
			}
			return connect(c, a.list)
		},
	})
}

func (a *app) list(c *cli.Context, cl *client.Client) error {
	past, err := pastOf(c, cl)
	if err != nil {
		return err
	}
	epoch := past.Number
	if epoch > 0 && c.Bool("local") {
		return usage("list: --local, or --epoch, --at or --ago, not both")
	}
	out := bufio.NewWriter(a.out)
	p := lister{out: out, show: func(key string) string { return key }}
	if isTerminal(a.out) {
		p.show = printable
	}
	print := p.short
	switch {
	case c.Bool("json"):
		print = func(e client.Entry) error { return printJSON(out, e) }
	case c.Bool("long"):
		print = p.long
	}
	var failed error
	l := client.Listing{Prefix: c.Args().First(), Local: c.Bool("local"), Epoch: epoch, Timeout: c.Duration("timeout"), Aged: a.aged()}
	for e, err := range cl.List(c.Context, l) {
		if err == nil {
			err = print(e)
		}
		if failed = err; failed != nil {
			break
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print the keys: %w", err)
	}
	return failed
}

// aged returns what tells people, once, that what this site knows may be old.
func (a *app) aged() func(time.Duration) {
	told := false
	return func(age time.Duration) {
		if age <= 0 || told {
			return
		}
		told = true
		how := "may be old"
		if age >= time.Second {
			how = "is " + ago(time.Time{}, time.Time{}.Add(age)) + " old at least"
		}
		fmt.Fprintf(a.err, "gus: this copy %s: `gus status` says why\n", how)
	}
}

// lister prints entries.
type lister struct {
	out   io.Writer
	show  func(key string) string
	begun bool
}

func (p *lister) short(e client.Entry) error {
	_, err := fmt.Fprintln(p.out, p.show(e.Key))
	return err
}

const longFormat = "%9s  %-19s  %-12s  %-20s  %s\n"

func (p *lister) long(e client.Entry) error {
	if !p.begun {
		p.begun = true
		if _, err := fmt.Fprintf(p.out, longFormat, "SIZE", "WRITTEN (UTC)", "BY", "VERSION", "KEY"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(p.out, longFormat, strconv.Itoa(e.Size), e.Time.UTC().Format(time.DateTime), e.Writer, e.Version, p.show(e.Key))
	return err
}

// printable is key as a terminal may show it: what does not print, or could be
// mistaken for something else, is quoted.
func printable(key string) string {
	odd := func(r rune) bool { return !strconv.IsPrint(r) }
	if strings.ContainsFunc(key, odd) || strings.HasPrefix(key, `"`) || strings.TrimSpace(key) != key {
		return strconv.Quote(key)
	}
	return key
}
