package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/urfave/cli/v2"

	"gus/agent"
)

func listenFlag(usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: "listen", EnvVars: []string{"GUS_LISTEN"}, Usage: usage}
}

func (a *app) agentCommand() *cli.Command {
	listen := listenFlag("UDP address `HOST:PORT` for other sites")
	listen.Value = agent.DefaultListen
	return command(cli.Command{
		Name:      "agent",
		Usage:     "run this site's agent in the foreground",
		ArgsUsage: " ",
		Description: "Needs an identity in the data directory: see `gus init` and `gus join`. SIGTERM or Ctrl-C stops\n" +
			"it within seconds; the site remains a member. The other sites are found where joining said,\n" +
			"and where they were last; --seed adds addresses, names too, that are looked up at each try.",
		Flags: []cli.Flag{
			dataFlag(), socketFlag(), listen,
			&cli.StringFlag{Name: "advertise", EnvVars: []string{"GUS_ADVERTISE"}, Usage: "where others reach this site, `HOST:PORT`", DefaultText: "where they see it"},
			&cli.StringSliceFlag{Name: "seed", EnvVars: []string{"GUS_SEEDS"}, Usage: "where another site may be, `HOST:PORT`; repeat it, or separate by commas"},
			&cli.StringFlag{Name: "log-format", EnvVars: []string{"GUS_LOG_FORMAT"}, Usage: "`FORMAT` of the log on stderr: text or json", Value: "text"},
		},
		Action: a.agent,
	})
}

func (a *app) agent(c *cli.Context) error {
	if err := wantArgs(c, 0, 0); err != nil {
		return err
	}
	log, err := newLog(a.err, c.String("log-format"))
	if err != nil {
		return err
	}
	cfg := agent.Config{
		Data:      dataDir(c),
		Socket:    socketPath(c),
		Listen:    c.String("listen"),
		Advertise: c.String("advertise"),
		Seeds:     c.StringSlice("seed"),
		Version:   programVersion(),
		Logger:    log,
	}
	if err := cfg.Validate(); err != nil {
		return usage("agent: %v", err)
	}
	notify := notifierOf(log)
	cfg.Ready = func() { notify.send("READY=1") }
	defer context.AfterFunc(c.Context, func() { notify.send("STOPPING=1") })()
	return agent.Run(c.Context, cfg)
}

// newLog returns the agent's log. JSON has addresses and ids as text has them,
// not taken apart.
func newLog(w io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case "json":
		asText := func(_ []string, a slog.Attr) slog.Attr {
			if v, ok := a.Value.Any().(fmt.Stringer); ok && a.Value.Kind() == slog.KindAny {
				return slog.String(a.Key, v.String())
			}
			return a
		}
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: asText})), nil
	}
	return nil, usage("agent: --log-format %q: must be text or json", format)
}
