package snapshot

import (
	"fmt"
	"runtime"
	"runtime/debug"
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
		Recs:     []register.Rec{{Write: register.Write{Tag: register.Tag{TS: 1, Owner: 1}}, Accepted: true, NoValue: true}},
		Readable: true,
	}
}

// never makes no epochs.
var never = bounds{rows: 1 << 40, bytes: 1 << 40, keys: defaultBounds.keys, piece: defaultBounds.piece}

// A save of some records in turn, spread over 100,000 keys: without epochs, and
// with one after another all the time.
func BenchmarkSave(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("records=%d/unfolded", n), func(b *testing.B) { benchmarkSave(b, n, never, 1000*time.Hour) })
		b.Run(fmt.Sprintf("records=%d/epochs", n), func(b *testing.B) { benchmarkSave(b, n, defaultBounds, time.Millisecond) })
		b.Run(fmt.Sprintf("records=%d/default", n), func(b *testing.B) { benchmarkSave(b, n, defaultBounds, 0) })
	}
}

func benchmarkSave(b *testing.B, n int, bounds bounds, epoch time.Duration) {
	s := beginWith(b, freshDir(b), Options{bounds: bounds, Epoch: epoch})
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
	report(b, "", took)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
}

// report reports the median and the 99th of a hundred durations.
func report(b *testing.B, prefix string, took []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(took)
	p50, p99 = took[len(took)/2], took[len(took)*99/100]
	b.ReportMetric(float64(p50.Nanoseconds()), prefix+"p50-ns")
	b.ReportMetric(float64(p99.Nanoseconds()), prefix+"p99-ns")
	return p50, p99
}

// An epoch of 100,000 changed keys of 200,000, and saves of one record as fast
// as they go: beside it, and after it with none under way. The ratios say what
// an epoch is felt like.
func BenchmarkEpoch(b *testing.B) {
	const keys = 100_000
	var beside, alone []time.Duration
	var epoch time.Duration
	for b.Loop() {
		b.StopTimer()
		s := beginWith(b, freshDir(b), Options{bounds: never, Epoch: 3 * time.Second})
		populate(b, s, 2*keys)
		for s.Stats().LogRows > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		before := s.Stats().Epoch
		seq := s.Last()
		for i := 0; i < keys; {
			var records []register.Record
			for range 1000 {
				records = append(records, settled(2*i, uint64(seq)))
				i++
			}
			seq++
			must(b, s.save(seq, records))
		}
		one := func() time.Duration {
			seq++
			begun := time.Now()
			must(b, s.save(seq, []register.Record{settled(int(seq)*7919%keys, uint64(seq))}))
			return time.Since(begun)
		}
		for !s.Stats().EpochUnderWay {
			alone = append(alone, one())
		}
		b.StartTimer()
		begun := time.Now()
		for s.Stats().Epoch == before {
			beside = append(beside, one())
		}
		epoch += time.Since(begun)
		b.StopTimer()
		s.end(b)
		b.StartTimer()
	}
	b.ReportMetric(epoch.Seconds()/float64(b.N), "epoch-s")
	p50, p99 := report(b, "alone-", alone)
	q50, q99 := report(b, "beside-", beside)
	b.ReportMetric(float64(q50)/float64(p50), "p50-ratio")
	b.ReportMetric(float64(q99)/float64(p99), "p99-ratio")
}

// A start with a million keys: opening, reading all into a replica, with a hint of how
// many there are and as much garbage as the agent allows for. peak-MB is what the
// heap has taken of the system. The parts are measured apart: open-s,
// records-s without and new-s with them at hand.
func BenchmarkRecover(b *testing.B) {
	const keys = 1_000_000
	dir := freshDir(b)
	s := beginWith(b, dir, Options{Epoch: time.Second})
	populate(b, s, keys)
	for s.Stats().LogRows > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	s.end(b)
	b.ReportMetric(float64(fileSize(s.path))/(1<<20), "MiB")
	b.ReportMetric(0, "ns/op")
	var opening, reading time.Duration
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for b.Loop() {
		begun := time.Now()
		s, err := start(dir, bounds{}) // not begin: it would keep each one until the end
		must(b, err)
		opening += time.Since(begun)
		begun = time.Now()
		r, err := register.New(benchConfig(s), s.Records())
		must(b, err)
		reading += time.Since(begun)
		if n := r.Status().Keys; n < keys {
			b.Fatalf("%d keys", n)
		}
		s.end(b)
	}
	n := float64(b.N)
	b.ReportMetric(opening.Seconds()/n, "open-s/op")
	b.ReportMetric(reading.Seconds()/n, "new-from-records-s/op")
	b.ReportMetric((opening+reading).Seconds()/n, "s/op")
	b.ReportMetric(keys/((opening+reading).Seconds()/n), "keys/s")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapSys)/(1<<20), "peak-MB")
	apart(b, dir)
}

func benchConfig(s *session) register.Config {
	keys := int(s.Stats().Records)
	return register.Config{Self: 2, Voters: []register.Voter{1, 2, 3}, Boot: s.Boot(), Saved: s.Last(), Keys: keys}
}

// apart measures the reading of records by itself, and a replica's taking in
// of records that are at hand.
func apart(b *testing.B, dir string) {
	s, err := start(dir, bounds{})
	must(b, err)
	defer s.end(b)
	runtime.GC()
	begun := time.Now()
	var all []register.Record
	for _, err := range s.Records() {
		must(b, err)
	}
	b.ReportMetric(time.Since(begun).Seconds(), "records-s")
	for r, err := range s.Records() {
		must(b, err)
		all = append(all, r)
	}
	runtime.GC()
	begun = time.Now()
	_, err = register.New(benchConfig(s),
		func(yield func(register.Record, error) bool) {
			for _, r := range all {
				if !yield(r, nil) {
					return
				}
			}
		})
	must(b, err)
	b.ReportMetric(time.Since(begun).Seconds(), "new-s")
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
