package cli

import (
	"math"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
)

func TestPercentilesAreExactEnough(t *testing.T) {
	var s series
	for us := 1; us <= 100_000; us++ {
		s.add(time.Duration(us)*time.Microsecond, us%2+1)
	}
	for p, want := range map[float64]float64{.001: 100, .5: 50_000, .99: 99_000, .999: 99_900} {
		got := float64(s.percentile(p).Microseconds())
		if math.Abs(got-want) > want/256+1 {
			t.Errorf("percentile %v is %v us, want %v", p, got, want)
		}
	}
	if f := s.figures(time.Second); f.Ops != 100_000 || f.OneRound != 0.5 || f.Max != client.Duration(100*time.Millisecond) {
		t.Errorf("%+v", f)
	}
	for us := range uint64(1 << 20) {
		if b := bucket(us); lowest(b) > us || lowest(b+1) <= us {
			t.Fatalf("%d us is in bucket %d, which begins at %d and ends before %d", us, b, lowest(b), lowest(b+1))
		}
	}
	var merged series
	merged.merge(&s)
	merged.merge(&s)
	if merged.count != 2*s.count || merged.percentile(.5) != s.percentile(.5) {
		t.Error("merged with itself it is another")
	}
}

// history reads a history: an operation is "w1 0-2 =7.1", a write of value 1
// from 0 to 2 under version 7.1, or "r1 ...", or "w? ..." of value ?, or "r0", a
// read that found nothing.
func history(text string) []*worker {
	w := &worker{}
	for line := range strings.SplitSeq(text, ";") {
		f := strings.Fields(line)
		op := operation{key: "k", read: f[0][0] == 'r', unknown: strings.HasSuffix(f[2], "?")}
		if f[0][1] != '0' {
			op.value[0] = f[0][1]
		}
		op.begin, op.end = time.Duration(f[1][0]-'0'), time.Duration(f[1][2]-'0')
		op.version = client.Version(strings.Trim(f[2], "=?"))
		w.history = append(w.history, op)
	}
	return []*worker{w}
}

func TestTheCheckerJudges(t *testing.T) {
	for _, c := range []struct{ name, history, violation string }{
		{"one after another", "w1 0-1 =1.1; r1 2-3 =1.1; w2 4-5 =2.1; r2 6-7 =2.1", ""},
		{"at once", "w1 0-5 =1.1; w2 0-5 =1.2; r1 1-2 =1.1; r2 3-4 =1.2; r2 6-7 =1.2", ""},
		{"coalesced", "w1 0-5 =2.1; w2 0-5 =2.1; r2 6-7 =2.1", ""},
		{"unknown, seen", "w1 0-1 =1.1; w2 2-3 =?; r2 4-5 =2.1", ""},
		{"unknown, not seen", "w1 0-1 =1.1; w2 2-3 =?; r1 4-5 =1.1", ""},
		{"from before", "r9 0-1 =1.1; w1 2-3 =2.1; r1 4-5 =2.1", ""},
		{"nothing from before", "r0 0-1 =; w1 2-3 =2.1", ""},
		{"stale read", "w1 0-1 =1.1; w2 2-3 =2.1; r1 4-5 =1.1", "after"},
		{"reads go back", "w1 0-1 =1.1; w2 2-9 =2.1; r2 3-4 =2.1; r1 5-6 =1.1", "after"},
		{"lost write", "w1 0-1 =1.1; r0 2-3 =", "after"},
		{"write below a complete one", "w1 0-1 =5.1; w2 2-3 =4.2", "after"},
		{"read from the future", "r1 0-1 =1.1; w1 2-3 =1.1", "a write at"},
		{"another's value", "w1 0-1 =1.1; w2 0-1 =2.1; r1 2-3 =2.1", "not written under it"},
		{"from nowhere", "w1 0-1 =1.1; r7 2-3 =9.1", "not written under it"},
	} {
		j := checkHistory(history(c.history))
		switch {
		case c.violation == "" && len(j.Violations) > 0:
			t.Errorf("%s: %s", c.name, j.Violations[0])
		case c.violation != "" && (len(j.Violations) == 0 || !strings.Contains(j.Violations[0], c.violation)):
			t.Errorf("%s: %v, want %q", c.name, j.Violations, c.violation)
		}
	}
}
