package quic

import (
	"cmp"
	"net"
	"slices"
	"time"

	"gus/register"
)

// Counters count what happened with a peer since the endpoint began.
type Counters struct {
	MessagesSent     uint64
	MessagesReceived uint64
	MessagesDropped  uint64 // the queue was full, or the batch was lost with its connection
	MessagesUnsent   uint64 // there was no connection to send them on

	BatchesSent        uint64
	BatchesReceived    uint64
	BatchBytesSent     uint64
	BatchBytesReceived uint64

	DatagramsSent     uint64
	DatagramsReceived uint64
	DatagramsDropped  uint64 // a newer one took their place, or they could not go out

	StreamsServed uint64
	Refused       uint64 // incoming batches and streams that were not acceptable
}

// PeerStatus is what is known of one peer. The counters run since New.
type PeerStatus struct {
	Name      string
	Role      Role
	Number    register.Voter // 0 for an observer
	Addr      string         // where it is dialled, "" where unknown
	Connected bool
	Register  bool      // connected, and register messages go out
	Since     time.Time // when it was connected, or lost, or made known
	Heard     time.Time // when something last arrived over this connection, keep-alives aside; zero without one
	Failure   string    // why the last dial failed, "" where it did not

	// Of the connection; zero without one.
	Remote    string
	Observed  string // where the peer sees this site, IP:PORT, "" where it did not say
	Dialled   bool   // by this site
	Boot      uint64
	RTT       time.Duration // smoothed
	MinRTT    time.Duration
	BytesSent uint64 // over UDP, payloads
	BytesRead uint64
	Lost      uint64 // packets

	QueuedMessages  int
	QueuedBytes     int // of messages
	QueuedDatagrams int

	Counters
}

// Status is what is known of an endpoint.
type Status struct {
	Addr          net.Addr
	ReceiveBuffer int // of the socket in bytes, as the kernel counts; 0 where that is not known
	SendBuffer    int
	Peers         []PeerStatus // by name
}

// WantedBuffer is the size of socket buffer that quic-go asks for, in bytes;
// with much less, bursts are lost.
const WantedBuffer = 7 << 20

// Status returns what is known now.
func (e *Endpoint) Status() Status {
	s := Status{Addr: e.cfg.Conn.LocalAddr()}
	s.ReceiveBuffer, s.SendBuffer = bufferSizes(e.cfg.Conn)
	e.mu.Lock()
	peers := make([]*peer, 0, len(e.peers))
	for _, p := range e.peers {
		peers = append(peers, p)
	}
	e.mu.Unlock()
	for _, p := range peers {
		s.Peers = append(s.Peers, p.status())
	}
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

func (p *peer) status() PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PeerStatus{
		Name: p.site.Name, Role: p.site.Role, Number: p.site.Number,
		Addr: p.addr, Since: p.since, Failure: p.failure,
		QueuedMessages: len(p.box.ends), QueuedBytes: len(p.box.data), QueuedDatagrams: len(p.gossip.packets),
		Counters: p.stats,
	}
	if c := p.cur; c != nil {
		q := c.qc.ConnectionStats()
		s.Connected, s.Register, s.Dialled, s.Boot = true, c.register, c.dialled, c.boot
		s.Remote, s.Heard = c.qc.RemoteAddr().String(), time.Unix(0, c.heard.Load())
		s.Observed = c.observed
		s.RTT, s.MinRTT = q.SmoothedRTT, q.MinRTT
		s.BytesSent, s.BytesRead, s.Lost = q.BytesSent, q.BytesReceived, q.PacketsLost
	}
	return s
}
