package cli

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"gus/agent/client"
)

func TestArrange(t *testing.T) {
	commands := new(app).app().Commands
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"get k", "get -- k"},
		{"get k --json", "get --json -- k"},
		{"get --json k", "get --json -- k"},
		{"--json get k", "get --json -- k"},
		{"--timeout 2s --json get k", "get --timeout 2s --json -- k"},
		{"--timeout=2s get k", "get --timeout=2s -- k"},
		{"set k --timeout 2s v", "set --timeout 2s -- k v"},
		{"set k -json -", "set -json -- k -"},
		{"set k -- --json", "set -- k --json"},
		{"set --json -- -k -- -v", "set --json -- -k -- -v"},
		{"sync pull a/ d --once", "sync pull --once -- a/ d"},
		{"--json sync status", "sync status --json --"},
		{"sync --help", "sync --help"},
		{"help", ""},
		{"help set", "set --help"},
		{"get -h", "get -h --"},
		{"delete --prefix=--dry-run", "delete --prefix=--dry-run --"},
		{"delete --prefix --dry", "delete --prefix --dry --"},
		{"--version", "version --"},
		{"--help", ""},
	} {
		got, err := arrange(commands, strings.Fields(c.args))
		if want := strings.Fields(c.want); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", c.args, got, err, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for code, errs := range map[int][]error{
		exitDone:       {nil},
		exitFailed:     {errors.New("x"), client.ErrNotSaved},
		exitUsage:      {usage("x")},
		exitNotFound:   {client.ErrNotFound},
		exitNoQuorum:   {client.ErrNoQuorum, client.ErrNotSent},
		exitNotRunning: {client.ErrNotRunning, client.ErrStopping},
		exitRefused:    {client.ErrRefused, client.ErrTooLarge, &os.PathError{Op: "open", Path: "site.key", Err: syscall.EACCES}},
		exitUnknown:    {client.ErrUnknownOutcome},
	} {
		for _, err := range errs {
			if got := exitCode(err); got != code {
				t.Errorf("%v exits with %d, want %d", err, got, code)
			}
		}
	}
}

func TestStatusFitsOnATerminal(t *testing.T) {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	s := client.Status{
		Site: "site-a", Cluster: strings.Repeat("0f", 16), Version: "v1.2.3", Data: "/var/lib/gus", Listen: "[::]:7487", Advertise: "192.168.100.99:7487",
		Started: now.Add(-100 * time.Hour), Keys: 123456, DataBytes: 5 << 20, Memory: 99 << 20, Disk: 12 << 20,
		Unsettled: 3, Writes: 17, Reads: 4, Waiting: 2,
		Members: []client.Member{
			{Name: "site-a", Role: "voter", Number: 1, Self: true, State: client.StateUp, Address: "192.168.100.99:7487"},
			{Name: "site-b", Role: "voter", Number: 2, State: client.StateDown, Since: now.Add(-90 * time.Second), Address: "192.168.100.100:7487"},
			{Name: "site-c", Role: "voter", Number: 3, State: client.StateUp, Since: now.Add(-50 * time.Hour), RTT: client.Duration(88 * time.Millisecond), Address: "192.168.100.101:7487"},
			{Name: "site-d", Role: "voter", Number: 4, State: client.StateUnseen},
			{Name: "site-e", Role: "observer", State: client.StateUnreachable, Since: now.Add(-23*time.Hour - 59*time.Minute), Address: "192.168.100.102:7487"},
		},
		Voting: client.Voting{OK: true},
		Quorum: client.Quorum{OK: true, Voters: 3, Read: 2, Write: 2, Reached: 2, RTT: client.Duration(88 * time.Millisecond)},
		Warnings: []client.Warning{
			{Code: "udp_buffers", Text: "the UDP buffers are small and lose packets under load: 212992 bytes to receive, 212992 to send, wanted are 7340032", Cure: "sysctl -w net.core.rmem_max=7340032 net.core.wmem_max=7340032"},
			{Code: "other", Text: "brief"},
		},
	}
	for range 2 {
		var b bytes.Buffer
		printStatus(&b, s, now)
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		for _, want := range []string{
			"DOWN 1m30s", "up 2d2h", "88.0 ms", "never seen", "UNREACHABLE 23h59m", "reached at 192.168.100.99:7487",
			"\nwarning: the UDP buffers are small", "\n  cure: sysctl -w net.core.rmem_max=7340032", "\nwarning: brief\n",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing in\n%s", want, b.String())
			}
		}
		s.Quorum = client.Quorum{Voters: 3, Read: 2, Write: 2, Reached: 1, Missing: []string{"site-b", "site-c"}, Since: now.Add(-time.Minute)}
	}
}

