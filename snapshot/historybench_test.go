package snapshot

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"gus/register"
)

// aged makes a database of that many keys, a tenth of which changes in each of 100 rounds, each
// in epochs of its own.
func aged(b *testing.B, dir string, keys int) {
	b.Helper()
	s := beginWith(b, dir, Options{Epoch: 200 * time.Millisecond, Retain: Retention{For: 1000 * time.Hour}})
	folded := func() {
		for s.Stats().LogRows > 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	populate(b, s, keys)
	folded()
	key := 0
	for range 100 {
		for range 10 {
			seq := s.Last() + 1
			records := make([]register.Record, keys/100)
			for i := range records {
				records[i] = settled(key%keys, uint64(seq))
				key += 7919
			}
			must(b, s.save(seq, records))
		}
		folded()
	}
	b.ReportMetric(float64(s.Stats().KeptEpochs), "epochs")
	s.end(b)
}

// What 100 epochs, each of a tenth of 100,000 keys, cost on the disk and at a start: kept, and
// after compaction. replay-s is what reading all versions in order would cost a store that
// kept them only so.
func BenchmarkHistory(b *testing.B) {
	const keys = 100_000
	dir := freshDir(b)
	aged(b, dir, keys)
	b.ReportMetric(0, "ns/op")
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for b.Loop() {
	}
	measureStart(b, dir, "kept-", true)
	s := beginWith(b, dir, Options{Epoch: 10 * time.Millisecond, Retain: Retention{Epochs: 1}})
	must(b, s.save(s.Last()+1, []register.Record{settled(1, uint64(s.Last()+1))}))
	begun := time.Now()
	for left := int64(1); left > 0; left = versionsUntil(b, s) {
		time.Sleep(20 * time.Millisecond)
	}
	b.ReportMetric(time.Since(begun).Seconds(), "compaction-s")
	s.end(b)
	measureStart(b, dir, "compacted-", false)
}

// versionsUntil counts versions that compaction has still to delete, 1 until it has begun.
func versionsUntil(b *testing.B, s *session) (n int64) {
	if s.Stats().KeptEpochs > 1 {
		return 1
	}
	must(b, s.readers.QueryRow("SELECT count(*) FROM (SELECT 1 FROM versions WHERE until <= ? LIMIT 1)", s.Stats().OldestEpoch).Scan(&n))
	return n
}

func measureStart(b *testing.B, dir, prefix string, replay bool) {
	var took []time.Duration
	for range 5 {
		begun := time.Now()
		s, err := start(dir, bounds{})
		must(b, err)
		_, err = register.New(benchConfig(s), s.Records())
		must(b, err)
		took = append(took, time.Since(begun))
		if len(took) == 5 {
			b.ReportMetric(float64(s.Stats().DatabaseBytes)/(1<<20), prefix+"MiB")
			if replay {
				b.ReportMetric(ordered(b, s).Seconds(), "replay-s")
			}
		}
		s.end(b)
	}
	slices.Sort(took)
	b.ReportMetric(took[2].Seconds(), prefix+"start-s")
}

// ordered reads all versions from the oldest on, the records last, into a map.
func ordered(b *testing.B, s *session) time.Duration {
	begun := time.Now()
	state := map[string]register.Write{}
	rows, err := s.readers.Query("SELECT until, part, key, epoch, ts, owner, deleted, sum, value FROM versions ORDER BY until, part, key")
	must(b, err)
	for rows.Next() {
		var v version
		must(b, v.scan(rows.Scan, &v.until, &v.part, &v.key))
		state[string(v.key)] = v.write
	}
	must(b, rows.Close())
	for r, err := range s.Records() {
		must(b, err)
		state[r.Key] = r.Cur
	}
	return time.Since(begun)
}

// Saves of one record as fast as they go, for some seconds: beside a compaction that has 200,000
// versions to delete, and without one. The median of five pairs.
func BenchmarkCompaction(b *testing.B) {
	dir := freshDir(b)
	aged(b, dir, 20_000)
	for b.Loop() {
		var ratios, with, without []time.Duration
		for range 5 {
			off := besideCompaction(b, dir, Retention{For: 1000 * time.Hour})
			on := besideCompaction(b, dir, Retention{Epochs: 1})
			with, without = append(with, on), append(without, off)
			ratios = append(ratios, 1000*on/off)
		}
		for _, list := range [][]time.Duration{ratios, with, without} {
			slices.Sort(list)
		}
		b.Logf("p99 with %v, without %v, ratios in thousandths %d", with, without, ratios)
		b.ReportMetric(float64(with[2].Nanoseconds()), "with-p99-ns")
		b.ReportMetric(float64(without[2].Nanoseconds()), "without-p99-ns")
		b.ReportMetric(float64(ratios[2])/1000, "p99-ratio")
	}
}

func besideCompaction(b *testing.B, from string, r Retention) time.Duration {
	dir := freshDir(b)
	must(b, os.Mkdir(dir, 0o700))
	write(b, filepath.Join(dir, databaseName), read(b, filepath.Join(from, databaseName)))
	s := beginWith(b, dir, Options{Epoch: time.Second, Retain: r})
	one := func() time.Duration {
		seq := s.Last() + 1
		begun := time.Now()
		must(b, s.save(seq, []register.Record{settled(int(seq)*7919%20_000, uint64(seq))}))
		return time.Since(begun)
	}
	kept := s.Stats().KeptEpochs
	for s.Stats().KeptEpochs == kept { // the first epoch, with which a compaction begins
		one()
	}
	var took []time.Duration
	for begun := time.Now(); time.Since(begun) < 5*time.Second; {
		took = append(took, one())
	}
	if r.Epochs > 0 && versionsUntil(b, s) == 0 {
		b.Fatal("the compaction has ended before")
	}
	s.end(b)
	os.RemoveAll(dir)
	slices.Sort(took)
	return took[len(took)*99/100]
}
