package sim

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSeeds plays many runs: GUS_SEEDS of them (4,000), or as many as fit in
// GUS_SIM_TIME, from GUS_FIRST_SEED (1) on. GUS_SEED plays one, with its trace.
func TestSeeds(t *testing.T) {
	if s := os.Getenv("GUS_SEED"); s != "" {
		playWithTrace(t, number(t, s))
		return
	}
	s := seeds{first: 1, count: 4000}
	if testing.Short() {
		s.count = 300
	}
	s.first, s.count = fromEnv(t, "GUS_FIRST_SEED", s.first), fromEnv(t, "GUS_SEEDS", s.count)
	if v := os.Getenv("GUS_SIM_TIME"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("GUS_SIM_TIME: %v", err)
		}
		s.count, s.until = 1<<62, time.Now().Add(d)
	}
	total := s.play()
	t.Logf("%d runs: %+v", total.runs, total.stats)
	for m, n := range total.marks {
		t.Logf("%8d  %v", n, Mark(m))
		if n == 0 && total.runs >= 1000 {
			t.Errorf("in %d runs there was never: %v", total.runs, Mark(m))
		}
	}
	for _, f := range total.failed { // last, where they are seen
		t.Error(f)
	}
}

// seeds is a range of seeds to play, and what came of them.
type seeds struct {
	first, count uint64
	until        time.Time // zero: no end but count

	mu    sync.Mutex
	runs  int
	stats Stats
	marks Marks

	failed []string
}

// play plays the runs on all processors, until a few have failed.
func (s *seeds) play() *seeds {
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= s.count || !s.until.IsZero() && time.Now().After(s.until) || s.enough() {
					return
				}
				s.add(Run(Draw(s.first + i)))
			}
		})
	}
	wg.Wait()
	return s
}

func (s *seeds) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failed) >= 10
}

func (s *seeds) add(o Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.stats.Add(o.Stats)
	for m, n := range o.Marks {
		s.marks[m] += n
	}
	if o.Err != nil {
		s.failed = append(s.failed, fmt.Sprintf("GUS_SEED=%d (%d voters, %d keys, %d operations): %v",
			o.Config.Seed, o.Config.Voters, o.Config.Keys, o.Config.Ops, o.Err))
	}
}

// TestBadSeeds plays the seeds that once failed, as they were drawn then as well: without pulls
// by cursors.
func TestBadSeeds(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		seed, _, _ := strings.Cut(lines.Text(), "#")
		if seed = strings.TrimSpace(seed); seed == "" {
			continue
		}
		c := Draw(number(t, seed))
		before := c
		before.Adopt = 0
		for _, c := range [...]Config{c, before} {
			if o := Run(c); o.Err != nil {
				t.Errorf("GUS_SEED=%s, pulls by cursors %d: %v", seed, c.Adopt, o.Err)
			}
		}
	}
}

func playWithTrace(t *testing.T, seed uint64) {
	c := Draw(seed)
	c.Trace = func(line string) { t.Log(line) }
	t.Logf("%+v", c)
	if o := Run(c); o.Err != nil {
		t.Error(o.Err)
	}
}

// fromEnv returns the number in a variable of the environment, or otherwise.
func fromEnv(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	if v := os.Getenv(name); v != "" {
		return number(t, v)
	}
	return otherwise
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
