package quic

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"gus/register"
)

// narrow is a UDP socket on a path that carries payloads of 1,200 bytes and no
// more, without a word about it. It has all that quic-go looks for, so that
// path MTU discovery is on.
type narrow struct {
	*net.UDPConn
	dropped atomic.Int64
}

func (n *narrow) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (int, int, error) {
	if len(b) > 1200 {
		n.dropped.Add(1)
		return len(b), len(oob), nil
	}
	return n.UDPConn.WriteMsgUDP(b, oob, addr)
}

func (n *narrow) WriteTo(b []byte, addr net.Addr) (int, error) {
	if len(b) > 1200 {
		n.dropped.Add(1)
		return len(b), nil
	}
	return n.UDPConn.WriteTo(b, addr)
}

func listenUDP(tb testing.TB) *net.UDPConn {
	tb.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}

// pair connects two voters over loopback until the test is over; the
// functions are given what arrives at each.
func pair(tb testing.TB, sockets [2]net.PacketConn, deliver [2]func(Batch), datagram func([]byte)) (a, b *Endpoint) {
	tb.Helper()
	_, ids, err := MakeVoters("a", "b")
	if err != nil {
		tb.Fatal(err)
	}
	var up sync.WaitGroup
	up.Add(2)
	var ends [2]*Endpoint
	for i := range ends {
		connected := sync.OnceFunc(up.Done)
		ends[i], err = New(Config{
			Identity: ids[i], Conn: sockets[i], Boot: 1, Log: discard(),
			Deliver:  func(_ context.Context, _ register.Voter, b Batch) { deliver[i](b) },
			Peer:     func(register.Voter, bool) { connected() },
			Datagram: func(_ Site, p []byte) { datagram(p) },
		})
		if err != nil {
			tb.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- ends[i].Run(context.Background()) }()
		tb.Cleanup(func() {
			_ = ends[i].Close()
			if err := <-done; err != nil {
				tb.Error(err)
			}
		})
	}
	if err := ends[0].SetPeer("b", 2, sockets[1].LocalAddr().String()); err != nil {
		tb.Fatal(err)
	}
	up.Wait()
	return ends[0], ends[1]
}

func TestAPathOf1200Bytes(t *testing.T) {
	t.Setenv("QUIC_GO_DISABLE_GSO", "true") // or one write would be several packets
	sockets := [2]*narrow{{UDPConn: listenUDP(t)}, {UDPConn: listenUDP(t)}}
	values := make(chan int, 1000)
	var packets, short atomic.Int64 // packets may be lost, but not cut short
	count := func(b Batch) {
		for _, m := range b.Messages {
			values <- len(m.(*register.MsgWrite).Write.Value)
		}
	}
	a, b := pair(t, [2]net.PacketConn{sockets[0], sockets[1]}, [2]func(Batch){count, count}, func(p []byte) {
		packets.Add(1)
		if len(p) != MaxDatagram {
			short.Add(1)
		}
	})
	// Traffic goes on for as long as the search for a larger size does, and
	// that needs lost probes to end.
	for i := 0; sockets[0].dropped.Load() < 3 || sockets[1].dropped.Load() < 3; i++ {
		size := []int{0, 100, 1150, 1200, 1300, 1500, 5000, register.MaxValue}[i%8]
		for _, way := range []struct {
			from *Endpoint
			to   register.Voter
			name string
		}{{a, 2, "b"}, {b, 1, "a"}} {
			way.from.Send(register.SetOf(way.to), &register.MsgWrite{Key: "k", Write: register.Write{Value: make([]byte, size)}})
			if got := <-values; got != size {
				t.Fatalf("a value of %d bytes arrived as %d", size, got)
			}
			if err := way.from.SendDatagram(way.name, make([]byte, MaxDatagram)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if packets.Load() == 0 || short.Load() != 0 {
		t.Errorf("%d packets arrived, %d of them not whole", packets.Load(), short.Load())
	}
	if st := a.Status().Peers[0]; st.MessagesDropped != 0 {
		t.Errorf("something was dropped: %+v", st)
	}
}

func TestStatusOfABareSocket(t *testing.T) {
	nothing := func(Batch) {}
	a, _ := pair(t, [2]net.PacketConn{listenUDP(t), listenUDP(t)}, [2]func(Batch){nothing, nothing}, nil)
	st := a.Status()
	if st.ReceiveBuffer <= 0 || st.SendBuffer <= 0 {
		t.Errorf("buffers of %d and %d bytes", st.ReceiveBuffer, st.SendBuffer)
	}
	if len(st.Peers) != 1 || st.Peers[0].BytesSent == 0 || st.Peers[0].Remote == "" {
		t.Errorf("peers: %+v", st.Peers)
	}
}

// BenchmarkRoundTrip sends a message of some 80 bytes to another endpoint and
// waits for its answer, with so many outstanding.
func BenchmarkRoundTrip(b *testing.B) {
	for _, outstanding := range []int{1, 64} {
		b.Run(fmt.Sprint(outstanding), func(b *testing.B) {
			tokens := make(chan struct{}, outstanding)
			m := &register.MsgWrite{Key: "benchmark", Write: register.Write{Tag: register.Tag{TS: 1 << 60, Owner: 1}, Value: make([]byte, 16)}}
			ack := &register.MsgAckWrite{Key: m.Key, Tag: m.Write.Tag, Clean: true, MaxTS: m.Write.Tag.TS}
			var far *Endpoint
			ready := make(chan struct{})
			var near *Endpoint
			near, far = pair(b, [2]net.PacketConn{listenUDP(b), listenUDP(b)}, [2]func(Batch){
				func(got Batch) {
					for range got.Messages {
						tokens <- struct{}{}
					}
				},
				func(got Batch) {
					<-ready
					for range got.Messages {
						far.Send(register.SetOf(1), ack)
					}
				},
			}, nil)
			close(ready)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i >= outstanding {
					<-tokens
				}
				near.Send(register.SetOf(2), m)
			}
			for range min(outstanding, b.N) {
				<-tokens
			}
			b.StopTimer()
			st := near.Status().Peers[0]
			b.ReportMetric(float64(st.MessagesSent)/float64(st.BatchesSent), "messages/batch")
		})
	}
}
