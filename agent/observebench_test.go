package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gus/membership"
	"gus/quic"
)

// observerNames returns n names of observers.
func observerNames(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("ob%d", i))
	}
	return all
}

// complete waits until an observer has all that there is.
func (s *benchSite) complete() {
	s.b.Helper()
	for {
		s.observer.mu.Lock()
		ok := !s.observer.complete.IsZero() && !s.observer.complete.Before(s.observer.since) && s.observer.voter != ""
		s.observer.mu.Unlock()
		if ok {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// BenchmarkObserversSee measures how long after a set was acknowledged 20 observers on
// this machine show it to who watches there: until the last one does.
func BenchmarkObserversSee(b *testing.B) {
	const sets = 300
	sites := benchCluster(b, observerNames(20)...)
	observers := sites[3:]
	seen := make(chan string, 1024)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, ob := range observers {
		ob.start()
		ob.complete()
		wg.Go(func() {
			t := newTail(ob.loop, ob.store, "see/", ob.store.Last())
			defer t.close()
			for ctx.Err() == nil {
				events, more, err := t.next(ctx)
				for _, e := range events {
					seen <- e.Key
				}
				if err != nil || !more && t.wait(ctx, time.Minute) != nil {
					return
				}
			}
		})
	}
	var took []time.Duration
	for b.Loop() {
		for i := range sets {
			key := fmt.Sprintf("see/%d", i)
			if _, ok := sites[0].set(key, "0123456789abcdef"); !ok {
				b.Fatal("a set failed")
			}
			begin := time.Now()
			for n := 0; n < len(observers); {
				if <-seen == key {
					n++
				}
			}
			took = append(took, time.Since(begin))
		}
	}
	cancel()
	wg.Wait()
	for _, s := range sites {
		s.stop()
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[len(took)/2])/1e6, "ms-p50")
	b.ReportMetric(p99(took), "ms-p99")
	b.ReportMetric(float64(took[len(took)-1])/1e6, "ms-max")
}

// attach has an endpoint of an observer follow a voter and throw away what it is told. What it
// returns ends that.
func attach(b *testing.B, ob, voter *benchSite) (detach func()) {
	id, conf, err := identify(ob.dir)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", ob.addr)
	if err != nil {
		b.Fatal(err)
	}
	e, err := quic.New(quic.Config{Identity: id, Conn: conn, Configuration: conf.Number, Boot: 1, Log: voter.log,
		Deliver: voter.deliver, Datagram: func(quic.Site, []byte) {}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	if err := e.SetPeer(voter.id.Name, voter.id.Number, voter.addr); err != nil {
		b.Fatal(err)
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			s, err := e.OpenStream(ctx, voter.id.Name, purposeFollow)
			if err != nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			release := bind(ctx, s)
			var ask bytes.Buffer
			_ = streamEncoding.MarshalToBuffer(&followAsk{Version: streamVersion, Database: voter.store.Database(), After: voter.store.Last()}, &ask)
			_ = quic.WriteFrame(s, ask.Bytes())
			_, _ = io.Copy(io.Discard, s)
			release()
			_ = s.Close()
		}
	})
	return func() {
		cancel()
		wg.Wait()
		_ = e.Close()
	}
}

// pairs measures the p99 of sets at a voter with something and without it, five times in
// turns, and reports the median of the ratios.
func pairs(b *testing.B, what string, measure func() []time.Duration, with func() (end func())) {
	var ratios, withs, withouts []float64
	for b.Loop() {
		for range 5 {
			without := measure()
			end := with()
			loaded := measure()
			end()
			b.Logf("%s: p99 %.2f ms, without %.2f (%d, %d sets)", what, p99(loaded), p99(without), len(loaded), len(without))
			ratios = append(ratios, p99(loaded)/p99(without))
			withs, withouts = append(withs, p99(loaded)), append(withouts, p99(without))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "p99-ratio")
	b.ReportMetric(median(withs), "ms-p99-with")
	b.ReportMetric(median(withouts), "ms-p99-without")
}

// sets500 sets 500 keys a second at s for a while, and returns how long each took.
func (s *benchSite) sets500(d time.Duration) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for i := range int(d / (2 * time.Millisecond)) {
		<-tick.C
		wg.Go(func() {
			took, ok := s.set(fmt.Sprintf("load/%d", i%1000), "0123456789abcdef")
			mu.Lock()
			defer mu.Unlock()
			if ok {
				all = append(all, took)
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

// BenchmarkFollowers measures what 100 followers of one voter do to the p99 of sets there, at
// 500 sets a second. Their own ends are on the same two cores.
func BenchmarkFollowers(b *testing.B) {
	sites := benchCluster(b, observerNames(100)...)
	a := sites[0]
	var detach []func()
	pairs(b, "100 followers", func() []time.Duration { return a.sets500(10 * time.Second) }, func() func() {
		detach = detach[:0]
		for _, ob := range sites[3:] {
			detach = append(detach, attach(b, ob, a))
		}
		for a.catchup.followers() < 100 {
			time.Sleep(20 * time.Millisecond)
		}
		return func() {
			for _, d := range detach {
				d()
			}
			for a.catchup.followers() > 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
	})
	for _, s := range sites[:3] {
		s.stop()
	}
}

// BenchmarkObserverJoins measures what an observer that joins a cluster with 100,000 keys of 100
// bytes does to the p99 of sets at the voter that it follows, 500 a second, and how long it takes.
func BenchmarkObserverJoins(b *testing.B) {
	sites := benchCluster(b, "ob")
	a, ob := sites[0], sites[3]
	a.fill(0, 100_000, strings.Repeat("x", 100))
	quiet(sites[:3]...)
	var joins []float64
	joining := false
	measure := func() []time.Duration {
		if !joining {
			return a.sets500(25 * time.Second)
		}
		done := make(chan []time.Duration)
		go func() { done <- a.sets500(25 * time.Second) }()
		time.Sleep(time.Second)
		begin := time.Now()
		ob.start()
		ob.complete()
		joins = append(joins, time.Since(begin).Seconds())
		return <-done
	}
	pairs(b, "an observer joins", measure, func() func() {
		ob.fresh()
		joining = true
		return func() {
			joining = false
			ob.stop()
		}
	})
	for _, s := range sites[:3] {
		s.stop()
	}
	b.ReportMetric(median(joins), "s-to-join")
}

// fresh takes all from a site that does not run but its identity.
func (s *benchSite) fresh() {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		s.b.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != membership.IdentityDir {
			if err := os.RemoveAll(filepath.Join(s.dir, f.Name())); err != nil {
				s.b.Fatal(err)
			}
		}
	}
}
