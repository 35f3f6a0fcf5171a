package agent

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"gus/agent/client"
	"gus/membership"
)

// askingLong is how long a site may ask before it votes and nobody need look after it.
const askingLong = 5 * time.Second

// warningsOf says what of s somebody should look after, the worst first.
func warningsOf(s *client.Status, conflicts []membership.Conflict) []client.Warning {
	var all []client.Warning
	if s.SaveError != "" {
		all = append(all, client.Warning{
			Code: "saves_fail", Text: "writes are refused, since saving fails: " + s.SaveError,
			Cure: "free some space on the disk; writes go on by themselves then",
		})
	}
	if s.Disagreements.Count > 0 {
		all = append(all, disagreementWarning(s.Disagreements))
	}
	if !s.SaveSince.IsZero() {
		all = append(all, client.Warning{
			Code: "save_stalled",
			Text: "writes of this site wait for the disk, which has not finished a save since " + s.SaveSince.UTC().Format(time.DateTime) + " UTC",
			Cure: "see what the kernel says of the disk (dmesg); writes go on by themselves once it answers",
		})
	}
	if b := s.Backups; b != nil && b.Error != "" {
		all = append(all, client.Warning{
			Code: "backup_fails", Text: "backups fail since " + b.Since.UTC().Format(time.DateTime) + " UTC: " + b.Error,
			Cure: "see that there is room in " + b.Dir + " and that the agent may write there; it tries again by itself",
		})
	}
	for _, c := range conflicts {
		all = append(all, twinWarning(s.Site, c))
	}
	if v := s.Voting; !v.OK && time.Since(v.Since) > askingLong {
		all = append(all, client.Warning{
			Code: "not_voting",
			Text: fmt.Sprintf("this site has not voted since its start at %s UTC: it waits for %s to say what they have heard of it",
				v.Since.UTC().Format(time.DateTime), strings.Join(v.Awaits, ", ")),
			Cure: fmt.Sprintf("have %d of the %d voters run and reach each other, this one counted", s.Quorum.Read, s.Quorum.Voters),
		})
	}
	for _, m := range s.Members {
		if m.Number != 0 && m.State != client.StateUp {
			all = append(all, missingWarning(m))
		}
	}
	all = append(all, syncWarnings(s.Syncs)...)
	all = append(all, addressWarnings(s)...)
	for _, m := range s.Members {
		if m.Clock != nil && farOff(*m.Clock) {
			all = append(all, clockWarning(m))
		}
	}
	if u := s.UDP; u.Receive > 0 && (u.Receive < u.Wanted || u.Send < u.Wanted) {
		all = append(all, client.Warning{
			Code: "udp_buffers",
			Text: fmt.Sprintf("the UDP buffers are small and lose packets under load: %d bytes to receive, %d to send, wanted are %d", u.Receive, u.Send, u.Wanted),
			Cure: fmt.Sprintf("sysctl -w net.core.rmem_max=%d net.core.wmem_max=%d", u.Wanted, u.Wanted),
		})
	}
	return all
}

func twinWarning(self string, c membership.Conflict) client.Warning {
	w := client.Warning{Code: "twin", Text: "two processes run as site " + c.Name, Cure: "stop one of the two, and never copy a data directory"}
	if c.Name == self {
		w.Text = "another process runs as this site, " + c.Name
	}
	if c.At != "" {
		w.Text += ", one of them at " + c.At
	}
	return w
}

func missingWarning(m client.Member) client.Warning {
	w := client.Warning{Code: "voter_missing"}
	since := m.Since.UTC().Format(time.DateTime) + " UTC"
	switch m.State {
	case client.StateUnseen:
		w.Text = "voter " + m.Name + " has never been here"
		w.Cure = "join it: `gus token` here, `gus join TOKEN --name " + m.Name + "` there, then `gus agent`"
	case client.StateUnreachable:
		w.Text = "voter " + m.Name + " is not connected with this site since " + since + ", while others hear of it"
		w.Cure = "see that UDP passes between the two sites"
	default:
		w.Text = "voter " + m.Name + " is missing since " + since
		w.Cure = "start its agent, or see that UDP passes between the two sites"
	}
	if m.Address != "" {
		w.Text += "; it was at " + m.Address
	}
	if strings.Contains(m.Failure, "a stranger: ") {
		w.Cure = "these two belong to different clusters, as after `gus recover` or `gus snapshot restore`: " +
			"move this site's data away and join the one that goes on, or see who has the other's address"
	}
	if m.Failure != "" {
		w.Text += "; the last attempt: " + m.Failure
	}
	return w
}

func clockWarning(m client.Member) client.Warning {
	d, way := time.Duration(m.Clock.Ahead), "ahead of"
	if d < 0 {
		d, way = -d, "behind"
	}
	return client.Warning{
		Code: "clock", Text: fmt.Sprintf("the clock of %s is %v %s this site's: versions tell wrong times", m.Name, d.Round(100*time.Millisecond), way),
		Cure: "have both clocks set by NTP; `timedatectl` says whether they are",
	}
}

// addressWarnings finds addresses that cannot be right.
func addressWarnings(s *client.Status) []client.Warning {
	var all []client.Warning
	elsewhere := false
	at := map[string][]string{}
	for _, m := range s.Members {
		if m.Address == "" {
			continue
		}
		at[m.Address] = append(at[m.Address], m.Name)
		if ip := ipOf(m.Address); !m.Self && ip.IsValid() && !ip.IsLoopback() {
			elsewhere = true
		}
	}
	for _, m := range s.Members {
		if names := at[m.Address]; len(names) > 1 && names[0] == m.Name {
			all = append(all, client.Warning{
				Code: "address_shared", Text: fmt.Sprintf("the sites %s tell the same address, %s", strings.Join(names, " and "), m.Address),
				Cure: "start each agent with an --advertise of its own",
			})
		}
	}
	what := ""
	switch ip := ipOf(s.Advertise); {
	case ip.IsLoopback() && elsewhere:
		what = "a loopback address"
	case ip.IsLinkLocalUnicast():
		what = "a link-local address"
	}
	if what != "" {
		all = append(all, client.Warning{
			Code: "address_local", Text: fmt.Sprintf("this site tells others to reach it at %s, %s, where they cannot", s.Advertise, what),
			Cure: "start the agent with --advertise HOST:PORT",
		})
	}
	return all
}

// ipOf returns the IP of HOST:PORT, or an invalid one where HOST is a name.
func ipOf(addr string) netip.Addr {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.Addr{}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap()
}
