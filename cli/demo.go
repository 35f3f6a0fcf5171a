package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

func (a *app) demoCommand() *cli.Command {
	return command(cli.Command{
		Name:      "demo",
		Usage:     "run four sites in this process and show what they do",
		ArgsUsage: " ",
		Description: "Three voters (CA, VA, IR) and an observer (JP) on loopback, with the round-trip times of real regions.\n" +
			"It sets and gets a few keys at each, prints what each took, and stays until Ctrl-C so that\n" +
			"other commands can talk to the sites from another terminal.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "rtt", Usage: "round-trip times in milliseconds, `PAIRS` as in CA-VA=72,VA-IR=88; or off", DefaultText: "CA-VA=72,CA-IR=151,VA-IR=88,CA-JP=113,VA-JP=162,IR-JP=220"},
			&cli.StringFlag{Name: "dir", Usage: "keep the sites' data in `DIR`, and go on with what is there", DefaultText: "a temporary directory"},
			&cli.StringFlag{Name: "kill", Usage: "stop `SITE` without warning after the tour, go on without it, start it again"},
			&cli.BoolFlag{Name: "once", Usage: "exit after the tour"},
		},
		Action: a.demo,
	})
}

func (a *app) demo(c *cli.Context) (err error) {
	if err := wantArgs(c, 0, 0); err != nil {
		return err
	}
	r, err := parseRTTs(c.String("rtt"))
	if err != nil {
		return err
	}
	dir, remove, err := demoDir(c.String("dir"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelError}))
	sites, err := openDemo(c.Context, dir, r, log, a.demoObservers(dir)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sites.close()) }()
	t := &tour{out: a.out, sites: sites}
	if err := t.run(c.Context, c.String("kill")); err != nil {
		if c.Bool("once") && c.Context.Err() != nil {
			return errors.New("interrupted before the tour was over")
		}
		return interrupted(c.Context, err)
	}
	if c.Bool("once") {
		return nil
	}
	t.invite()
	return a.stay(c.Context, t)
}

// demoObservers returns the observers of the demo in dir: none where its sites were made without one, since
// the key is gone that could let one in.
func (a *app) demoObservers(dir string) []string {
	made := func(name string) bool { return exists(filepath.Join(dir, name, "identity", "site.key")) }
	if slices.ContainsFunc(siteNames(), func(name string) bool { return !made(name) }) || made(observerName) {
		return []string{observerName}
	}
	fmt.Fprintf(a.err, "gus: %s is left out: the sites in %s were made without it; with another --dir, or none, it is there\n", strings.ToUpper(observerName), dir)
	return nil
}

// interrupted returns nil for an error that came of Ctrl-C.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stay waits for Ctrl-C, and for what somebody at the terminal types.
func (a *app) stay(ctx context.Context, t *tour) error {
	if !isTerminal(a.in) {
		fmt.Fprintln(a.out, "\nCtrl-C ends it.")
		<-ctx.Done()
		return nil
	}
	fmt.Fprintln(a.out, "\nk SITE + Enter kills a site or starts it again, s shows the status, q or Ctrl-C ends it.")
	lines := readLines(ctx, a.in)
	for {
		select {
		case <-ctx.Done():
			return nil
		case line, ok := <-lines:
			if !ok { // nobody types; the sites stay
				<-ctx.Done()
				return nil
			}
			if quit := t.typed(ctx, line); quit {
				return nil
			}
		}
	}
}

// typed does what was typed and says whether to end.
func (t *tour) typed(ctx context.Context, line string) (quit bool) {
	var word, name string
	fmt.Sscan(line, &word, &name)
	switch word {
	case "q":
		return true
	case "s":
		t.states(ctx)
	case "k":
		if err := t.toggle(ctx, name); err != nil {
			t.say("%v", err)
		}
	case "":
	default:
		t.say("k SITE, s or q")
	}
	return false
}

func (t *tour) toggle(ctx context.Context, name string) error {
	s, err := t.sites.find(name)
	switch {
	case err != nil:
		return err
	case s.up():
		t.kill(s)
		return nil
	}
	return t.restart(ctx, s)
}

func (t *tour) states(ctx context.Context) {
	for _, s := range t.sites.sites {
		if !s.up() {
			t.say("%s is stopped", s.label())
			continue
		}
		st, err := s.client.Status(ctx)
		if err != nil {
			t.say("%s: %v", s.label(), err)
			continue
		}
		line := "quorum " + quorumLine(st, time.Now())
		if st.Following != nil {
			line = "observer, " + copyLine(*st.Following, time.Now())
		}
		t.say("%s: %s; %d keys, memory of all %s", s.label(), line, st.Keys, size(st.Memory))
	}
}
