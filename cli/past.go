package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

// pastFlags name an epoch: by its number, by a time, or by how long ago.
func pastFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "epoch", Usage: "as it was at the end of epoch `N`"},
		&cli.StringFlag{Name: "at", Usage: "as it was at the end of the last epoch before the `TIME`, as in 2026-11-30T12:00 (of this place) or 2026-11-30T12:00:00Z"},
		&cli.StringFlag{Name: "ago", Usage: "as it was at the end of the last epoch before the duration `D` ago, as in 2h"},
	}
}

// pastOf returns the epoch that the flags name; its Number is 0 where they name none.
func pastOf(c *cli.Context, cl *client.Client) (client.PastEpoch, error) {
	flag, err := pastFlag(c)
	if err != nil || flag == "" {
		return client.PastEpoch{}, err
	}
	return epochNamed(c, cl, flag, c.String(flag))
}

// pastFlag returns the flag that names an epoch, "" where none does, and says what is wrong
// with it that can be said without an agent.
func pastFlag(c *cli.Context) (flag string, err error) {
	for _, name := range []string{"epoch", "at", "ago"} {
		if !c.IsSet(name) {
			continue
		}
		if flag != "" {
			return "", usage("%s: --%s or --%s, not both", c.Command.Name, flag, name)
		}
		flag = name
		if _, _, err := moment(c, name, c.String(name)); err != nil {
			return "", err
		}
	}
	return flag, nil
}

// epochNamed returns the epoch that the value of a flag means. Of one that is named by its number it knows that
// alone.
func epochNamed(c *cli.Context, cl *client.Client, flag, text string) (client.PastEpoch, error) {
	n, t, err := moment(c, flag, text)
	if err != nil || n > 0 {
		return client.PastEpoch{Number: n}, err
	}
	return within(c.Context, c.Duration("timeout"), func(ctx context.Context) (client.PastEpoch, error) { return cl.EpochAt(ctx, t) })
}

// moment reads the value of a flag that names an epoch: the epoch's number, or, where that is 0, a time.
func moment(c *cli.Context, flag, text string) (n uint64, t time.Time, err error) {
	if flag == "epoch" {
		n, err := strconv.ParseUint(text, 10, 63)
		if err == nil && n > 0 {
			return n, t, nil
		}
	}
	if d, err := time.ParseDuration(text); flag != "at" && text != "0" && err == nil && d >= 0 {
		t = time.Now().Add(-d)
	} else if at, ok := timeOf(text); flag != "ago" && ok {
		t = at
	} else {
		return 0, t, usage("%s: --%s %q: %s", c.Command.Name, flag, text, map[string]string{
			"epoch": "must be an epoch's number, a time such as 2026-11-30T12:00, or how long ago, such as 2h",
			"at":    "must be a time such as 2026-11-30T12:00 or 2026-11-30T12:00:00Z",
			"ago":   "must be how long ago, a duration such as 2h or 90s",
		}[flag])
	}
	if t.After(time.Now()) {
		return 0, t, usage("%s: --%s %q is yet to come", c.Command.Name, flag, text)
	}
	return 0, t, nil
}

// describeEpoch names an epoch, with its time where that is known.
func describeEpoch(e client.PastEpoch) string {
	if e.Time.IsZero() {
		return fmt.Sprintf("epoch %d", e.Number)
	}
	return fmt.Sprintf("epoch %d, of %s UTC", e.Number, e.Time.UTC().Format(time.DateTime))
}

// timeOf reads a time: RFC 3339, or one of this place.
func timeOf(text string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, true
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
