package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gus/agent/client"
)

// benchSite is a site on loopback with a real disk.
type benchSite struct {
	*node
	b      *testing.B
	dir    string
	addr   string
	seeds  []string
	cancel context.CancelFunc
	done   chan error
}

func (s *benchSite) start() {
	s.b.Helper()
	conn, err := net.ListenPacket("udp", s.addr)
	if err != nil {
		s.b.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if s.node, err = open(Config{Data: s.dir, Conn: conn, Seeds: s.seeds, Logger: log}); err != nil {
		s.b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan error, 1)
	go func() {
		s.done <- s.run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}()
}

func (s *benchSite) stop() {
	s.b.Helper()
	s.cancel()
	if err := <-s.done; err != nil {
		s.b.Fatal(err)
	}
}

// set sets a key and returns how long that took.
func (s *benchSite) set(key, value string) (time.Duration, bool) {
	r := httptest.NewRequest("PUT", kvPath+key, strings.NewReader(value))
	r.Header.Set(client.HeaderTimeout, "30s")
	w := httptest.NewRecorder()
	begin := time.Now()
	s.api.ServeHTTP(w, r)
	return time.Since(begin), w.Code == 200
}

// caughtUp says whether s has looked at all that its peers had when it came.
func (s *benchSite) caughtUp() bool {
	for _, p := range s.catchup.peers {
		p.mu.Lock()
		ok := p.up && !p.fresh && !p.pulling
		p.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

// benchCluster founds a cluster of three voters and these observers, and starts the voters.
func benchCluster(b *testing.B, observers ...string) (sites []*benchSite) {
	var founders []Founder
	var seeds []string
	for i, name := range slices.Concat(three, observers) {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		addr := conn.LocalAddr().String()
		conn.Close()
		s := &benchSite{b: b, dir: filepath.Join(b.TempDir(), name), addr: addr}
		sites, seeds = append(sites, s), append(seeds, addr)
		founders = append(founders, Founder{Name: name, Data: s.dir, Observer: i >= len(three)})
	}
	if err := Found(founders); err != nil {
		b.Fatal(err)
	}
	for i, s := range sites {
		s.seeds = seeds[:len(three)]
		if i < len(three) {
			s.start()
		}
	}
	awaitVotes(b, sites[:len(three)]...)
	return sites
}

func awaitVotes(b *testing.B, sites ...*benchSite) {
	b.Helper()
	for _, s := range sites {
		if _, ok := s.set("ready", ""); !ok {
			b.Fatal("no quorum")
		}
	}
}

// fill sets keys at s, by many clients.
func (s *benchSite) fill(round, keys int, value string) {
	var wg sync.WaitGroup
	const clients = 256
	for from := range clients {
		wg.Go(func() {
			for i := from; i < keys; i += clients {
				if _, ok := s.set(fmt.Sprintf("key/%d/%08d", round, i), value); !ok {
					s.b.Error("a set failed")
					return
				}
			}
		})
	}
	wg.Wait()
}

// load has clients set keys at s, one each few milliseconds, until stop is closed. It
// returns how long each set took.
func (s *benchSite) load(stop <-chan struct{}) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			key := fmt.Sprintf("load/%s/%d", s.id.Name, i)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rand.IntN(20_000)) * time.Microsecond):
				}
				if took, ok := s.set(key, "0123456789abcdef"); ok {
					mu.Lock()
					all = append(all, took)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

// loadBoth loads two sites while f runs and returns their latencies.
func loadBoth(a, c *benchSite, f func()) (atA, atC []time.Duration) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { atA = a.load(stop) })
	wg.Go(func() { atC = c.load(stop) })
	f()
	close(stop)
	wg.Wait()
	return atA, atC
}

