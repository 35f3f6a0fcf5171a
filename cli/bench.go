package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) benchCommand() *cli.Command {
	return command(cli.Command{
		Name:      "bench",
		Usage:     "measure sets and gets by clients that wait for each answer",
		ArgsUsage: " ",
		Description: "Each client does one operation after another, on keys of its own below bench/, and with\n" +
			"--conflict on one key of all. The keys stay. The clients are spread over the sockets, or with\n" +
			"--demo over three sites on this machine: with --rtt off each is a process, as agents are, and\n" +
			"otherwise they are in this one, where the distances are.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "socket", EnvVars: []string{"GUS_SOCKET"}, Usage: "an agent's unix socket `PATH`; repeat it, or separate by commas", DefaultText: "gus.sock in the data directory"},
			dataFlag(), timeoutFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "demo", Usage: "run against three sites on this machine"},
			&cli.StringFlag{Name: "rtt", Usage: "with --demo: round-trip times between its sites, as in gus demo; or off", DefaultText: "CA-VA=72,CA-IR=151,VA-IR=88"},
			&cli.StringFlag{Name: "kill", Usage: "with --demo: stop `SITE` without warning for the middle third"},
			&cli.IntFlag{Name: "clients", Usage: "clients in all, `N`", Value: 128},
			&cli.DurationFlag{Name: "duration", Usage: "measure for `D`", Value: 10 * time.Second},
			&cli.DurationFlag{Name: "warmup", Usage: "before that, run for `D`", Value: 2 * time.Second},
			&cli.Float64Flag{Name: "reads", Usage: "share of gets, 0 to 1", Value: 0.5},
			&cli.Float64Flag{Name: "conflict", Usage: "share of operations on one key of all clients, 0 to 1"},
			&cli.IntFlag{Name: "size", Usage: "bytes of a value", Value: 16},
			&cli.IntFlag{Name: "keys", Usage: "keys in all, besides the one of all clients", Value: 1024},
			&cli.BoolFlag{Name: "check", Usage: "judge afterwards whether all that was read and written is linearizable"},
		},
		Action: a.bench,
	})
}

// benchConfig is what is to be measured.
type benchConfig struct {
	clients          int
	duration, warmup time.Duration
	timeout          time.Duration
	reads, conflict  float64
	size, keys       int
	check            bool
}

func benchConfigOf(c *cli.Context) (benchConfig, error) {
	b := benchConfig{
		clients: c.Int("clients"), duration: c.Duration("duration"), warmup: c.Duration("warmup"), timeout: c.Duration("timeout"),
		reads: c.Float64("reads"), conflict: c.Float64("conflict"), size: c.Int("size"), keys: c.Int("keys"), check: c.Bool("check"),
	}
	switch {
	case b.clients < 1 || b.duration <= 0 || b.warmup < 0 || b.timeout <= 0:
		return b, usage("bench: there must be at least one client, and durations and the timeout must be more than nothing")
	case b.reads < 0 || b.reads > 1 || b.conflict < 0 || b.conflict > 1:
		return b, usage("bench: --reads and --conflict are shares from 0 to 1")
	case b.size < minSize || b.size > client.MaxValue:
		return b, usage("bench: --size must be %d to %d bytes", minSize, client.MaxValue)
	case b.keys < b.clients:
		return b, usage("bench: --keys must be no less than --clients, which is %d: each has keys of its own", b.clients)
	}
	return b, nil
}

func (a *app) bench(c *cli.Context) error {
	if err := wantArgs(c, 0, 0); err != nil {
		return err
	}
	cfg, err := benchConfigOf(c)
	if err != nil {
		return err
	}
	var r *benchReport
	if c.Bool("demo") {
		r, err = a.benchDemo(c, cfg)
	} else {
		r, err = a.benchSockets(c, cfg)
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = a.printJSON(r)
	} else {
		r.print(a.out)
	}
	if err == nil && r.Check != nil && len(r.Check.Violations) > 0 {
		err = fmt.Errorf("the history is not linearizable: %s", r.Check.Violations[0])
	}
	return err
}

// benchSockets measures agents that run elsewhere.
func (a *app) benchSockets(c *cli.Context, cfg benchConfig) (*benchReport, error) {
	if c.IsSet("rtt") || c.IsSet("kill") {
		return nil, usage("bench: --rtt and --kill are for --demo")
	}
	sockets := c.StringSlice("socket")
	if len(sockets) == 0 {
		sockets = []string{unnamedSocket(c, serviceSocket)}
	}
	l := newLoad(cfg)
	for _, s := range sockets {
		cl := client.NewPipelined(s)
		defer cl.Close()
		st, err := status(c.Context, cl, cfg.timeout)
		if err != nil {
			return nil, err
		}
		l.sites = append(l.sites, newLoadSite(st.Site, cl))
	}
	l.run(c.Context, nil)
	return l.report(c.Context)
}

func status(ctx context.Context, cl *client.Client, timeout time.Duration) (client.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return cl.Status(ctx)
}

// benchDemo measures three sites of its own: processes, where that does without distances.
func (a *app) benchDemo(c *cli.Context, cfg benchConfig) (report *benchReport, err error) {
	r, err := parseRTTs(c.String("rtt"))
	if err != nil {
		return nil, err
	}
	dir, remove, err := demoDir("")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelError}))
	program := a.program
	if len(r) > 0 || c.String("kill") != "" {
		program = ""
	}
	sites, err := openDemoOf(c.Context, program, dir, r, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sites.close()) }()
	if err := sites.await(c.Context); err != nil {
		return nil, err
	}
	l := newLoad(cfg)
	l.inProcess = program == ""
	for _, s := range sites.sites {
		l.sites = append(l.sites, newLoadSite(s.name, s.client))
	}
	var disturb func(context.Context) error
	if name := c.String("kill"); name != "" {
		victim, err := sites.find(name)
		if err != nil {
			return nil, err
		}
		disturb = func(ctx context.Context) error { return killFor(ctx, sites, victim, cfg.duration/3) }
	}
	if err := l.run(c.Context, disturb); err != nil {
		return nil, err
	}
	return l.report(c.Context)
}

// killFor stops a site after d, and starts it again after another d.
func killFor(ctx context.Context, sites *demoSites, victim *demoSite, d time.Duration) error {
	for _, step := range []func() error{
		func() error { sites.kill(victim); return nil },
		func() error { return sites.restart(ctx, victim) },
	} {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d):
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
