package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON, for scripts"}
}

func socketFlag() cli.Flag {
	return &cli.StringFlag{Name: "socket", EnvVars: []string{"GUS_SOCKET"}, Usage: "the agent's unix socket `PATH`", DefaultText: "gus.sock in the data directory, or the service's"}
}

func dataFlag() cli.Flag {
	return &cli.StringFlag{Name: "data", EnvVars: []string{"GUS_DATA"}, Usage: "the agent's data directory `DIR`", DefaultText: defaultData()}
}

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", EnvVars: []string{"GUS_TIMEOUT"}, Usage: "give up after the duration `D`", Value: 5 * time.Second}
}

// dataDir is where the agent's data is: where the flag or its variable say, or the
// agent's configuration file.
func dataDir(c *cli.Context) string {
	if d := c.String("data"); d != "" {
		return d
	}
	a, _ := configured(askedConfig()) // what is wrong there connect says
	return cmp.Or(a.Data, defaultData())
}

// ownData is where the data of a site is that a command makes, or makes anew. A configuration file
// that is wrong is an error, as it is for the agent that is to run there: the default may be another site's.
func ownData(c *cli.Context) (string, error) {
	f, err := openConfig(os.Getenv("GUS_CONFIG"))
	if err != nil {
		return "", err
	}
	return cmp.Or(c.String("data"), f.Data, defaultData()), nil
}

// askedConfig is the configuration file of the agent that is asked, as far as
// anybody knows.
func askedConfig() string { return cmp.Or(os.Getenv("GUS_CONFIG"), defaultConfig()) }

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

// socketPath is where the agent's socket is, which no flag names.
func socketPath(c *cli.Context) string {
	if c.String("data") == "" {
		if a, _ := configured(askedConfig()); a.Socket != "" {
			return a.Socket
		}
	}
	return filepath.Join(dataDir(c), "gus.sock")
}

// serviceSocket is where install.sh has the service put its socket.
const serviceSocket = "/run/gus/gus.sock"

// agentSocket is the socket to ask at.
func agentSocket(c *cli.Context, service string) string {
	return cmp.Or(c.String("socket"), unnamedSocket(c, service))
}

// unnamedSocket is the socket to ask at where no flag names one: where nobody said
// which data either, and there is none in the default place, the service's.
func unnamedSocket(c *cli.Context, service string) string {
	s := socketPath(c)
	if c.String("data") != "" || exists(s) {
		return s
	}
	system, _ := configured(systemConfig)
	for _, other := range []string{system.Socket, service} {
		if other != "" && exists(other) {
			return other
		}
	}
	return s
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// clientFlags are those of commands that ask the agent.
func clientFlags(more ...cli.Flag) []cli.Flag {
	return append(more, jsonFlag(), socketFlag(), dataFlag(), timeoutFlag())
}

// ask calls f with a client of the agent and a context that ends at the timeout.
func ask(c *cli.Context, f func(*cli.Context, *client.Client) error) error {
	return connect(c, func(c *cli.Context, cl *client.Client) error {
		ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
		defer cancel()
		c.Context = ctx
		return f(c, cl)
	})
}

// connect calls f with a client of the agent and leaves the timeout to f.
func connect(c *cli.Context, f func(*cli.Context, *client.Client) error) error {
	return connectBy(c, client.New, f)
}

// connectMany is connect for what has many operations under way at once.
func connectMany(c *cli.Context, f func(*cli.Context, *client.Client) error) error {
	return connectBy(c, client.NewPipelined, f)
}

func connectBy(c *cli.Context, open func(socket string) *client.Client, f func(*cli.Context, *client.Client) error) error {
	if d := c.Duration("timeout"); d <= 0 {
		return usage("%s: --timeout %v: must be more than nothing", c.Command.Name, d)
	}
	awaitSocket(c)
	cl := open(agentSocket(c, serviceSocket))
	defer cl.Close()
	err := f(c, cl)
	if errors.Is(err, client.ErrNotRunning) && c.String("socket") == "" && c.String("data") == "" {
		if _, wrong := configured(askedConfig()); wrong != nil {
			err = fmt.Errorf("%w (%w)", err, wrong) // it may run, elsewhere
		}
	}
	return err
}

// awaitSocket gives an agent that was started a moment ago the time to listen: a
// second, and only where there is a site whose agent it may be.
func awaitSocket(c *cli.Context) {
	if !exists(filepath.Join(dataDir(c), "identity")) {
		return
	}
	ctx, cancel := context.WithTimeout(c.Context, min(time.Second, c.Duration("timeout")))
	defer cancel()
	for ctx.Err() == nil {
		conn, err := net.Dial("unix", agentSocket(c, serviceSocket))
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		sleep(ctx, 10*time.Millisecond)
	}
}

// printJSON prints v as one line of JSON.
func (a *app) printJSON(v any) error { return printJSON(a.out, v) }

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
