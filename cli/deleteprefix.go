package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

// deleting is what delete prints of a prefix with --json.
type deleting struct {
	Prefix  string   `json:"prefix"`
	Deleted int      `json:"deleted"`
	Keys    []string `json:"keys,omitempty"` // with --dry-run: those that would be
}

// deletePrefix removes the keys that begin with a prefix: those that are there when
// it asks whether to, and none that come later.
func (a *app) deletePrefix(c *cli.Context) error {
	prefix := c.String("prefix")
	asks := !c.Bool("yes") && !c.Bool("dry-run")
	switch {
	case c.NArg() > 0:
		return usage("delete: a key or --prefix, not both: usage: gus delete KEY, or gus delete --prefix P")
	case prefix == "" && asks:
		return usage("delete: --prefix '' is ALL keys: add --yes if that is meant, or --dry-run to see them")
	case asks && !isTerminal(a.in):
		return usage("delete: nobody can be asked whether to delete what begins with %q: add --yes, or --dry-run to see it", prefix)
	}
	if strings.HasPrefix(prefix, systemPrefix) {
		return fmt.Errorf("%w: keys below %s are the system's: nothing changed", client.ErrRefused, systemPrefix)
	}
	return connectMany(c, func(c *cli.Context, cl *client.Client) error {
		keys, err := listed(c, cl, prefix)
		if err != nil {
			return fmt.Errorf("nothing changed: %w", err)
		}
		if c.Bool("dry-run") {
			return a.printDoomed(c, prefix, keys)
		}
		if asks && len(keys) > 0 {
			if err := a.confirm(c.Context, fmt.Sprintf("delete %s beginning with %s? [y/N] ", count(len(keys), "key"), printable(prefix))); err != nil {
				return err
			}
		}
		return a.deleteAll(c, cl, prefix, keys)
	})
}

// listed returns the keys that begin with prefix and are no keys of the system's.
func listed(c *cli.Context, cl *client.Client, prefix string) (keys []string, err error) {
	for e, err := range cl.List(c.Context, client.Listing{Prefix: prefix, Timeout: c.Duration("timeout")}) {
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(e.Key, systemPrefix) {
			keys = append(keys, e.Key)
		}
	}
	return keys, nil
}

// printDoomed prints what would be deleted.
func (a *app) printDoomed(c *cli.Context, prefix string, keys []string) error {
	if c.Bool("json") {
		return a.printJSON(deleting{Prefix: prefix, Keys: keys})
	}
	show := func(key string) string { return key }
	if isTerminal(a.out) {
		show = printable
	}
	for _, k := range keys {
		if _, err := fmt.Fprintln(a.out, show(k)); err != nil {
			return fmt.Errorf("print the keys: %w", err)
		}
	}
	return nil
}

// errDeclined: somebody was asked and did not say yes.
var errDeclined = errors.New("nothing changed: the answer was not y")

// confirm asks whoever sits at the terminal.
func (a *app) confirm(ctx context.Context, question string) error {
	fmt.Fprint(a.err, question)
	select {
	case line := <-readLines(ctx, a.in):
		if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(a.err)
	}
	return errDeclined
}

// deleteAll deletes keys. When one fails it begins no further one, and tells how
// many are deleted and of how many that is not known.
func (a *app) deleteAll(c *cli.Context, cl *client.Client, prefix string, keys []string) error {
	ctx, timeout := c.Context, c.Duration("timeout")
	t := tally{what: "deleted", unit: "key"}
	p := a.progressOf("keys deleted", len(keys), nil)
	w := window[outcomeOfKey]{done: func(o outcomeOfKey) error {
		t.add(o)
		p.is(t.done)
		return nil
	}}
	for i, k := range keys {
		if t.failed() || ctx.Err() != nil {
			break
		}
		w.begin(0, func() outcomeOfKey {
			_, err := within(ctx, timeout, func(ctx context.Context) (client.Result, error) { return cl.Delete(ctx, k) })
			return outcomeOfKey{number: i + 1, key: k, err: err}
		})
		t.begun++
	}
	w.finish()
	w.wg.Wait()
	p.end()
	if err := t.verdict(len(keys), ctx); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if c.Bool("json") {
		return a.printJSON(deleting{Prefix: prefix, Deleted: t.done})
	}
	all := ""
	if prefix == "" {
		all = "ALL "
	}
	fmt.Fprintf(a.out, "%s%s deleted\n", all, count(t.done, "key"))
	return nil
}

// count is "1 key" or "1,234 keys".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}
