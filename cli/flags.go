package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON, for scripts"}
}

func socketFlag() cli.Flag {
	return &cli.StringFlag{Name: "socket", EnvVars: []string{"GUS_SOCKET"}, Usage: "the agent's unix socket `PATH`", DefaultText: "gus.sock in the data directory"}
}

func dataFlag() cli.Flag {
	return &cli.StringFlag{Name: "data", EnvVars: []string{"GUS_DATA"}, Usage: "the agent's data directory `DIR`", DefaultText: defaultData()}
}

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", EnvVars: []string{"GUS_TIMEOUT"}, Usage: "give up after the duration `D`", Value: 5 * time.Second}
}

// dataDir is where the agent's data is.
func dataDir(c *cli.Context) string {
	if d := c.String("data"); d != "" {
		return d
	}
	return defaultData()
}

// defaultData is /var/lib/gus for root and a directory of the user's otherwise.
func defaultData() string {
	if os.Geteuid() == 0 {
		return "/var/lib/gus"
	}
	if state := os.Getenv("XDG_STATE_HOME"); state != "" {
		return filepath.Join(state, "gus")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "/var/lib/gus"
	}
	return filepath.Join(home, ".local", "state", "gus")
}

// socketPath is where the agent's socket is.
func socketPath(c *cli.Context) string {
	if s := c.String("socket"); s != "" {
		return s
	}
	return filepath.Join(dataDir(c), "gus.sock")
}

// clientFlags are those of commands that ask the agent.
func clientFlags(more ...cli.Flag) []cli.Flag {
	return append(more, jsonFlag(), socketFlag(), dataFlag(), timeoutFlag())
}

// ask calls f with a client of the agent and a context that ends at the timeout.
func ask(c *cli.Context, f func(*cli.Context, *client.Client) error) error {
	d := c.Duration("timeout")
	if d <= 0 {
		return usage("%s: --timeout %v: must be more than nothing", c.Command.Name, d)
	}
	ctx, cancel := context.WithTimeout(c.Context, d)
	defer cancel()
	c.Context = ctx
	cl := client.New(socketPath(c))
	defer cl.Close()
	return f(c, cl)
}

// printJSON prints v as one line of JSON.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
