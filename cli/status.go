package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) statusCommand() *cli.Command {
	return command(cli.Command{
		Name:      "status",
		Usage:     "how this site is, whom it reaches, whether there is a quorum",
		ArgsUsage: " ",
		Flags:     clientFlags(),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0); err != nil {
				return err
			}
			return ask(c, a.status)
		},
	})
}

func (a *app) status(c *cli.Context, cl *client.Client) error {
	s, err := cl.Status(c.Context)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(s)
	}
	printStatus(a.out, s, time.Now())
	return nil
}

// printStatus prints s in at most 80 columns, names and paths permitting.
func printStatus(w io.Writer, s client.Status, now time.Time) {
	fmt.Fprintf(w, "site     %s, gus %s, up %s\n", s.Site, s.Version, ago(s.Started, now))
	fmt.Fprintf(w, "cluster  %s\n", s.Cluster)
	fmt.Fprintf(w, "data     %s\n", s.Data)
	fmt.Fprintf(w, "listens  %s (UDP)\n", s.Listen)
	fmt.Fprintf(w, "quorum   %s\n", quorumLine(s, now))
	fmt.Fprintf(w, "keys     %d of %s in all, %d not settled\n", s.Keys, size(s.DataBytes), s.Unsettled)
	fmt.Fprintf(w, "now      %d writes and %d reads under way, %d writes wait for a quorum\n", s.Writes, s.Reads, s.Waiting)
	fmt.Fprintf(w, "memory   %s; on disk %s\n", size(s.Memory), size(s.Disk))
	fmt.Fprintf(w, "\n%-16s %-18s %10s  %s\n", "VOTER", "CONNECTION", "RTT", "ADDRESS")
	for _, v := range s.Voters {
		fmt.Fprintf(w, "%-16s %-18s %10s  %s\n", v.Name, connection(v, now), rtt(v), v.Address)
	}
	for _, line := range warnings(s) {
		fmt.Fprintf(w, "\nwarning: %s\n", line)
	}
}

func quorumLine(s client.Status, now time.Time) string {
	q, n := s.Quorum, len(s.Voters)
	need := fmt.Sprintf("%d of %d voters needed", q.Write, n)
	if q.Read != q.Write {
		need = fmt.Sprintf("of %d voters %d needed to read, %d to write", n, q.Read, q.Write)
	}
	if !q.OK {
		return fmt.Sprintf("NO, for %s: %s, %d in reach\nmissing  %s", ago(q.Since, now), need, q.Reached, strings.Join(q.Missing, ", "))
	}
	line := fmt.Sprintf("yes: %s, %d in reach", need, q.Reached)
	if q.RTT > 0 {
		line += ", nearest in " + millis(time.Duration(q.RTT))
	}
	return line
}

func connection(v client.Voter, now time.Time) string {
	switch {
	case v.Self:
		return "this site"
	case v.Connected:
		return "up for " + ago(v.Since, now)
	}
	return "DOWN for " + ago(v.Since, now)
}

func rtt(v client.Voter) string {
	if v.RTT == 0 {
		return "-"
	}
	return millis(time.Duration(v.RTT))
}

func warnings(s client.Status) []string {
	var all []string
	if s.SaveError != "" {
		all = append(all, "writes are refused, saving fails: "+s.SaveError)
	}
	if u := s.UDP; u.Receive > 0 && (u.Receive < u.Wanted || u.Send < u.Wanted) {
		all = append(all, fmt.Sprintf("UDP buffers (receive %s, send %s, wanted %s)\nlose packets under load; cure:\n  sysctl -w net.core.rmem_max=%d net.core.wmem_max=%d",
			size(int64(u.Receive)), size(int64(u.Send)), size(int64(u.Wanted)), u.Wanted, u.Wanted))
	}
	return all
}

// ago returns how long ago t was, in its two largest units.
func ago(t, now time.Time) string {
	d := max(now.Sub(t), 0).Round(time.Second)
	days, hours, minutes, seconds := d/(24*time.Hour), d/time.Hour%24, d/time.Minute%60, d/time.Second%60
	switch {
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm%ds", minutes, seconds)
	}
	return fmt.Sprintf("%ds", seconds)
}

// size prints bytes in the unit that suits them.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
