package register

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

type fsite struct {
	r    *Replica
	inc  int
	boot uint64
	last Seq
	recs []Record
	fly  []Record
	seq  Seq
}

type fmsg struct {
	from, to int
	inc      int // of the receiver
	boot     uint64
	p        []Progress
	m        Message
}

// Restarts, lost and late messages, crashes in saves and failing saves never make a
// voter believe that it has forgotten something, and all vote in the end.
func TestNoFalseForgetting(t *testing.T) {
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n := []int{1, 2, 3, 5}[seed%4]
		var voters []Voter
		for i := range n {
			voters = append(voters, Voter(i+1))
		}
		sites := make([]*fsite, n)
		var net []fmsg
		start := func(i int) {
			s := sites[i]
			s.boot++
			r, err := New(Config{Self: Voter(i + 1), Voters: voters, Boot: s.boot, Saved: s.last, Ask: true}, each(s.recs))
			if err != nil {
				t.Fatal(err)
			}
			s.r, s.seq, s.fly = r, 0, nil
			s.inc++
		}
		drive := func(i int) {
			s := sites[i]
			p := s.r.Progress()
			rd := s.r.Ready()
			if rd.Seq != 0 {
				s.seq, s.fly = rd.Seq, rd.Records
			}
			for _, e := range rd.Messages {
				for v := range e.To.All {
					net = append(net, fmsg{i, int(v) - 1, sites[v-1].inc, s.boot, p, e.Message})
				}
			}
			if err := s.r.Forgot(); err != nil {
				t.Fatalf("seed %d: voter %d: %v", seed, i+1, err)
			}
		}
		end := func(i int, ok bool) {
			s := sites[i]
			if s.seq == 0 {
				return
			}
			if ok {
				s.recs, s.last = append(s.recs, s.fly...), s.seq
			}
			seq := s.seq
			s.seq, s.fly = 0, nil
			if s.r == nil {
				return
			}
			if ok {
				s.r.Saved(seq)
			} else {
				s.r.SaveFailed(seq)
			}
		}
		deliver := func(j int) {
			m := net[j]
			net[j] = net[len(net)-1]
			net = net[:len(net)-1]
			s := sites[m.to]
			if s.r == nil || s.inc != m.inc {
				return
			}
			if s.r.Hear(Voter(m.from+1), m.boot, m.p) {
				if err := s.r.Step(Voter(m.from+1), m.m); err != nil {
					t.Fatal(err)
				}
			}
			drive(m.to)
		}
		for i := range sites {
			sites[i] = &fsite{}
		}
		for i := range sites {
			start(i)
			drive(i)
		}
		op := Op(0)
		for range 600 {
			i := rnd.IntN(n)
			s := sites[i]
			switch k := rnd.IntN(40); {
			case k < 20 && len(net) > 0:
				deliver(rnd.IntN(len(net)))
			case k < 22 && len(net) > 0:
				j := rnd.IntN(len(net))
				net = append(net[:j], net[j+1:]...)
			case k == 22 && s.r != nil: // killed, in a save perhaps
				s.r = nil
				end(i, rnd.IntN(2) == 0)
			case s.r == nil:
				if k > 30 {
					start(i)
					drive(i)
				}
			case k < 28:
				s.r.Tick()
				drive(i)
			case k < 32:
				op++
				s.r.Set(op, fmt.Sprint(rnd.IntN(3)), []byte("v"), false)
				drive(i)
			case k < 39:
				end(i, rnd.IntN(8) > 0)
				drive(i)
			}
		}
		for i, s := range sites {
			if s.r == nil {
				start(i)
			}
		}
		for range 40 {
			for i, s := range sites {
				s.r.Tick()
				drive(i)
				for range 3 {
					end(i, true)
					drive(i)
				}
			}
			for len(net) > 0 && len(net) < 100000 {
				deliver(rnd.IntN(len(net)))
				for i := range sites {
					end(i, true)
					drive(i)
				}
			}
		}
		for i, s := range sites {
			if !s.r.Votes() {
				t.Fatalf("seed %d: voter %d does not vote", seed, i+1)
			}
			if st := s.r.Status(); st.Unsettled > 0 || st.Writes > 0 {
				t.Fatalf("seed %d: voter %d: %+v", seed, i+1, st)
			}
		}
	}
}
