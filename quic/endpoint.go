package quic

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"gus/register"
)

// MaxDatagram is the size of the largest gossip packet in bytes: it fits
// where the path takes UDP payloads of 1,200 bytes.
const MaxDatagram = 1100

// ErrUnknownPeer is returned for a site that neither SetPeer nor a connection
// has made known.
var ErrUnknownPeer = errors.New("unknown peer")

// maxHellos is how many incoming connections may be saying hello at once.
const maxHellos = 32

// Config is what an Endpoint is made of. All fields without another word are
// required. The functions are called from several goroutines at the same time
// and must not call Close.
type Config struct {
	Identity *Identity
	// Conn is the socket; the endpoint owns it from New on. Best is a bare
	// *net.UDPConn: around it, quic-go can batch.
	Conn          net.PacketConn
	Configuration uint64 // the number of the configuration in force
	Boot          uint64 // raised durably at each start; not 0
	Log           *slog.Logger

	// Deliver is given each batch of a voter, from the voter that its
	// certificate names, in any order. It may block: then the sender is read
	// no further, and its queue fills. It returns when ctx ends. An observer
	// needs none.
	Deliver func(ctx context.Context, from register.Voter, b Batch)
	// Peer is told when messages for a voter can go out, and when no more: up
	// again after a connection has replaced another. A call follows the one
	// before it for the same voter. At an observer, which has no messages for
	// anybody, it is told when a voter is connected. Optional.
	Peer func(v register.Voter, up bool)
	// Datagram is given each gossip packet, which it may keep. It holds up
	// the sender's next one, not other sites'. Optional.
	Datagram func(from Site, packet []byte)
	// Handlers serve the bidirectional streams, by purpose; purpose 0 is the
	// endpoint's own. Optional.
	Handlers map[Purpose]Handler
	// Changed is told that connections came or went, with peers of any role;
	// Status says which. It must not block. Optional.
	Changed func()
	// Twin is told that two processes run under one identity, this site's own
	// or a peer's; at is where the one was seen that this is told of. It may
	// be told again and again. It must not block. Optional.
	Twin func(site Site, at net.Addr)
	// Join answers a machine that asks to become a site (JoinALPN). Nothing is
	// known of it. It returns when ctx ends. Optional: without it nobody can
	// ask here.
	Join func(ctx context.Context, r JoinRequest) []byte
	// Lookup finds the addresses of a host's name. Optional: nil asks the
	// system.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Validate says what is wrong with c, if anything.
func (c Config) Validate() error {
	switch {
	case c.Identity == nil || c.Conn == nil || c.Log == nil:
		return errors.New("an endpoint needs an identity, a socket and a log")
	case c.Boot == 0:
		return errors.New("boot is 0: it must be raised at each start")
	case c.Identity.Role == RoleVoter && c.Deliver == nil:
		return errors.New("a voter's endpoint needs somebody to deliver to")
	case c.Handlers[purposeHello] != nil:
		return fmt.Errorf("purpose %d is the endpoint's own", purposeHello)
	}
	return nil
}

// Endpoint is a site's one socket, and over it its connections with all other
// sites. All methods may be called by several goroutines at the same time.
type Endpoint struct {
	cfg       Config
	id        *Identity
	log       *slog.Logger
	limited   *limitedLog
	transport *quicgo.Transport
	tls       *tls.Config
	instance  uint64 // random, not 0
	attempts  atomic.Uint64
	progress  atomic.Pointer[[]register.Progress]
	buffers   sync.Pool // of *bytes.Buffer, for incoming batches
	scratch   sync.Pool // of *[]byte, for outgoing messages

	mu      sync.Mutex
	peers   map[string]*peer // by site name
	voters  [register.MaxVoter + 1]*peer
	dialled map[*peer]bool // that keepConnected runs for, or soon will
	pending []*peer        // that it is still to be started for
	running bool
	closed  bool

	starts chan struct{} // holds a token while pending is not empty
	met    chan *conn    // connections that Meet has made, for Run to serve
	stop   chan struct{} // closed with closed
	done   chan struct{} // closed when Run has returned
	wg     sync.WaitGroup
}

// New returns an endpoint that Run will run.
//
// It sets QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING for the process: quic-go
// reports a small socket buffer through the standard log, once and in its own
// words; Status has the sizes instead.
func New(cfg Config) (*Endpoint, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	reset, err := resetKey(cfg.Identity)
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true"); err != nil {
		return nil, fmt.Errorf("silence the buffer warning: %w", err)
	}
	e := &Endpoint{
		cfg: cfg, id: cfg.Identity, log: cfg.Log, limited: &limitedLog{log: cfg.Log, written: make(map[string]lines)},
		transport: &quicgo.Transport{Conn: cfg.Conn, StatelessResetKey: reset},
		buffers:   sync.Pool{New: func() any { return new(bytes.Buffer) }},
		scratch:   sync.Pool{New: func() any { return new([]byte) }},
		peers:     make(map[string]*peer), dialled: make(map[*peer]bool),
		starts: make(chan struct{}, 1), met: make(chan *conn), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if e.instance, err = newInstance(); err != nil {
		return nil, err
	}
	e.tls = tlsConfig(cfg.Identity, cfg.Join != nil, func(from net.Addr, err error) {
		e.limited.warn("refused a connection", "from", from, "err", err)
	})
	return e, nil
}

func newInstance() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("draw an instance number: %w", err)
	}
	return binary.BigEndian.Uint64(b[:]) | 1, nil
}

