package cli

import (
	"strings"
	"testing"
	"time"

	"gus/agent/client"
)

func TestWhatAVerificationSays(t *testing.T) {
	differs := client.Disagreement{Key: "app/port", Version: "1.1", Peer: "b", PeerVersion: "2.1"}
	absent := client.Disagreement{Key: "app/x", Version: "1.1", Peer: "c"}
	away := client.NotCompared{Site: "c", Why: "not connected"}
	for _, c := range []struct {
		v    client.Verification
		out  string
		err  []string
		code int
	}{
		{client.Verification{Site: "a", Keys: 7, Compared: []string{"b", "c"}}, "all agree: 7 keys, 3 sites compared\n", nil, exitDone},
		{client.Verification{Site: "a", Keys: 7, Compared: []string{"b", "c"}, Differ: []client.Disagreement{differs, absent}},
			"app/port  a 1.1  b 2.1\napp/x  a 1.1  c -\n", []string{"keys, 2 in all", "set it again"}, exitFailed},
		{client.Verification{Site: "a", Keys: 7, Compared: []string{"b"}, NotCompared: []client.NotCompared{away}},
			"", []string{"not all voters", "c: not connected", "the 2 that were agree"}, exitNoQuorum},
		{client.Verification{Site: "a", Compared: []string{"b"}, NotCompared: []client.NotCompared{away}, Differ: []client.Disagreement{differs}, More: 3},
			"app/port  a 1.1  b 2.1\n... and 3 more\n", []string{"keys, 4 in all", "c: not connected"}, exitFailed},
	} {
		var out strings.Builder
		printVerification(&out, c.v)
		if out.String() != c.out {
			t.Errorf("%+v: %q, want %q", c.v, out.String(), c.out)
		}
		err := verdict(c.v)
		if code := exitCode(err); code != c.code {
			t.Errorf("%+v: exit code %d, want %d", c.v, code, c.code)
		}
		for _, says := range c.err {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: %v does not say %q", c.v, err, says)
			}
		}
	}
}

func TestWhatStatusSaysOfCatchingUp(t *testing.T) {
	now := time.Date(2024, 5, 1, 12, 30, 0, 0, time.UTC)
	lines := catchupLines([]client.Member{
		{Name: "self", Self: true},
		{Name: "even", State: client.StateUp, Catchup: &client.Catchup{}},
		{Name: "gone", State: client.StateDown, Catchup: &client.Catchup{Behind: 9, Since: now.Add(-time.Hour)}},
		{Name: "busy", State: client.StateUp, Catchup: &client.Catchup{Behind: 40, Since: now.Add(-8 * time.Second)}},
		{Name: "taking", State: client.StateUp, Catchup: &client.Catchup{Behind: 400, Since: now.Add(-8 * time.Second), Pulling: true, Taken: 12345}},
		{Name: "slow", State: client.StateUp, Catchup: &client.Catchup{Behind: 1234567, Since: now.Add(-70 * time.Second)}},
	}, now)
	want := "catching up with taking: 12,345 keys taken|1,234,567 saves of slow are not looked at yet, for 1m10s"
	if got := strings.Join(lines, "|"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
