package cli

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/urfave/cli/v2"
)

// Who is told nothing finds the agent of the data directory, then the
// service's; who is told something gets that.
func TestAgentSocket(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	own, service := filepath.Join(defaultData(), "gus.sock"), filepath.Join(dir, "service.sock")
	find := func(args ...string) string {
		set := flag.NewFlagSet("", flag.ContinueOnError)
		for _, f := range clientFlags() {
			if err := f.Apply(set); err != nil {
				t.Fatal(err)
			}
		}
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		return agentSocket(cli.NewContext(nil, set, nil), service)
	}
	if got := find(); got != own {
		t.Errorf("with no socket anywhere: %s", got)
	}
	if err := os.WriteFile(service, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := find(); got != service && !exists(own) {
		t.Errorf("with the service's: %s", got)
	}
	if got := find("--socket", "x.sock"); got != "x.sock" {
		t.Errorf("with --socket: %s", got)
	}
	if got := find("--data", dir); got != filepath.Join(dir, "gus.sock") {
		t.Errorf("with --data: %s", got)
	}
}
