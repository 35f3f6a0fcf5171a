package cli

import (
	"testing"
	"time"

	"gus/agent/client"
)

// BenchmarkDemo measures three sites without distances between them and their
// clients, all in this process: gus bench with a profile.
func BenchmarkDemo(b *testing.B) {
	for _, c := range []struct {
		name  string
		reads float64
	}{{"set", 0}, {"get", 1}} {
		b.Run(c.name, func(b *testing.B) {
			demo, err := openDemo(b.Context(), b.TempDir(), rtts{}, testLog(b))
			if err != nil {
				b.Fatal(err)
			}
			if err := demo.await(b.Context()); err != nil {
				b.Fatal(err)
			}
			l := newLoad(benchConfig{clients: 128, duration: 4 * time.Second, warmup: time.Second, timeout: 5 * time.Second, reads: c.reads, size: 16, keys: 1024})
			l.inProcess = true
			for _, s := range demo.sites {
				l.sites = append(l.sites, newLoadSite(s.name, client.New(s.socket())))
			}
			for b.Loop() {
				if err := l.run(b.Context(), nil); err != nil {
					b.Fatal(err)
				}
			}
			r, err := l.report(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(r.All.PerSecond, "ops/s")
			b.ReportMetric(r.CPUPer1000*1000, "cpu-us/op")
			if err := demo.close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
