package register

import (
	"fmt"
	"runtime"
	"testing"
)

// trio is three replicas whose messages arrive and whose saves end at once.
type trio struct {
	sites [4]*Replica
	op    Op
	down  Voter // nothing reaches it
	hold  Kind  // messages of this kind are kept in held
	held  []arrival
	done  []Result
}

type arrival struct {
	from, to Voter
	m        Message
}

func newTrio(tb testing.TB) *trio {
	t := &trio{}
	for v := Voter(1); v <= 3; v++ {
		r, err := New(Config{Self: v, Voters: []Voter{1, 2, 3}, Boot: 1}, nil)
		if err != nil {
			tb.Fatal(err)
		}
		t.sites[v] = r
	}
	return t
}

func (t *trio) step(a arrival) {
	if err := t.sites[a.to].Step(a.from, a.m); err != nil {
		panic(err)
	}
}

// settle lets everything happen until nothing is under way.
func (t *trio) settle() {
	for busy := true; busy; {
		busy = false
		for v := Voter(1); v <= 3; v++ {
			rd := t.sites[v].Ready()
			t.done = append(t.done, rd.Results...)
			if rd.Seq != 0 {
				busy = true
				t.sites[v].Saved(rd.Seq)
			}
			for _, e := range rd.Messages {
				for to := range e.To.All {
					switch {
					case to == t.down:
					case e.Message.Kind() == t.hold:
						t.held = append(t.held, arrival{v, to, e.Message})
					default:
						busy = true
						t.step(arrival{v, to, e.Message})
					}
				}
			}
		}
	}
}

func (t *trio) set(v Voter, key string, value []byte) {
	t.op++
	t.sites[v].Set(t.op, key, value, false)
}

func (t *trio) get(v Voter, key string) {
	t.op++
	t.sites[v].Get(t.op, key)
}

// lead makes messages of each kind about the keys.
func (t *trio) lead(kind Kind, keys []string) {
	value := make([]byte, 100)
	all := func(act func(key string)) {
		for _, key := range keys {
			act(key)
		}
		t.settle()
	}
	switch kind {
	case KindWrite, KindAckWrite, KindUpdateView:
		t.hold = kind
		all(func(key string) { t.set(2, key, value) })
	case KindRead, KindAckRead:
		all(func(key string) { t.set(2, key, value) })
		t.hold = kind
		all(func(key string) { t.get(1, key) })
	case KindCommit, KindAckCommit: // voter 1 has not heard of a higher tag
		t.sites[2].Clock(1000)
		t.down = 1
		all(func(key string) { t.set(2, key, value) })
		t.down, t.hold = 0, kind
		all(func(key string) { t.set(1, key, value) })
	case KindForward: // a write at voter 2 alone
		t.hold = KindWrite
		all(func(key string) { t.set(1, key, value) })
		for _, a := range t.held {
			if a.to == 2 {
				t.step(a)
			}
		}
		t.held, t.down = nil, 1
		t.settle()
		t.hold = kind
		all(func(key string) { t.get(3, key) })
	case KindNeed:
		all(func(key string) { t.set(2, key, value) })
		for _, key := range keys {
			t.held = append(t.held, arrival{1, 2, &MsgNeed{Key: key, Tag: Tag{TS: 1, Owner: 2}}})
		}
	}
}

// BenchmarkStep measures the arrival of one message of each kind.
func BenchmarkStep(b *testing.B) {
	for kind := KindWrite; kind <= KindForward; kind++ {
		b.Run(kind.String(), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; n < b.N; {
				b.StopTimer()
				t := newTrio(b)
				keys := make([]string, 1000)
				for i := range keys {
					keys[i] = fmt.Sprintf("site/config/%08d", i)
				}
				t.lead(kind, keys)
				if len(t.held) == 0 {
					b.Fatal("no such message")
				}
				b.StartTimer()
				for _, a := range t.held[:min(len(t.held), b.N-n)] {
					t.step(a)
				}
				n += len(t.held)
			}
		})
	}
}

// BenchmarkSet and BenchmarkGet measure all that the three cores do for one
// uncontended operation.
func BenchmarkSet(b *testing.B) {
	t := newTrio(b)
	value := make([]byte, 16)
	b.ReportAllocs()
	for i := range b.N {
		t.set(Voter(1+i%3), "site/config/00000001", value)
		t.settle()
		t.done = nil
	}
}

func BenchmarkGet(b *testing.B) {
	t := newTrio(b)
	t.set(1, "site/config/00000001", make([]byte, 16))
	t.settle()
	b.ReportAllocs()
	for i := range b.N {
		t.get(Voter(1+i%3), "site/config/00000001")
		t.settle()
		t.done = nil
	}
}

// BenchmarkMemory measures the heap of a voter at rest: a million keys of 20
// bytes with values of 100.
func BenchmarkMemory(b *testing.B) {
	const keys = 1_000_000
	for range b.N {
		b.StopTimer()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		t := newTrio(b)
		b.StartTimer()
		for i := range keys {
			t.set(Voter(1+i%3), fmt.Sprintf("site/config/%08d", i), make([]byte, 100))
			if i%100 == 0 {
				t.settle()
				t.done = nil
			}
		}
		t.settle()
		b.StopTimer()
		for v := range t.sites { // one voter's copy alone: they share values in this process
			if v != 1 {
				t.sites[v] = nil
			} else {
				t.sites[v].Tick()
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if s := t.sites[1].Status(); s.Active != 0 || s.Keys != keys {
			b.Fatalf("not at rest: %+v", s)
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
		runtime.KeepAlive(t)
	}
}
