package quic

import (
	"bufio"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"gus/register"
)

// ends accepts the streams of the register lane and tells of each batch on which it came.
func (a *attacker) ends(heard func(s *quicgo.ReceiveStream, size int)) {
	go func() {
		for {
			s, err := a.qc.AcceptUniStream(a.t.Context())
			if err != nil {
				return
			}
			go func() {
				in := bufio.NewReader(s)
				for {
					size, err := FrameSize(in, maxBatch)
					if err != nil {
						return
					}
					if _, err := io.CopyN(io.Discard, in, int64(size)); err != nil {
						return
					}
					heard(s, size)
				}
			}()
		}
	}()
}

// Small batches take turns on streams that stay open; a large one has a stream for itself;
// after a rest, or where the receiver breaks one off, there are new ones.
func TestBatchesShareStreams(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		x := w.attack(t, w.ids[1], a)
		x.hello()
		w.until("it is a peer", func() bool { return a.Connected() != 0 })
		var mu sync.Mutex
		on := map[*quicgo.ReceiveStream]int{}
		batches := 0
		x.ends(func(s *quicgo.ReceiveStream, size int) {
			mu.Lock()
			defer mu.Unlock()
			on[s]++
			batches++
		})
		to := register.SetOf(w.ids[1].Number)
		send := func(n, size, want int, what string) {
			t.Helper()
			for range n {
				mu.Lock()
				before := batches
				mu.Unlock()
				a.Send(to, &register.MsgWrite{Key: "k", Write: register.Write{Tag: register.Tag{TS: 1, Owner: w.ids[0].Number}, Value: []byte(strings.Repeat("x", size))}})
				w.until("a batch arrives", func() bool { mu.Lock(); defer mu.Unlock(); return batches > before })
			}
			mu.Lock()
			defer mu.Unlock()
			if len(on) != want {
				t.Errorf("%s: %d batches came on %d streams, want %d", what, batches, len(on), want)
			}
		}
		send(40, 10, lanes, "small ones")
		send(2, laneFill, lanes+2, "large ones")
		time.Sleep(laneRest + time.Second)
		send(8, 10, 2*lanes+2, "after a rest")
		mu.Lock()
		for s := range on {
			s.CancelRead(streamRefused)
		}
		mu.Unlock()
		time.Sleep(time.Second)
		for range 2 * lanes { // some are lost with the streams
			a.Send(to, need("x"))
			time.Sleep(100 * time.Millisecond)
		}
		send(lanes, 10, 3*lanes+2, "after they were broken off")
	}, "a", "b")
}

// What is wrong in the middle of a stream ends it, and what came before counts.
func TestABadBatchBehindGoodOnes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		x := w.attack(t, w.ids[1], a)
		x.hello()
		h := Header{w.ca.Cluster(), 1, 1, nil}
		large := x.batch(h, &register.MsgWrite{Key: "k", Write: register.Write{Tag: register.Tag{TS: 1, Owner: w.ids[1].Number}, Value: make([]byte, register.MaxValue)}})
		x.uni(x.batch(h, need("x")), large, x.batch(h, need("y")), []byte{0xff}, x.batch(h, need("z")))
		w.until("it is refused", func() bool { return a.peerStatus("b").Refused == 1 })
		if a.count() != 3 {
			t.Errorf("%d batches were delivered, want 3", a.count())
		}
	}, "a", "b")
}