// Windows: one stream's is above the largest batch of several messages, so
// that a batch never waits for a round trip of flow control; a connection's
// has room for several. They bound what a peer can make this site hold
// unread, and cost nothing while nothing waits.
const (
	streamWindow  = batchFill + 64<<10
	connWindow    = 4 << 20
	maxConnWindow = 16 << 20
)

func quicConfig() *quicgo.Config {
	return &quicgo.Config{
		HandshakeIdleTimeout:           helloTimeout,
		MaxIdleTimeout:                 15 * time.Second, // after so long a killed process is noticed
		KeepAlivePeriod:                5 * time.Second,  // NAT forgets from 30 s on; two may be lost
		InitialPacketSize:              1200,             // what every path must carry; probes find more
		InitialStreamReceiveWindow:     streamWindow,
		MaxStreamReceiveWindow:         maxBatch + 1,
		InitialConnectionReceiveWindow: connWindow,
		MaxConnectionReceiveWindow:     maxConnWindow,
		MaxIncomingUniStreams:          128, // those that stay open, and large batches under way
		MaxIncomingStreams:             maxServing,
		EnableDatagrams:                true,
	}
}

// SetPeer makes a site known: its name, its voter's number (0 for an
// observer), and its address host:port ("" where unknown: then only the site
// itself can connect). An address is a hint: it may change at any time, names
// are resolved at each dial, and who answers there must prove to be that site.
func (e *Endpoint) SetPeer(name string, number register.Voter, addr string) error {
	site := Site{Cluster: e.id.Cluster, Name: name, Role: RoleVoter, Number: number}
	if number == 0 {
		site.Role = RoleObserver
	}
	if err := site.Validate(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	p, err := e.peerOf(site)
	if err != nil {
		return err
	}
	p.setAddr(addr)
	if addr != "" && !e.dialled[p] {
		e.dialled[p] = true
		e.pending = append(e.pending, p)
		wake(e.starts)
	}
	return nil
}

// SetProgress notes how far each voter is known to have come, which each batch
// that is made up from now on tells its receivers. It comes before the Send of messages that rest on
// it. e keeps progress, which has at most register.MaxVoters elements and does not change any more.
func (e *Endpoint) SetProgress(progress []register.Progress) { e.progress.Store(&progress) }

// Send queues m for the voters in to; it implements register.Transport. For a
// voter that is not connected, or whose queue is full (16,384 messages or
// 16 MiB), m is dropped and counted.
func (e *Endpoint) Send(to register.Set, m register.Message) {
	buf := e.scratch.Get().(*[]byte)
	defer e.scratch.Put(buf)
	encoded := (*buf)[:0]
	for v := range to.All {
		p := e.voter(v)
		if p == nil {
			continue
		}
		if len(encoded) == 0 {
			var err error
			if encoded, err = appendMessage(encoded, m); err != nil {
				// The core keeps its messages within the limits.
				panic(err)
			}
		}
		p.send(encoded)
	}
	if cap(encoded) <= keepBuffer {
		*buf = encoded
	}
}

func (e *Endpoint) voter(v register.Voter) *peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	return e.voters[v]
}

// SendDatagram queues a gossip packet of at most MaxDatagram bytes for the
// site. It does not block and keeps packet. Packets wait while there is no
// connection; where 64 wait already, the oldest is dropped and counted.
func (e *Endpoint) SendDatagram(to string, packet []byte) error {
	if len(packet) > MaxDatagram {
		return fmt.Errorf("send a gossip packet: %d bytes, the limit is %d", len(packet), MaxDatagram)
	}
	p, err := e.peer(to)
	if err != nil {
		return fmt.Errorf("send a gossip packet to %s: %w", to, err)
	}
	p.sendDatagram(packet)
	return nil
}

// OpenStream opens a stream to the site for the purpose, and waits for a
// connection until ctx ends.
func (e *Endpoint) OpenStream(ctx context.Context, to string, purpose Purpose) (*Stream, error) {
	if purpose == purposeHello {
		return nil, fmt.Errorf("purpose %d is the endpoint's own", purposeHello)
	}
	p, err := e.peer(to)
	if err != nil {
		return nil, fmt.Errorf("open a stream to %s: %w", to, err)
	}
	for {
		c, up := p.current()
		if c != nil {
			return c.open(ctx, purpose)
		}
		select {
		case <-up:
		case <-e.stop:
			return nil, fmt.Errorf("open a stream to %s: %w", to, net.ErrClosed)
		case <-ctx.Done():
			return nil, fmt.Errorf("open a stream to %s: not connected: %w", to, ctx.Err())
		}
	}
}

func (e *Endpoint) peer(name string) (*peer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, net.ErrClosed
	}
	p := e.peers[name]
	if p == nil {
		return nil, ErrUnknownPeer
	}
	return p, nil
}
