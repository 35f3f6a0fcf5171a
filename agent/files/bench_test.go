package files

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// BenchmarkPull pulls 20,000 keys of 100 bytes into an empty directory, and again into the one that is as it
// should be. The server is in memory; its own memory is not counted.
const keys = 20_000

func BenchmarkPull(b *testing.B) {
	s := newSite(b)
	for n := range keys {
		s.set(fmt.Sprintf("p/%02d/key%05d", n%100, n), strings.Repeat("x", 95)+fmt.Sprintf("%05d", n))
	}
	var first, again time.Duration
	var heap uint64
	for b.Loop() {
		dir := b.TempDir()
		for _, took := range []*time.Duration{&first, &again} {
			j := newJobFor(b, Pull{Prefix: "p/", Dir: dir, Once: true}, s)
			begin := time.Now()
			if _, err := j.session(b.Context()); err != nil {
				b.Fatal(err)
			}
			*took += time.Since(begin)
			heap = max(heap, heapWith(j))
			j.close()
		}
	}
	b.ReportMetric(first.Seconds()/float64(b.N), "s/first")
	b.ReportMetric(again.Seconds()/float64(b.N), "s/again")
	b.ReportMetric(float64(heap)/1e6, "MB-held")
}

func newJobFor(b *testing.B, p Pull, s *site) *job {
	p, err := p.withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	return newJob(p, s.client())
}

// heapWith returns the bytes that j holds.
func heapWith(j *job) uint64 {
	var with, without runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&with)
	j.forget()
	runtime.GC()
	runtime.ReadMemStats(&without)
	return with.HeapAlloc - min(with.HeapAlloc, without.HeapAlloc)
}

// BenchmarkOneChange changes one of 20,000 files, a hundred directories of them or one: the whole batch, its syncs
// included, and the look for what somebody has removed alone.
func BenchmarkOneChange(b *testing.B) {
	for _, dirs := range []int{100, 1} {
		b.Run(fmt.Sprintf("dirs=%d", dirs), func(b *testing.B) {
			s := newSite(b)
			for n := range keys {
				s.set(fmt.Sprintf("p/%02d/key%05d", n%dirs, n), strings.Repeat("x", 95)+fmt.Sprintf("%05d", n))
			}
			j := newJobFor(b, Pull{Prefix: "p/", Dir: b.TempDir(), Once: true}, s)
			defer j.close()
			if _, err := j.session(b.Context()); err != nil {
				b.Fatal(err)
			}
			const key = "p/00/key00000"
			var look time.Duration
			for b.Loop() {
				begin := time.Now()
				j.markMissing()
				look += time.Since(begin)
				s.set(key, fmt.Sprint(begin))
				j.set(key, s.keys[key].version)
				if err := j.commit(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(look.Seconds()*1e3/float64(b.N), "ms/look")
		})
	}
}
