package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"gus/agent/files"
)

// pulled runs a demo with an observer, at each site a pull of app/ into a directory of its own. It
// returns the directories, that of the observer last.
func pulled(b *testing.B, r rtts) (d *demoSites, dirs []string) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, cancel := context.WithCancel(b.Context())
	d, err := openDemo(ctx, b.TempDir(), r, log, observerName)
	if err != nil {
		b.Fatal(err)
	}
	if err := d.await(ctx); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, s := range d.sites {
		dir := b.TempDir()
		dirs = append(dirs, dir)
		wg.Go(func() { _ = files.Pull{Prefix: "app/", Dir: dir, Log: log}.Run(ctx, s.client) })
	}
	b.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := d.close(); err != nil {
			b.Error(err)
		}
	})
	return d, dirs
}

// awaitFile waits until the file has the value.
func awaitFile(path, value string) {
	for {
		if got, err := os.ReadFile(path); err == nil && string(got) == value {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// BenchmarkFileInPlace measures how long after a set has returned the file is in place at an
// observer, without distances and with those of the demo's regions; and how long 200 files take
// to be in place at all sites, from the first set on.
func BenchmarkFileInPlace(b *testing.B) {
	for name, r := range map[string]rtts{"loopback": {}, "regions": regions()} {
		b.Run(name, func(b *testing.B) {
			d, dirs := pulled(b, r)
			first, observer := d.sites[0], dirs[len(dirs)-1]
			var took []time.Duration
			var all time.Duration
			for b.Loop() {
				for i := range 100 {
					value := fmt.Sprint(i)
					if _, err := first.client.Set(b.Context(), "app/one", []byte(value)); err != nil {
						b.Fatal(err)
					}
					begin := time.Now()
					awaitFile(filepath.Join(observer, "one"), value)
					took = append(took, time.Since(begin))
					time.Sleep(50 * time.Millisecond)
				}
				begin := time.Now()
				var wg sync.WaitGroup
				for i := range 200 {
					wg.Go(func() {
						if _, err := first.client.Set(b.Context(), fmt.Sprintf("app/many/%d", i), []byte(fmt.Sprint("many", i))); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				for i := range 200 {
					for _, dir := range dirs {
						awaitFile(filepath.Join(dir, "many", fmt.Sprint(i)), fmt.Sprint("many", i))
					}
				}
				all = time.Since(begin)
			}
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ms(took[len(took)/2]), "ms-p50")
			b.ReportMetric(ms(took[len(took)*99/100]), "ms-p99")
			b.ReportMetric(ms(all), "ms-200-files-everywhere")
		})
	}
}
