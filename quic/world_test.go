package quic

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"
	"go.uber.org/goleak"

	"gus/register"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a simulated network in virtual time: the real stack over
// quic-go's simnet. It lives in one synctest bubble.
type world struct {
	t      *testing.T
	router simnet.PerfectRouter
	ca     *Authority
	ids    []*Identity

	strangers int // that have dialled somebody

	mu  sync.Mutex
	cut func(from, to string) bool // by IP; nil cuts nothing
}

// inWorld runs f in a bubble with a cluster of voters of these names.
func inWorld(t *testing.T, f func(t *testing.T, w *world), names ...string) {
	synctest.Test(t, func(t *testing.T) {
		ca, ids, err := MakeVoters(names...)
		if err != nil {
			t.Fatal(err)
		}
		f(t, &world{t: t, ca: ca, ids: ids})
	})
}

// SendPacket implements simnet.Router.
func (w *world) SendPacket(p simnet.Packet) error {
	w.mu.Lock()
	cut := w.cut != nil && w.cut(p.From.(*net.UDPAddr).IP.String(), p.To.(*net.UDPAddr).IP.String())
	w.mu.Unlock()
	if cut {
		return nil
	}
	return w.router.SendPacket(p)
}

// AddNode implements simnet.Router.
func (w *world) AddNode(addr net.Addr, r simnet.PacketReceiver) { w.router.AddNode(addr, r) }

// cutOff cuts what f says, from now on.
func (w *world) cutOff(f func(from, to string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = f
}

func addr(host int) *net.UDPAddr {
	return &net.UDPAddr{IP: net.IPv4(1, 0, 0, byte(host)).To4(), Port: 7487}
}

// socket plugs a socket into the network; half a round trip to it takes
// latency. The function unplugs it.
func (w *world) socket(a *net.UDPAddr, latency time.Duration) (*simnet.SimConn, func()) {
	net := &simnet.Simnet{Router: w}
	conn := net.NewEndpoint(a, simnet.NodeBiDiLinkSettings{Latency: latency})
	if err := net.Start(); err != nil {
		w.t.Fatal(err)
	}
	return conn, func() {
		if err := net.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// site is one running endpoint and what it was told.
type site struct {
	*Endpoint
	w      *world
	id     *Identity
	addr   *net.UDPAddr
	log    *buffer
	unplug func()
	runErr chan error

	mu      sync.Mutex
	got     []string                               // "from:key", in order of arrival
	packets []string                               // "from:packet"
	events  []string                               // "+2", "-2"
	heard   map[register.Voter][]register.Progress // what each voter's last batch said
	blocked chan struct{}                          // Deliver waits until it is closed; nil waits for nothing
}

// buffer is a log to look into.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs an endpoint for id at a until the test is over; change may alter
// its making.
func (w *world) start(id *Identity, a *net.UDPAddr, boot uint64, change ...func(*site, *Config)) *site {
	w.t.Helper()
	conn, unplug := w.socket(a, 5*time.Millisecond)
	s := &site{w: w, id: id, addr: a, unplug: unplug, log: new(buffer),
		runErr: make(chan error, 1), heard: make(map[register.Voter][]register.Progress)}
	cfg := Config{
		Identity: id, Conn: conn, Configuration: 1, Boot: boot,
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Deliver: s.deliver,
		Peer: s.peerChanged, Datagram: s.datagram,
	}
	for _, f := range change {
		f(s, &cfg)
	}
	var err error
	if s.Endpoint, err = New(cfg); err != nil {
		w.t.Fatal(err)
	}
	go func() { s.runErr <- s.Run(context.Background()) }()
	w.t.Cleanup(s.stop)
	synctest.Wait()
	return s
}

// stop closes s, once, which must have run well.
func (s *site) stop() {
	s.w.t.Helper()
	if s.unplug == nil {
		return
	}
	if err := s.Close(); err != nil {
		s.w.t.Errorf("close: %v", err)
	}
	s.unplug()
	s.unplug = nil
	if err := <-s.runErr; err != nil {
		s.w.t.Errorf("run: %v", err)
	}
	if s.w.t.Failed() {
		s.w.t.Logf("log of %s at %s:\n%s", s.id.Name, s.addr, s.log)
	}
}

// kill ends s as a crash does: nobody hears of it.
func (s *site) kill() {
	s.w.t.Helper()
	before := s.w.cut
	s.w.cutOff(func(from, to string) bool {
		return from == s.addr.IP.String() || before != nil && before(from, to)
	})
	s.stop()
	s.w.cutOff(before)
}

func (s *site) deliver(ctx context.Context, from register.Voter, b Batch) {
	s.mu.Lock()
	blocked := s.blocked
	s.mu.Unlock()
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range b.Messages {
		s.got = append(s.got, fmt.Sprintf("%d:%s", from, m.Register()))
	}
	s.heard[from] = b.Progress
}

func (s *site) datagram(from Site, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packets = append(s.packets, from.Name+":"+string(p))
}

func (s *site) peerChanged(v register.Voter, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%c%d", map[bool]rune{true: '+', false: '-'}[up], v))
}

// received says how often a message about key came from v.
func (s *site) received(v register.Voter, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, g := range s.got {
		if g == fmt.Sprintf("%d:%s", v, key) {
			n++
		}
	}
	return n
}

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

func (s *site) history() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.events...)
}

// peerStatus returns what s knows of the peer.
func (s *site) peerStatus(name string) PeerStatus {
	for _, p := range s.Status().Peers {
		if p.Name == name {
			return p
		}
	}
	return PeerStatus{}
}

// knows makes others known to s by their addresses.
func (s *site) knows(others ...*site) {
	s.w.t.Helper()
	for _, o := range others {
		if err := s.SetPeer(o.id.Name, o.id.Number, o.addr.String()); err != nil {
			s.w.t.Fatal(err)
		}
	}
}

// until waits in virtual time until cond holds.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	for range 20_000 {
		synctest.Wait()
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("not within minutes: %s", what)
}

// connected waits until all of the sites are connected with each other.
func (w *world) connected(sites ...*site) {
	w.t.Helper()
	w.until("all connected", func() bool {
		for _, s := range sites {
			for _, o := range sites {
				if s != o && !s.Connected().Has(o.id.Number) {
					return false
				}
			}
		}
		return true
	})
}

// three starts three voters that know each other, and waits until all are
// connected.
func (w *world) three() []*site {
	w.t.Helper()
	sites := make([]*site, 3)
	for i, id := range w.ids {
		sites[i] = w.start(id, addr(i+1), 1)
	}
	for _, s := range sites {
		for _, o := range sites {
			if s != o {
				s.knows(o)
			}
		}
	}
	w.connected(sites...)
	return sites
}

func need(key string) register.Message {
	return &register.MsgNeed{Key: key, Tag: register.Tag{TS: 7, Owner: 2}}
}
