package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
	"gus/membership"
)

func TestWarnings(t *testing.T) {
	since := time.Date(2024, 5, 1, 12, 30, 0, 0, time.UTC)
	voter := func(n int, name, addr string, change func(m *client.Member)) client.Member {
		m := client.Member{Name: name, Role: "voter", Number: n, Self: n == 1, State: client.StateUp, Since: since, Address: addr}
		if change != nil {
			change(&m)
		}
		return m
	}
	clock := func(ahead, err time.Duration) func(*client.Member) {
		return func(m *client.Member) {
			m.Clock = &client.Clock{Ahead: client.Duration(ahead), Error: client.Duration(err)}
		}
	}
	down := func(s client.State, failure string) func(*client.Member) {
		return func(m *client.Member) { m.State, m.Failure = s, failure }
	}
	for _, c := range []struct {
		name      string
		advertise string
		other     client.Member
		conflicts []membership.Conflict
		change    func(s *client.Status)
		code      string // of the one warning; empty: none
		says      []string
	}{
		{name: "all is well", other: voter(2, "b", "10.0.0.2:7487", clock(900*time.Millisecond, 0))},
		{name: "down", other: voter(2, "b", "10.0.0.2:7487", down(client.StateDown, "timeout")), code: "voter_missing",
			says: []string{"voter b is missing since 2024-05-01 12:30:00 UTC", "10.0.0.2:7487", "timeout", "start its agent"}},
		{name: "unreachable", other: voter(2, "b", "", down(client.StateUnreachable, "")), code: "voter_missing",
			says: []string{"others hear of it", "UDP passes"}},
		{name: "unseen", other: voter(2, "b", "", down(client.StateUnseen, "")), code: "voter_missing",
			says: []string{"never been here", "gus join TOKEN --name b"}},
		{name: "an observer is away", other: client.Member{Name: "o", Role: "observer", State: client.StateDown}},
		{name: "ahead", other: voter(2, "b", "10.0.0.2:7487", clock(72*time.Second, time.Second)), code: "clock",
			says: []string{"the clock of b is 1m12s ahead of", "NTP"}},
		{name: "behind", other: voter(2, "b", "10.0.0.2:7487", clock(-3*time.Second, time.Second)), code: "clock", says: []string{"3s behind"}},
		{name: "perhaps ahead", other: voter(2, "b", "10.0.0.2:7487", clock(3*time.Second, 2*time.Second))},
		{name: "a twin", other: voter(2, "b", "10.0.0.2:7487", nil), conflicts: []membership.Conflict{{Name: "b", At: "10.0.0.9:7487"}}, code: "twin",
			says: []string{"two processes run as site b", "10.0.0.9:7487", "stop one"}},
		{name: "a twin of its own", other: voter(2, "b", "10.0.0.2:7487", nil), conflicts: []membership.Conflict{{Name: "a"}}, code: "twin",
			says: []string{"another process runs as this site, a"}},
		{name: "one address for two", other: voter(2, "b", "10.0.0.1:7487", nil), code: "address_shared",
			says: []string{"a and b", "10.0.0.1:7487", "--advertise"}},
		{name: "loopback among others", advertise: "127.0.0.1:7487", other: voter(2, "b", "10.0.0.2:7487", nil), code: "address_local",
			says: []string{"127.0.0.1:7487", "loopback", "--advertise"}},
		{name: "all on loopback", advertise: "127.0.0.1:7487", other: voter(2, "b", "127.0.0.1:7488", nil)},
		{name: "a name", advertise: "a.example:7487", other: voter(2, "b", "b.example:7487", nil)},
		{name: "link-local", advertise: "[fe80::1]:7487", other: voter(2, "b", "[2001:db8::1]:7487", nil), code: "address_local", says: []string{"link-local"}},
		{name: "small buffers", other: voter(2, "b", "10.0.0.2:7487", nil), code: "udp_buffers",
			change: func(s *client.Status) { s.UDP = client.UDP{Receive: 1 << 20, Send: 8 << 20, Wanted: 7 << 20} },
			says:   []string{"1048576 bytes", "sysctl -w net.core.rmem_max=7340032 net.core.wmem_max=7340032"}},
		{name: "a full disk", other: voter(2, "b", "10.0.0.2:7487", nil), code: "saves_fail",
			change: func(s *client.Status) { s.SaveError = "gus.db: the disk is full" }, says: []string{"the disk is full", "free some space"}},
		{name: "a slow disk", other: voter(2, "b", "10.0.0.2:7487", nil), code: "save_stalled",
			change: func(s *client.Status) { s.SaveSince = since }, says: []string{"not finished a save since 2024-05-01 12:30:00 UTC", "dmesg"}},
		{name: "asks for long", other: voter(2, "b", "10.0.0.2:7487", nil), code: "not_voting",
			change: func(s *client.Status) {
				s.Voting = client.Voting{Since: since, Awaits: []string{"b", "c"}}
				s.Quorum = client.Quorum{Voters: 3, Read: 2}
			},
			says: []string{"not voted since its start at 2024-05-01 12:30:00 UTC", "waits for b, c", "have 2 of the 3 voters"}},
		{name: "asks", other: voter(2, "b", "10.0.0.2:7487", nil),
			change: func(s *client.Status) { s.Voting = client.Voting{Since: time.Now(), Awaits: []string{"b"}} }},
	} {
		if c.advertise == "" {
			c.advertise = "10.0.0.1:7487"
		}
		s := client.Status{Site: "a", Advertise: c.advertise, UDP: client.UDP{Receive: 7 << 20, Send: 7 << 20, Wanted: 7 << 20}}
		s.Voting = client.Voting{OK: true, Since: since}
		s.Members = []client.Member{voter(1, "a", c.advertise, nil), c.other}
		if c.change != nil {
			c.change(&s)
		}
		got := warningsOf(&s, c.conflicts)
		if c.code == "" {
			if len(got) > 0 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Code != c.code {
			t.Errorf("%s: %+v, want %s", c.name, got, c.code)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(got[0].Text+" / "+got[0].Cure, says) {
				t.Errorf("%s: %+v does not say %q", c.name, got[0], says)
			}
		}
	}
}

// codes are the codes of the warnings of s.
func (s *testSite) codes() []string {
	var codes []string
	for _, w := range s.status().Warnings {
		if w.Code != "udp_buffers" {
			codes = append(codes, w.Code)
		}
	}
	return codes
}

func TestADeadVoterIsNoticed(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		w.await(func() bool { return ca.member("ir").Clock != nil })
		if m := ca.member("ir"); m.State != client.StateUp || m.RTT == 0 || m.Role != "voter" || m.Number != 3 || m.Address != ir.addr.String() {
			t.Errorf("%+v", m)
		}
		if c := ca.codes(); len(c) > 0 {
			t.Errorf("warnings %v while all is well", c)
		}
		begin := time.Now()
		ir.kill()
		w.await(func() bool {
			return ca.member("ir").State == client.StateDown && va.member("ir").State == client.StateDown
		})
		t.Logf("down after %v", time.Since(begin))
		if c := ca.codes(); !slices.Equal(c, []string{"voter_missing"}) {
			t.Errorf("warnings %v", c)
		}
		if m := ca.member("ir"); m.Since.Before(begin) {
			t.Errorf("it was killed at %v: %+v", begin, m)
		}
		ir.restart()
		w.await(func() bool { return ca.member("ir").State == client.StateUp && len(ca.codes()) == 0 })
	})
}

