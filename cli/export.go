package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

// systemPrefix is that of the keys that are the system's.
const systemPrefix = "_gus/"

// record is a line of an export. One of the two has the value: text where it is
// UTF-8, and else its base64.
type record struct {
	Key    string  `json:"key"`
	Value  *string `json:"value,omitempty"`
	Base64 *[]byte `json:"base64,omitempty"`
}

func recordOf(key string, value []byte) record {
	if utf8.Valid(value) {
		text := string(value)
		return record{Key: key, Value: &text}
	}
	return record{Key: key, Base64: &value}
}

func (a *app) exportCommand() *cli.Command {
	return command(cli.Command{
		Name:      "export",
		Usage:     "print keys with their values, for gus import",
		ArgsUsage: "[PREFIX]",
		Description: "Prints a line of JSON for each key that begins with PREFIX, all of them without one, in order:\n" +
			`{"key":"app/port","value":"8080"}, byte for byte; "base64" in place of "value" where the value is` + "\n" +
			"no UTF-8. Keys below _gus/ are the system's and left out. It is no snapshot across keys: each is as\n" +
			"`gus get` would have shown it meanwhile. An export that broke off exits with an error. With\n" +
			"--local it asks nobody, may be stale and lack keys. --timeout is for each page and each key.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "local", Usage: "what this site knows; may be stale"},
			socketFlag(), dataFlag(), timeoutFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 1); err != nil {
				return err
			}
			return connect(c, a.export)
		},
	})
}

// exported is what was read of a key.
type exported struct {
	key    string
	result client.Result
	err    error
}

func (a *app) export(c *cli.Context, cl *client.Client) error {
	ctx, cancel := context.WithCancel(c.Context)
	out := bufio.NewWriterSize(a.out, 64<<10)
	read, local := cl.Get, c.Bool("local")
	if local {
		read = cl.GetLocal
	}
	n, p := 0, a.progressOf("keys exported", 0, a.out)
	w := window[exported]{done: func(e exported) error {
		if errors.Is(e.err, client.ErrNotFound) {
			return nil // deleted since it was listed
		}
		if e.err != nil {
			return e.err
		}
		n++
		p.is(n)
		return printJSON(out, recordOf(e.key, e.result.Value))
	}}
	defer w.wg.Wait()
	defer cancel()
	timeout := c.Duration("timeout")
	err := func() error {
		for e, err := range cl.List(ctx, client.Listing{Prefix: c.Args().First(), Local: local, Timeout: timeout, Aged: a.aged()}) {
			if err != nil {
				return err
			}
			if strings.HasPrefix(e.Key, systemPrefix) {
				continue
			}
			if err := w.begin(e.Size, func() exported {
				r, err := within(ctx, timeout, func(ctx context.Context) (client.Result, error) { return read(ctx, e.Key) })
				return exported{e.Key, r, err}
			}); err != nil {
				return err
			}
		}
		return w.finish()
	}()
	p.end()
	if ferr := out.Flush(); err == nil {
		err = ferr
	}
	switch {
	case err != nil && c.Context.Err() != nil:
		return fmt.Errorf("the export is not whole, it ends after %s keys: interrupted", thousands(n))
	case err != nil:
		return fmt.Errorf("the export is not whole, it ends after %s keys: %w", thousands(n), err)
	}
	return nil
}
