package cli

import (
	"math/bits"
	"time"

	"gus/agent/client"
)

// series counts durations in buckets that are 1/256 of their value wide or
// less, which is how exact its percentiles are.
type series struct {
	buckets  [fine * 26]uint32 // up to an hour and more
	count    int
	oneRound int // of them took one round trip at most
	max      time.Duration
}

// fine is the number of buckets in which a duration doubles.
const fine = 256

// bucket returns the number of the bucket of d microseconds, and lowest the
// least microseconds of a bucket.
func bucket(us uint64) int {
	if us < 2*fine {
		return int(us)
	}
	shift := bits.Len64(us/fine) - 1
	return min(fine*shift+int(us>>shift), len(series{}.buckets)-1)
}

func lowest(b int) uint64 {
	if b < 2*fine {
		return uint64(b)
	}
	shift := b/fine - 1
	return uint64(b-fine*shift) << shift
}

func (s *series) add(d time.Duration, roundTrips int) {
	s.buckets[bucket(uint64(d.Microseconds()))]++
	s.count++
	if roundTrips <= 1 {
		s.oneRound++
	}
	s.max = max(s.max, d)
}

func (s *series) merge(t *series) {
	for i, n := range t.buckets {
		s.buckets[i] += n
	}
	s.count += t.count
	s.oneRound += t.oneRound
	s.max = max(s.max, t.max)
}

// percentile returns the duration that the share p is not longer than.
func (s *series) percentile(p float64) time.Duration {
	rest := int(p * float64(s.count))
	for b, n := range s.buckets {
		if rest -= int(n); rest < 0 {
			return time.Duration(lowest(b)) * time.Microsecond
		}
	}
	return s.max
}

// figures are what a series came to.
type figures struct {
	Ops       int             `json:"ops"`
	PerSecond float64         `json:"per_second"`
	OneRound  float64         `json:"share_one_round_trip"`
	P50       client.Duration `json:"p50_ms"`
	P95       client.Duration `json:"p95_ms"`
	P99       client.Duration `json:"p99_ms"`
	P999      client.Duration `json:"p999_ms"`
	Max       client.Duration `json:"max_ms"`
}

func (s *series) figures(took time.Duration) figures {
	if s.count == 0 {
		return figures{}
	}
	return figures{
		Ops:       s.count,
		PerSecond: float64(s.count) / took.Seconds(),
		OneRound:  float64(s.oneRound) / float64(s.count),
		P50:       client.Duration(s.percentile(.50)),
		P95:       client.Duration(s.percentile(.95)),
		P99:       client.Duration(s.percentile(.99)),
		P999:      client.Duration(s.percentile(.999)),
		Max:       client.Duration(s.max),
	}
}
