package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) statusCommand() *cli.Command {
	return command(cli.Command{
		Name:      "status",
		Usage:     "how this site is, whom it reaches, whether there is a quorum",
		ArgsUsage: " ",
		Description: "It exits with 0 wherever the agent answers; scripts that want a quorum use `gus wait`.\n\n" +
			"With --verify it compares now, with each other voter, all that this site holds: versions and contents\n" +
			"of all keys, by sums first. What is on its way meanwhile is looked at again, for 3 s. Keys that still\n" +
			"differ are printed one a line (key, site, version, site, version; - where a site has none), and it\n" +
			"exits with 1. It exits with 4 where voters could not be compared and the others agree. It may take a\n" +
			"minute, unless --timeout says otherwise. The agents do the same by themselves each 10 s, in part.",
		Flags: clientFlags(&cli.BoolFlag{Name: "verify", Usage: "compare now what this site holds with the other voters"}),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0); err != nil {
				return err
			}
			if c.Bool("verify") {
				return connect(c, a.verify)
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
	site, observes := s.Site, isObserver(s)
	if observes {
		site += " (observer)"
	}
	fmt.Fprintf(w, "site     %s, gus %s, up %s\n", site, s.Version, ago(s.Started, now))
	fmt.Fprintf(w, "cluster  %s\n", s.Cluster)
	fmt.Fprintf(w, "data     %s\n", s.Data)
	fmt.Fprintf(w, "listens  %s (UDP), reached at %s\n", s.Listen, dash(s.Advertise))
	if observes {
		fmt.Fprintf(w, "voters   %s\n", votersLine(s.Members))
		if s.Following != nil {
			fmt.Fprintf(w, "copy     %s\n", copyLine(*s.Following, now))
		}
	} else {
		fmt.Fprintf(w, "quorum   %s\n", quorumLine(s, now))
	}
	if !s.Voting.OK && !observes {
		fmt.Fprintf(w, "votes    NOT YET, for %s: asks %s what they have heard of this site\n", ago(s.Voting.Since, now), strings.Join(s.Voting.Awaits, ", "))
	}
	for _, line := range catchupLines(s.Members, now) {
		fmt.Fprintf(w, "behind   %s\n", line)
	}
	fmt.Fprintf(w, "keys     %d of %s in all, %d not settled\n", s.Keys, size(s.DataBytes), s.Unsettled)
	fmt.Fprintf(w, "now      %d writes and %d reads under way, %d writes wait for a quorum\n", s.Writes, s.Reads, s.Waiting)
	fmt.Fprintf(w, "memory   %s; on disk %s\n", size(s.Memory), size(s.Disk))
	for _, line := range syncLines(s.Syncs, now) {
		fmt.Fprintf(w, "files    %s\n", line)
	}
	if s.Backups != nil {
		fmt.Fprintf(w, "backups  %s\n", backupLine(*s.Backups, now))
	}
	fmt.Fprintf(w, "epoch    %s\n", epochLine(s.Epoch, now))
	fmt.Fprintf(w, "history  %s\n\n", historyLine(s.Past, now))
	printMembers(w, s.Members, now)
	for _, warning := range s.Warnings {
		fmt.Fprint(w, "\n", wrap("warning: "+warning.Text, "  "))
		if warning.Cure != "" {
			fmt.Fprint(w, wrap("  cure: "+warning.Cure, "    "))
		}
	}
}

// isObserver says whether s is of a site that does not vote.
func isObserver(s client.Status) bool {
	for _, m := range s.Members {
		if m.Self {
			return m.Number == 0
		}
	}
	return false
}

// votersLine says which voters an observer can pass on to.
func votersLine(members []client.Member) string {
	var nearest client.Member
	all, up := 0, 0
	var away []string
	for _, m := range members {
		switch {
		case m.Number == 0:
			continue
		case m.State != client.StateUp:
			away = append(away, m.Name)
		default:
			if up++; up == 1 || m.RTT < nearest.RTT {
				nearest = m
			}
		}
		all++
	}
	if up == 0 {
		return fmt.Sprintf("NONE of %d in reach: %s", all, strings.Join(away, ", "))
	}
	line := fmt.Sprintf("%d of %d in reach, nearest %s in %s", up, all, nearest.Name, rtt(nearest))
	if up < all {
		line += "\nmissing  " + strings.Join(away, ", ")
	}
	return line
}

// copyLine says how far an observer's copy is.
func copyLine(f client.Following, now time.Time) string {
	var line string
	switch {
	case f.Complete:
		return "has all that " + f.Voter + " knows"
	case f.Age > 0:
		line = fmt.Sprintf("NOT COMPLETE, at least %s old: ", ago(now.Add(-time.Duration(f.Age)), now))
	default:
		line = "NOT COMPLETE: "
	}
	if f.Voter == "" {
		return line + "follows no voter, for " + ago(f.Since, now)
	}
	return line + "follows " + f.Voter + ", for " + ago(f.Since, now)
}

// behindLong is how long a site is behind before status tells people: each
// epoch of 10 s there is a look for what is new.
const behindLong = 30 * time.Second

// catchupLines say with whom this site is catching up, or is behind for long.
func catchupLines(members []client.Member, now time.Time) (lines []string) {
	for _, m := range members {
		switch c := m.Catchup; {
		case c == nil || m.State != client.StateUp:
		case c.Pulling && c.Taken > 0:
			lines = append(lines, fmt.Sprintf("catching up with %s: %s keys taken", m.Name, thousands(c.Taken)))
		case c.Behind > 0 && now.Sub(c.Since) > behindLong:
			lines = append(lines, fmt.Sprintf("%s saves of %s are not looked at yet, for %s", thousands(int(c.Behind)), m.Name, ago(c.Since, now)))
		}
	}
	return lines
}

// thousands prints n as in 12,345.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// wrap breaks text into lines of 80 columns, all but the first one indented.
// Words stay whole.
func wrap(text, indent string) string {
	const width = 80
	lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			b.WriteString(lead)
			column = len(lead)
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String() + "\n"
}

func epochLine(e client.Epoch, now time.Time) string {
	line := "none yet"
	if e.Number > 0 {
		line = fmt.Sprintf("%d, %s old", e.Number, ago(e.Time, now))
	}
	line += fmt.Sprintf("; %s saves since", thousands(int(e.Behind)))
	if e.HeldUp {
		line += "; HELD UP: the disk is full"
	}
	return line
}

// historyLine says what can be read of the past.
func historyLine(p client.PastStatus, now time.Time) string {
	if p.Epochs == 0 {
		return "none yet"
	}
	return fmt.Sprintf("%s back to %d, %s old; %s of older versions", count(int(p.Epochs), "epoch"), p.Oldest, ago(p.Since, now), size(p.Bytes))
}

func quorumLine(s client.Status, now time.Time) string {
	q := s.Quorum
	need := fmt.Sprintf("%d of %d voters needed", q.Write, q.Voters)
	if q.Read != q.Write {
		need = fmt.Sprintf("of %d voters %d needed to read, %d to write", q.Voters, q.Read, q.Write)
	}
	if !q.OK {
		return fmt.Sprintf("NO, for %s: %s, %d in reach\nmissing  %s", ago(q.Since, now), need, q.Reached, strings.Join(q.Missing, ", "))
	}
	answer := "yes"
	if !s.Voting.OK {
		answer = "NOT YET, for " + ago(s.Voting.Since, now)
	}
	line := fmt.Sprintf("%s: %s, %d in reach", answer, need, q.Reached)
	if q.RTT > 0 {
		line += ", nearest in " + millis(time.Duration(q.RTT))
	}
	return line
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
