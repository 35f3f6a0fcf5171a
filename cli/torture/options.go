//go:build unix

package torture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gus/register"
)

// options shape a run.
type options struct {
	time   time.Duration // GUS_TORTURE_TIME: windows begin so that about so much is taken; a minute by default
	seed   uint64        // GUS_TORTURE_SEED: of all that is chosen; by default, another each time
	voters int           // GUS_TORTURE_VOTERS: 3 by default
	kinds  []string      // GUS_TORTURE_KINDS: names of kinds of faults, separated by commas; all by default
	agree  bool          // GUS_TORTURE_AGREE: "off": do not ask that local reads show what all agree on
	dir    string        // GUS_TORTURE_DIR: where data and logs go, and stay; by default they go where all went well
}

// readOptions reads the environment.
func readOptions() (options, error) {
	o := options{time: time.Minute, seed: rand.Uint64N(1_000_000), voters: 3, agree: true, dir: os.Getenv("GUS_TORTURE_DIR")}
	for _, k := range kinds {
		o.kinds = append(o.kinds, k.name)
	}
	readers := []struct {
		name string
		read func(string) error
	}{
		{"TIME", func(s string) (err error) { o.time, err = time.ParseDuration(s); return err }},
		{"SEED", func(s string) (err error) { o.seed, err = strconv.ParseUint(s, 10, 64); return err }},
		{"VOTERS", func(s string) (err error) { o.voters, err = strconv.Atoi(s); return err }},
		{"KINDS", func(s string) error { o.kinds = strings.Split(s, ","); return nil }},
		{"AGREE", func(s string) error { o.agree = s != "off"; return nil }},
	}
	for _, r := range readers {
		if s := os.Getenv("GUS_TORTURE_" + r.name); s != "" {
			if err := r.read(s); err != nil {
				return o, fmt.Errorf("GUS_TORTURE_%s: %w", r.name, err)
			}
		}
	}
	if o.voters < 3 || o.voters > register.MaxVoters {
		return o, fmt.Errorf("GUS_TORTURE_VOTERS: %d is not 3 to %d", o.voters, register.MaxVoters)
	}
	for _, name := range o.kinds {
		if kindOf(name) == nil {
			return o, fmt.Errorf("GUS_TORTURE_KINDS: there is no kind %q", name)
		}
	}
	return o, nil
}

func kindOf(name string) *kind {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return &kinds[i]
}
