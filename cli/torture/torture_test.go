//go:build unix

package torture

import (
	"flag"
	"os"
	"testing"
)

// TestMain gives the harness a namespace of its own for mounts, where it needs
// one and the system lets it.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Short() {
		if code, done := alone(); done {
			os.Exit(code)
		}
	}
	os.Exit(m.Run())
}

// TestTorture runs agents under load and faults for as long as GUS_TORTURE_TIME
// says, a minute by default.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	opts, err := readOptions()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(opts.dir, "torture-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d, %v, %d voters, in %s", opts.seed, opts.time, opts.voters, dir)
	r, err := run(opts, dir, t.Logf)
	if len(r.rows) > 0 {
		t.Logf("\n%v", &r)
	}
	if err != nil {
		t.Fatalf("%v\nseed %d; the agents' logs and data are in %s", err, opts.seed, dir)
	}
	if opts.dir != "" {
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