func TestAClockThatIsFarOff(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		ir.kill()
		ir.skew = -50 * 365 * 24 * time.Hour // a machine without a battery
		ir.restart()
		w.await(func() bool {
			return slices.Equal(ir.codes(), []string{"clock", "clock"}) && slices.Equal(ca.codes(), []string{"clock"}) &&
				slices.Equal(va.codes(), []string{"clock"}) && ca.member("ir").Clock != nil
		})
		m := ca.member("ir")
		if got := time.Duration(m.Clock.Ahead) - ir.skew; got.Abs() > time.Duration(m.Clock.Error) {
			t.Errorf("%v off, said to be at most %v", got, time.Duration(m.Clock.Error))
		}
		w.want(ir.set("k", "v"), "") // and nothing depends on it
		w.want(ca.get("k"), "v")
		ir.kill()
		ir.skew = 0
		ir.restart()
		w.await(func() bool { return len(ir.codes()) == 0 && len(ca.codes()) == 0 && ca.member("ir").Clock != nil })
	})
}

// A data directory that was copied runs twice: whoever sees it says so, the one
// that came first goes on, and nothing breaks.
func TestACopiedSite(t *testing.T) {
	inWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		ir.kill()
		twin := &testSite{w: w, name: "copy", addr: address(44), seeds: ir.seeds}
		w.copy(ir.data(), twin.data())
		ir.restart()
		w.await(func() bool { return w.connected(3) })
		twin.start()
		defer twin.kill()
		for _, s := range []*testSite{ca, ir, twin} {
			w.await(func() bool { return slices.Contains(s.codes(), "twin") })
		}
		w.want(ir.set("k", "v"), "")
		w.want(ca.get("k"), "v")
		w.fails(twin.ask(w.t.Context(), "PUT", kvPath+"k", "3s", "wrong"), client.ErrNoQuorum)
		w.want(ca.get("k"), "v")
	})
}
