package snapshot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gus/register"
)

// settled is a record at rest with a value of 100 bytes.
func settled(key int, ts uint64) register.Record {
	tag := register.Tag{TS: ts, Owner: 2}
	return register.Record{
		Key:      fmt.Sprintf("site/key/%012d", key),
		Cur:      register.Write{Tag: tag, Value: make([]byte, 100), Decided: true},
		Recs:     []register.Rec{{Write: register.Write{Tag: tag}, Accepted: true, NoValue: true}},
		Readable: true,
	}
}

// A save of some records in turn, spread over 100,000 keys. Where the log is
// folded, that is part of the time.
func BenchmarkSave(b *testing.B) {
	never := defaultBounds
	never.rows, never.bytes = 1<<40, 1<<40
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("records=%d/unfolded", n), func(b *testing.B) { benchmarkSave(b, n, never) })
		b.Run(fmt.Sprintf("records=%d/folded", n), func(b *testing.B) { benchmarkSave(b, n, defaultBounds) })
	}
}

func benchmarkSave(b *testing.B, n int, bounds bounds) {
	s := begin(b, freshDir(b), bounds)
	records := make([]register.Record, n)
	seq, key := register.Seq(0), 0
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		seq++
		for i := range records {
			records[i] = settled(key%100_000, uint64(seq))
			key += 7919 // not in the order of the table
		}
		begun := time.Now()
		must(b, s.save(seq, slices.Clone(records)))
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
}

// A start with 100,000 keys: opening, reading all, closing.
func BenchmarkRecover(b *testing.B) {
	dir := freshDir(b)
	s := begin(b, dir, bounds{})
	populate(b, s, 100_000)
	s.end(b)
	b.ReportAllocs()
	for b.Loop() {
		s, err := start(dir, bounds{}) // not begin: it would keep each one until the end
		must(b, err)
		n := 0
		for _, err := range s.Records() {
			must(b, err)
			n++
		}
		if n < 100_000 {
			b.Fatalf("%d records", n)
		}
		s.end(b)
	}
}

// populate saves that many keys.
func populate(b *testing.B, s *session, keys int) {
	b.Helper()
	seq := s.Last()
	for key := 0; key < keys; {
		var records []register.Record
		for range 1000 {
			records = append(records, settled(key, uint64(seq)))
			key++
		}
		seq++
		must(b, s.save(seq, records))
	}
}
