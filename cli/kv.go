package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

// outcome is what set, get and delete print with --json.
type outcome struct {
	Key         string          `json:"key"`
	Value       *string         `json:"value,omitempty"`        // where it is text
	ValueBase64 []byte          `json:"value_base64,omitempty"` // where it is not
	Version     client.Version  `json:"version,omitempty"`
	Via         string          `json:"via,omitempty"` // the voter that an observer passed it on to
	RoundTrips  int             `json:"round_trips"`
	Latency     client.Duration `json:"latency_ms"`
	Newer       *bool           `json:"newer,omitempty"`   // of a local read
	Pending     *bool           `json:"pending,omitempty"` // of a local read
	Age         client.Duration `json:"age_ms,omitempty"`  // of a local read that may be old: at least
}

func outcomeOf(key string, r client.Result) outcome {
	return outcome{
		Key: key, Version: r.Version, Via: r.Via, RoundTrips: r.RoundTrips,
		Latency: client.Duration(r.Latency), Age: client.Duration(r.Age),
	}
}

func (a *app) setCommand() *cli.Command {
	return command(cli.Command{
		Name:      "set",
		Usage:     "write a key",
		ArgsUsage: "KEY [VALUE|@FILE|-]",
		Description: "Writes the value to a quorum of voters and prints nothing. Without a value, or with -, the\n" +
			"value is what stdin holds. A value that begins with - goes after --, one that begins with @\n" +
			"through stdin. Limits: a key has 1 to 1,024 bytes of UTF-8 without control characters, a\n" +
			"value up to 1 MiB.",
		Flags:  clientFlags(),
		Action: func(c *cli.Context) error { return a.set(c) },
	})
}

func (a *app) set(c *cli.Context) error {
	if err := wantArgs(c, 1, 2); err != nil {
		return err
	}
	key := c.Args().First()
	value, err := a.value(c)
	if err != nil {
		return err
	}
	return ask(c, func(c *cli.Context, cl *client.Client) error {
		r, err := cl.Set(c.Context, key, value)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return a.printJSON(outcomeOf(key, r))
		}
		return nil
	})
}

// value returns the value that a set's arguments name.
func (a *app) value(c *cli.Context) ([]byte, error) {
	v := c.Args().Get(1)
	switch {
	case c.NArg() < 2 && isTerminal(a.in):
		return nil, usage("set: a value is missing: usage: gus set %s", c.Command.ArgsUsage)
	case c.NArg() < 2, v == "-":
		return patient(c.Context, func() ([]byte, error) { return readValue(a.in) })
	case !strings.HasPrefix(v, "@"):
		return []byte(v), nil
	}
	return patient(c.Context, func() ([]byte, error) {
		f, err := os.Open(v[1:])
		if err != nil {
			return nil, fmt.Errorf("read the value: %w (a value that begins with @ itself goes through stdin)", err)
		}
		defer f.Close()
		return readValue(f)
	})
}

// patient returns what read returns, or an error as soon as ctx ends: a read from a
// terminal, a pipe or a fifo cannot be broken off, and may stay until the
// process ends.
func patient[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		b   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := read()
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		return r.b, r.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: interrupted before all was read: nothing changed", client.ErrNotSent)
	}
}

// readValue reads a value, or says how much too large it is.
func readValue(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, client.MaxValue+1))
	if err != nil {
		return nil, fmt.Errorf("read the value: %w", err)
	}
	if len(b) <= client.MaxValue {
		return b, nil
	}
	const most = 64 << 20 // of what is counted for the error
	rest, err := io.Copy(io.Discard, io.LimitReader(r, most))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the value: %w", err)
	case rest == most:
		return nil, fmt.Errorf("%w: more than %d bytes: the limit is %d bytes (1 MiB)", client.ErrTooLarge, most, client.MaxValue)
	}
	return nil, client.TooLarge(int64(len(b)) + rest)
}