func TestStatusOfAnObserver(t *testing.T) {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	voter := func(name string, n int, rtt time.Duration) client.Member {
		return client.Member{Name: name, Role: "voter", Number: n, State: client.StateUp, Since: now, RTT: client.Duration(rtt)}
	}
	self := client.Member{Name: "kiosk", Role: "observer", Self: true, State: client.StateUp}
	away := client.Member{Name: "c", Role: "voter", Number: 3, State: client.StateUnreachable, Since: now}
	for want, members := range map[string][]client.Member{
		"voters   2 of 2 in reach, nearest b in 20.0 ms\n":             {voter("a", 1, 30*time.Millisecond), voter("b", 2, 20*time.Millisecond), self},
		"voters   1 of 2 in reach, nearest a in 30.0 ms\nmissing  c\n": {voter("a", 1, 30*time.Millisecond), away, self},
		"voters   NONE of 1 in reach: c\n":                             {away, self},
	} {
		var b bytes.Buffer
		printStatus(&b, client.Status{Site: "kiosk", Members: members}, now)
		for _, want := range []string{"site     kiosk (observer), gus", want, "kiosk             observer  this site"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing in\n%s", want, b.String())
			}
		}
		for want, f := range map[string]client.Following{
			"copy     has all that b knows\n":                                         {Voter: "b", Complete: true},
			"copy     NOT COMPLETE: follows b, for 5s\n":                              {Voter: "b", Since: now.Add(-5 * time.Second)},
			"copy     NOT COMPLETE, at least 1m40s old: follows no voter, for 1m5s\n": {Since: now.Add(-65 * time.Second), Age: client.Duration(100 * time.Second)},
		} {
			var b bytes.Buffer
			printStatus(&b, client.Status{Site: "kiosk", Members: members, Following: &f}, now)
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing in\n%s", want, b.String())
			}
		}
		if strings.Contains(b.String(), "NOT YET") || strings.Contains(b.String(), "quorum  ") {
			t.Errorf("an observer does not vote:\n%s", b.String())
		}
	}
}

func TestKeysOnATerminal(t *testing.T) {
	for key, want := range map[string]string{
		"app/port": "app/port", "with space": "with space", "été 🦬": "été 🦬", `back\slash`: `back\slash`,
		" ": `" "`, "a ": `"a "`, `"q"`: `"\"q\""`, "a\u202etxt": `"a\u202etxt"`, "zero\u200bwidth": `"zero\u200bwidth"`, "nbsp\u00a0": `"nbsp\u00a0"`,
	} {
		if got := printable(key); got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
	}
}

func TestParseRTTs(t *testing.T) {
	r, err := parseRTTs("")
	if err != nil || r.between("ir", "va") != 88*time.Millisecond {
		t.Errorf("%v, %v", r, err)
	}
	r, err = parseRTTs("va-CA=5,IR-VA=1.5ms")
	if err != nil || r.between("ca", "va") != 5*time.Millisecond || r.between("va", "ir") != 1500*time.Microsecond || r.between("ca", "ir") != 151*time.Millisecond {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := parseRTTs("off"); err != nil || len(r) != 0 {
		t.Errorf("off: %v, %v", r, err)
	}
	for _, s := range []string{"ca", "ca-va", "ca-va=", "ca-ca=1", "ca-va=-1", "ca-va=2h", "ca-xx=1"} {
		if _, err := parseRTTs(s); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
