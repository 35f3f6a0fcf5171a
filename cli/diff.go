package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) diffCommand() *cli.Command {
	return command(cli.Command{
		Name:      "diff",
		Usage:     "what has changed since an epoch, or between two",
		ArgsUsage: "[PREFIX]",
		Description: "Prints the keys that begin with PREFIX and have another value than at the end of an epoch, one a line: +\n" +
			"those that were not there then, - those that are there no more, ~ the others. A second --epoch is\n" +
			"what it compares with, in place of now. Epochs are named by number, by time or by how long ago\n" +
			"(--epoch 2h). Keys below _gus/ are left out. --timeout is for each page and each key.",
		Flags: clientFlags(
			&cli.StringSliceFlag{Name: "epoch", Usage: "since epoch `N`; given twice: up to the second one"},
			&cli.StringFlag{Name: "at", Usage: "since the `TIME`"},
			&cli.StringFlag{Name: "ago", Usage: "since the duration `D` ago"},
		),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 1); err != nil {
				return err
			}
			return connect(c, a.diff)
		},
	})
}

// difference is a key that two states have with other values.
type difference struct {
	Key   string        `json:"key"`
	State string        `json:"state"`          // "added", "removed" or "changed"
	Then  *client.Entry `json:"then,omitempty"` // nil: it was not there
	Now   *client.Entry `json:"now,omitempty"`  // nil: it is not there
}

var diffSigns = map[string]string{"added": "+", "removed": "-", "changed": "~"}

func (a *app) diff(c *cli.Context, cl *client.Client) error {
	from, to, err := diffEpochs(c, cl)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(a.out)
	show := func(key string) string { return key }
	if isTerminal(a.out) {
		show = printable
	}
	begun := false
	err = differences(c, cl, c.Args().First(), from.Number, to.Number, func(d difference) error {
		begun = true
		if c.Bool("json") {
			return printJSON(out, d)
		}
		_, err := fmt.Fprintf(out, "%s %s\n", diffSigns[d.State], show(d.Key))
		return err
	})
	if ferr := out.Flush(); err == nil {
		err = ferr
	}
	if err != nil && begun {
		return fmt.Errorf("the difference is not whole: %w", err)
	}
	return err
}

// diffEpochs returns the epochs that the flags of diff name; to may be none: now.
func diffEpochs(c *cli.Context, cl *client.Client) (from, to client.PastEpoch, err error) {
	type named struct{ flag, text string }
	var all []named
	for _, flag := range []string{"at", "ago"} {
		if c.IsSet(flag) {
			all = append(all, named{flag, c.String(flag)})
		}
	}
	for _, text := range c.StringSlice("epoch") {
		all = append(all, named{"epoch", text})
	}
	if len(all) < 1 || len(all) > 2 {
		return from, to, usage("diff: %d epochs: name one by --epoch, --at or --ago, and maybe a second by --epoch", len(all))
	}
	var epochs [2]client.PastEpoch
	for i, n := range all {
		if epochs[i], err = epochNamed(c, cl, n.flag, n.text); err != nil {
			return from, to, err
		}
	}
	return epochs[0], epochs[1], nil
}

// compared is a difference that was looked at: same says that the values are not other ones.
type compared struct {
	difference
	same bool
	err  error
}

// differences calls each with the keys that differ, in order. Of versions that are of the same size the
// values are compared. A key that changes meanwhile may be there or not.
func differences(c *cli.Context, cl *client.Client, prefix string, from, to uint64, each func(difference) error) error {
	ctx, cancel := context.WithCancel(c.Context)
	timeout := c.Duration("timeout")
	w := window[compared]{done: func(d compared) error {
		if d.err != nil || d.same {
			return d.err
		}
		return each(d.difference)
	}}
	defer w.wg.Wait()
	defer cancel()
	then := cl.List(ctx, client.Listing{Prefix: prefix, Epoch: from, Timeout: timeout})
	now := cl.List(ctx, client.Listing{Prefix: prefix, Epoch: to, Timeout: timeout})
	for d, err := range joined(then, now) {
		if err != nil {
			return err
		}
		if strings.HasPrefix(d.Key, systemPrefix) {
			continue
		}
		maybeSame := d.State == "changed" && d.Then.Size == d.Now.Size
		size := 0
		if maybeSame {
			size = 2 * d.Then.Size
		}
		err := w.begin(size, func() compared {
			x := compared{difference: d}
			if maybeSame {
				x.same, x.err = sameValue(ctx, cl, d.Key, from, to, timeout)
			}
			return x
		})
		if err != nil {
			return err
		}
	}
	return w.finish()
}

// joined yields the keys of which two listings have other versions.
func joined(then, now iter.Seq2[client.Entry, error]) iter.Seq2[difference, error] {
	return func(yield func(difference, error) bool) {
		nextThen, stopThen := iter.Pull2(then)
		defer stopThen()
		nextNow, stopNow := iter.Pull2(now)
		defer stopNow()
		t, terr, hasThen := nextThen()
		n, nerr, hasNow := nextNow()
		for hasThen || hasNow {
			if err := cmp.Or(terr, nerr); err != nil { // one says enough: as a rule both say the same
				yield(difference{}, err)
				return
			}
			d := difference{}
			was, is := hasThen && (!hasNow || t.Key <= n.Key), hasNow && (!hasThen || n.Key <= t.Key)
			switch then, now := t, n; {
			case was && is:
				d = difference{then.Key, "changed", &then, &now}
			case was:
				d = difference{then.Key, "removed", &then, nil}
			default:
				d = difference{now.Key, "added", nil, &now}
			}
			if !(was && is && t.Version == n.Version) && !yield(d, nil) {
				return
			}
			if was {
				t, terr, hasThen = nextThen()
			}
			if is {
				n, nerr, hasNow = nextNow()
			}
		}
	}
}

// sameValue says whether key had the same value in two epochs.
func sameValue(ctx context.Context, cl *client.Client, key string, from, to uint64, timeout time.Duration) (bool, error) {
	then, err := valueAt(ctx, cl, key, from, timeout)
	if err != nil {
		return false, err
	}
	now, err := valueAt(ctx, cl, key, to, timeout)
	if errors.Is(err, client.ErrNotFound) {
		return false, nil // deleted since it was listed
	}
	return err == nil && bytes.Equal(then, now), err
}

// valueAt reads key at the end of an epoch, or, where that is 0, now.
func valueAt(ctx context.Context, cl *client.Client, key string, epoch uint64, timeout time.Duration) ([]byte, error) {
	r, err := within(ctx, timeout, func(ctx context.Context) (client.Result, error) {
		if epoch == 0 {
			return cl.Get(ctx, key)
		}
		return cl.GetAt(ctx, key, epoch)
	})
	return r.Value, err
}