func p99(all []time.Duration) float64 {
	if len(all) == 0 {
		return 0
	}
	return float64(all[len(all)*99/100]) / float64(time.Millisecond)
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// quiet waits until the epochs of what was set are made: they are not part of catching up.
func quiet(sites ...*benchSite) {
	for _, s := range sites {
		for s.store.Stats().LogRows > 1000 {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// BenchmarkCatchupMemory measures what a site that was away, and those that serve it, need
// for catching up besides the keys: by how much the live heap of all three was
// higher meanwhile than at the end, when the site has them all. Most of it is the
// list of what the store's log holds, which the log's bound bounds; log-MB is the most that it had.
func BenchmarkCatchupMemory(b *testing.B) {
	for _, keys := range []int{10_000, 200_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			sites := benchCluster(b)
			a, c := sites[0], sites[2]
			c.stop()
			a.fill(0, keys, strings.Repeat("x", 100))
			quiet(sites[:2]...)
			peak, log := uint64(0), int64(0)
			defer debug.SetGCPercent(debug.SetGCPercent(10)) // the heap is looked at as often as it is collected
			for b.Loop() {
				c.start()
				awaitVotes(b, c)
				for !c.caughtUp() {
					peak, log = max(peak, liveHeap()), max(log, c.store.Stats().LogBytes)
					time.Sleep(time.Millisecond)
				}
			}
			runtime.GC()
			end := liveHeap()
			for _, s := range sites {
				s.stop()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(log)/1e6, "log-MB")
			b.ReportMetric(float64(end)/1e6, "MB-at-the-end")
			b.ReportMetric(float64(max(peak, end)-end)/1e6, "MB-above-it")
		})
	}
}

// liveHeap is what the last collection has found alive.
func liveHeap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// away stops c, has a set so many keys meanwhile, starts c, and calls during once c takes
// part. What during is given waits until c has caught up. It returns how long all that took.
func away(a, c *benchSite, others []*benchSite, round, keys int, during func(caughtUp func())) time.Duration {
	c.stop()
	a.fill(round, keys, strings.Repeat("x", 100))
	quiet(others...)
	c.start()
	awaitVotes(a.b, c)
	begin := time.Now()
	during(func() {
		for !c.caughtUp() {
			time.Sleep(5 * time.Millisecond)
		}
	})
	return time.Since(begin)
}

// BenchmarkCatchup measures how long a site that was away while 100,000 keys of 100 bytes were
// set takes to catch up, without other load.
func BenchmarkCatchup(b *testing.B) {
	sites := benchCluster(b)
	var took []float64
	for b.Loop() {
		for i := range 5 {
			took = append(took, away(sites[0], sites[2], sites[:2], i, 100_000, func(caughtUp func()) { caughtUp() }).Seconds())
		}
	}
	for _, s := range sites {
		s.stop()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "s")
}

// BenchmarkCatchupBeside measures what catching up does to sets at the site that catches up and at
// one that serves it, with clients at both: p99 during it by p99 without, in five pairs of
// 20,000 keys of 100 bytes.
func BenchmarkCatchupBeside(b *testing.B) {
	const keys = 20_000
	sites := benchCluster(b)
	a, c := sites[0], sites[2]
	var rate, ratioA, ratioC []float64
	for b.Loop() {
		for i := range 5 {
			var withA, withC []time.Duration
			took := away(a, c, sites[:2], i, keys, func(caughtUp func()) { withA, withC = loadBoth(a, c, caughtUp) })
			quiet(sites...)
			time.Sleep(5 * time.Second) // what comes after a pull is over as well
			withoutA, withoutC := loadBoth(a, c, func() { time.Sleep(max(took, 5*time.Second)) })
			b.Logf("%.2f s; p99 at the server %.2f and %.2f ms without (%d, %d sets), at the site %.2f and %.2f ms (%d, %d sets)",
				took.Seconds(), p99(withA), p99(withoutA), len(withA), len(withoutA), p99(withC), p99(withoutC), len(withC), len(withoutC))
			rate = append(rate, keys/took.Seconds())
			ratioA, ratioC = append(ratioA, p99(withA)/p99(withoutA)), append(ratioC, p99(withC)/p99(withoutC))
		}
	}
	for _, s := range sites {
		s.stop()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(rate), "keys/s")
	b.ReportMetric(median(ratioA), "p99-at-server")
	b.ReportMetric(median(ratioC), "p99-at-site")
}
