package cli

import (
	"log/slog"
	"strings"

	"github.com/urfave/cli/v2"

	"gus/agent"
)

func (a *app) agentCommand() *cli.Command {
	return command(cli.Command{
		Name:      "agent",
		Usage:     "run this site's agent in the foreground",
		ArgsUsage: " ",
		Description: "Needs an identity in the data directory. SIGTERM or Ctrl-C stops it within seconds; the site\n" +
			"remains a member.",
		Flags: []cli.Flag{
			dataFlag(), socketFlag(),
			&cli.StringFlag{Name: "listen", EnvVars: []string{"GUS_LISTEN"}, Usage: "UDP address `HOST:PORT` for other sites", Value: agent.DefaultListen},
			&cli.StringSliceFlag{Name: "peer", EnvVars: []string{"GUS_PEERS"}, Usage: "another site's `NAME=HOST:PORT`; repeat it, or separate by commas"},
			&cli.BoolFlag{Name: "json", Usage: "log JSON"},
		},
		Action: a.agent,
	})
}

func (a *app) agent(c *cli.Context) error {
	if err := wantArgs(c, 0, 0); err != nil {
		return err
	}
	peers := map[string]string{}
	for _, p := range c.StringSlice("peer") {
		name, addr, ok := strings.Cut(p, "=")
		if !ok || name == "" || addr == "" {
			return usage("agent: --peer %q: write it as NAME=HOST:PORT", p)
		}
		peers[name] = addr
	}
	var handler slog.Handler = slog.NewTextHandler(a.err, nil)
	if c.Bool("json") {
		handler = slog.NewJSONHandler(a.err, nil)
	}
	return agent.Run(c.Context, agent.Config{
		Data:    dataDir(c),
		Socket:  socketPath(c),
		Listen:  c.String("listen"),
		Peers:   peers,
		Version: programVersion(),
		Logger:  slog.New(handler),
	})
}