func (a *app) getCommand() *cli.Command {
	return command(cli.Command{
		Name:      "get",
		Usage:     "read a key",
		ArgsUsage: "KEY",
		Description: "Prints the value's bytes and nothing else: that of the last write that was complete, at\n" +
			"whatever site. With --local it asks nobody and may be stale. With --epoch, --at, --ago or --version it reads\n" +
			"what this site has of the past (`gus history`).",
		Flags: clientFlags(append(pastFlags(),
			&cli.StringFlag{Name: "version", Usage: "the `VERSION` that gus history shows"},
			&cli.BoolFlag{Name: "local", Usage: "what this site knows; may be stale"})...),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 1, 1); err != nil {
				return err
			}
			return ask(c, a.get)
		},
	})
}

func (a *app) get(c *cli.Context, cl *client.Client) error {
	key, local := c.Args().First(), c.Bool("local")
	read, err := a.reader(c, cl)
	if err != nil {
		return err
	}
	r, err := read(c.Context, key)
	a.aged()(r.Age) // also where the copy has no such key
	if err != nil {
		return err
	}
	if !c.Bool("json") {
		_, err := a.out.Write(r.Value)
		return err
	}
	o := outcomeOf(key, r)
	if utf8.Valid(r.Value) {
		text := string(r.Value)
		o.Value = &text
	} else {
		o.ValueBase64 = r.Value
	}
	if local {
		o.Newer, o.Pending = &r.Newer, &r.Pending
	}
	return a.printJSON(o)
}

// reader returns how a get reads: now, here, or in the past.
func (a *app) reader(c *cli.Context, cl *client.Client) (func(context.Context, string) (client.Result, error), error) {
	version := c.String("version")
	past, err := pastOf(c, cl)
	epoch := past.Number
	switch {
	case err != nil:
		return nil, err
	case c.IsSet("version") && !client.Version(version).Valid():
		return nil, usage("get: --version %q cannot be one: `gus history` shows versions", version)
	case c.Bool("local") && (epoch > 0 || version != ""), epoch > 0 && version != "":
		return nil, usage("get: one of --local, --version, and --epoch, --at or --ago")
	case epoch > 0:
		return func(ctx context.Context, key string) (client.Result, error) { return cl.GetAt(ctx, key, epoch) }, nil
	case version != "":
		return func(ctx context.Context, key string) (client.Result, error) {
			return cl.GetVersion(ctx, key, client.Version(version))
		}, nil
	case c.Bool("local"):
		return cl.GetLocal, nil
	}
	return cl.Get, nil
}

func (a *app) deleteCommand() *cli.Command {
	return command(cli.Command{
		Name:      "delete",
		Usage:     "remove a key, or all that begin with a prefix",
		ArgsUsage: "KEY",
		Description: "To remove what is not there is no error. With --prefix it removes, in place of KEY, the keys that begin\n" +
			"so and are there when it begins: it asks whether to, and where nobody can be asked it wants\n" +
			"--yes. Each key is removed by itself, and --timeout is for each.",
		Flags: clientFlags(
			&cli.StringFlag{Name: "prefix", Usage: "remove all keys that begin with `PREFIX`"},
			&cli.BoolFlag{Name: "dry-run", Usage: "with --prefix: print the keys, and remove none"},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "with --prefix: do not ask"},
		),
		Action: func(c *cli.Context) error {
			if c.IsSet("prefix") {
				return a.deletePrefix(c)
			}
			if c.Bool("dry-run") || c.Bool("yes") {
				return usage("delete: --dry-run and --yes go with --prefix")
			}
			if err := wantArgs(c, 1, 1); err != nil {
				return err
			}
			return ask(c, a.delete)
		},
	})
}

func (a *app) delete(c *cli.Context, cl *client.Client) error {
	key := c.Args().First()
	r, err := cl.Delete(c.Context, key)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(outcomeOf(key, r))
	}
	return nil
}
