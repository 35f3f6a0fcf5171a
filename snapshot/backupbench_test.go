package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A backup of keys with 100 B values at rest: saved in a file with a sync, verified, and made a database
// again.
func BenchmarkBackup(b *testing.B) {
	for _, keys := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { benchmarkBackup(b, keys) })
	}
}

func benchmarkBackup(b *testing.B, keys int) {
	s := beginWith(b, freshDir(b), Options{Epoch: 50 * time.Millisecond})
	populate(b, s, keys)
	for s.Stats().LogRows > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	var saved, verified, built time.Duration
	var size int64
	for b.Loop() {
		path := filepath.Join(b.TempDir(), "backup")
		begun := time.Now()
		f, err := os.Create(path)
		must(b, err)
		w := bufio.NewWriterSize(f, 256<<10)
		sum, err := s.Backup(w, origin)
		must(b, errors.Join(err, w.Flush(), f.Sync(), f.Close()))
		saved, size = saved+time.Since(begun), sum.Size
		begun = time.Now()
		_, err = VerifyBackup(path, nil)
		must(b, err)
		verified += time.Since(begun)
		dir := filepath.Join(b.TempDir(), "new")
		must(b, os.Mkdir(dir, 0o700))
		begun = time.Now()
		f, err = os.Open(path)
		must(b, err)
		r, err := ReadBackup(f)
		must(b, err)
		must(b, errors.Join(Build(dir, cluster, r.Entries()), f.Close()))
		built += time.Since(begun)
	}
	n := float64(b.N * keys)
	b.ReportMetric(n/saved.Seconds(), "saved-keys/s")
	b.ReportMetric(n/verified.Seconds(), "verified-keys/s")
	b.ReportMetric(n/built.Seconds(), "restored-keys/s")
	b.ReportMetric(float64(size)/float64(keys), "B/key")
}
