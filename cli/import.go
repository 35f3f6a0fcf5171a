package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) importCommand() *cli.Command {
	return command(cli.Command{
		Name:      "import",
		Usage:     "write the keys that gus export has printed",
		ArgsUsage: "FILE|-",
		Description: "Checks the whole file before the first write: a mistake in any line is told with its number, and\n" +
			"nothing is changed. Keys that have their value already are not written again; those that are\n" +
			"not in the file stay. Each key is written by itself: if some fail, it says which lines were not\n" +
			"written and of which that is not known, and it may be run again. With - it reads stdin, and keeps a copy\n" +
			"in a temporary file meanwhile. --timeout is for each key.",
		Flags: clientFlags(
			&cli.BoolFlag{Name: "dry-run", Usage: "check, say how many keys would be written, and write none"},
		),
		Action: a.runImport,
	})
}

// imported is what import prints with --json.
type imported struct {
	Written  int   `json:"written"` // with --dry-run: how many would be
	Same     int   `json:"same"`    // had their value already
	Unknown  []int `json:"unknown_lines,omitempty"`
	Failed   []int `json:"failed_lines,omitempty"` // and nothing changed
	NotTried int   `json:"not_tried"`
}

func (a *app) runImport(c *cli.Context) (err error) {
	if err := wantArgs(c, 1, 1); err != nil {
		return err
	}
	name := c.Args().First()
	if name == "-" && isTerminal(a.in) {
		return usage("import: stdin is a terminal: name a file, or send one through a pipe")
	}
	f, err := patient(c.Context, func() (*importFile, error) { return a.openImport(name) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := f.check()
	if err != nil {
		return fmt.Errorf("%w: nothing is changed", err)
	}
	return connectMany(c, func(c *cli.Context, cl *client.Client) error { return a.importAll(c, cl, f, n) })
}

// importAll writes the n records of f. When one fails it begins no further one.
func (a *app) importAll(c *cli.Context, cl *client.Client, f *importFile, n int) error {
	i := importer{cl: cl, timeout: c.Duration("timeout"), dry: c.Bool("dry-run")}
	t := tally{what: "written", unit: "line"}
	p := a.progressOf("keys", n, nil)
	w := window[outcomeOfKey]{done: func(o outcomeOfKey) error {
		t.add(o)
		p.is(t.done + t.same)
		return nil
	}}
	err := f.records(func(line int, key string, value []byte) error {
		if t.failed() || c.Context.Err() != nil {
			return errEnough
		}
		t.begun++
		return w.begin(len(value), func() outcomeOfKey {
			same, err := i.put(c.Context, key, value)
			return outcomeOfKey{line, key, same, err}
		})
	})
	w.finish()
	w.wg.Wait()
	p.end()
	if c.Bool("json") {
		err = errors.Join(notEnough(err), a.printJSON(imported{t.done, t.same, t.unknown, t.unchanged, n - t.begun}))
	}
	if failed := t.verdict(n, c.Context); failed != nil {
		return fmt.Errorf("import: %w", failed)
	}
	if notEnough(err) != nil || c.Bool("json") {
		return err
	}
	verb := "written"
	if i.dry {
		verb = "would be written"
	}
	fmt.Fprintf(a.out, "%s %s, %s the same already\n", count(t.done, "key"), verb, thousands(t.same))
	return nil
}

// errEnough ends the reading of a file of which no more is to be written.
var errEnough = errors.New("enough")

// notEnough is err where it is another one.
func notEnough(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// importer writes what is not there yet.
type importer struct {
	cl      *client.Client
	timeout time.Duration
	dry     bool
}

// put gives key its value. same says that it had it. Whether it is worth a
// question, what this site knows tells at no cost: as a rule a key costs one round trip then,
// whether it is written or not. What this site knows may be stale, so that "the same" is said
// only of a linearizable read.
func (i importer) put(ctx context.Context, key string, value []byte) (same bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	r, err := i.cl.GetLocal(ctx, key)
	if i.dry || err == nil && bytes.Equal(r.Value, value) {
		r, err = i.cl.Get(ctx, key)
		switch {
		case err == nil && bytes.Equal(r.Value, value):
			return true, nil
		case err != nil && !errors.Is(err, client.ErrNotFound):
			return false, err
		}
	}
	if i.dry {
		return false, nil
	}
	_, err = i.cl.Set(ctx, key, value)
	return false, err
}
