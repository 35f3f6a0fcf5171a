package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"
	"go.uber.org/goleak"

	"gus/quic"
	"gus/register"
)

// memberlist lets its last probes run out by themselves, which nobody can wait
// for outside a bubble.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// world is a cluster in virtual time: gossip over the real endpoint over a
// simulated network. It lives in one synctest bubble.
type world struct {
	t    *testing.T
	dir  string
	ca   *quic.Authority
	conf Configuration
	ids  []*quic.Identity
	made int

	mu     sync.Mutex
	router simnet.PerfectRouter
	cut    func(from, to string) bool // by IP; nil cuts nothing
	names  map[string]string          // what the resolver knows
}

// inWorld runs f in a bubble with a cluster of voters of these names, none of
// which runs yet.
func inWorld(t *testing.T, f func(t *testing.T, w *world), names ...string) {
	dir := t.TempDir() // outside, since it is removed after the bubble
	synctest.Test(t, func(t *testing.T) {
		ca, ids, err := quic.MakeVoters(names...)
		if err != nil {
			t.Fatal(err)
		}
		var voters []Voter
		for _, id := range ids {
			voters = append(voters, Voter{id.Name, id.Number})
		}
		// Cleanups run in reverse: the sites have stopped, and memberlist's
		// last probes run out.
		t.Cleanup(func() { time.Sleep(2 * time.Minute) })
		f(t, &world{t: t, dir: dir, ca: ca, ids: ids, conf: New(ca.Cluster(), 1, voters...), names: map[string]string{}})
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

// part cuts the hosts of group off from all others.
func (w *world) part(group ...int) {
	in := map[string]bool{}
	for _, host := range group {
		in[addr(host).IP.String()] = true
	}
	w.cutOff(func(from, to string) bool { return in[from] != in[to] })
}

func (w *world) name(host, ip string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[host] = ip
}

func (w *world) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names[host] == "" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(w.names[host])}, nil
}

// addr is where a host is; those from 256 on have IPv6.
func addr(host int) *net.UDPAddr {
	if host > 255 {
		return &net.UDPAddr{IP: net.ParseIP(fmt.Sprintf("2001:db8::%x", host)), Port: 7487}
	}
	return &net.UDPAddr{IP: net.IPv4(1, 0, 0, byte(host)).To4(), Port: 7487}
}

// socket plugs a socket into the network. The function unplugs it.
func (w *world) socket(a *net.UDPAddr) (*simnet.SimConn, func()) {
	network := &simnet.Simnet{Router: w}
	conn := network.NewEndpoint(a, simnet.NodeBiDiLinkSettings{Latency: 20 * time.Millisecond})
	if err := network.Start(); err != nil {
		w.t.Fatal(err)
	}
	return conn, func() {
		if err := network.Close(); err != nil {
			w.t.Error(err)
		}
	}
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

// site is one running site.
type site struct {
	*Gossip
	w         *world
	id        *quic.Identity
	addr      *net.UDPAddr
	data      string
	log       *buffer
	endpoint  *quic.Endpoint
	admission *Admission // nil where there is no identity directory
	cancel    context.CancelFunc
	done      sync.WaitGroup
	unplug    func()
}

// start runs a site with the data directory of its name; change may alter its
// making.
func (w *world) start(id *quic.Identity, host int, change ...func(*Config, *quic.Config)) *site {
	w.t.Helper()
	w.made++
	s := &site{w: w, id: id, addr: addr(host), data: filepath.Join(w.dir, id.Name), log: new(buffer)}
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		w.t.Fatal(err)
	}
	conn, unplug := w.socket(s.addr)
	s.unplug = unplug
	log := slog.New(slog.NewTextHandler(s.log, nil))
	cfg := Config{Identity: id, Configuration: w.conf, Boot: uint64(w.made), Data: s.data, Listen: conn.LocalAddr(), Version: "v1", Log: log}
	q := quic.Config{
		Identity: id, Conn: conn, Configuration: 1, Boot: uint64(w.made), Log: log, Lookup: w.lookup,
		Deliver: func(context.Context, register.Voter, quic.Batch) {},
	}
	for _, f := range change {
		f(&cfg, &q)
	}
	g, err := NewGossip(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	s.Gossip = g
	q.Datagram, q.Changed, q.Twin = g.Datagram, g.Linked, g.Twin
	if q.Handlers == nil {
		q.Handlers = map[quic.Purpose]quic.Handler{}
	}
	q.Handlers[PurposeGossip] = g.Stream
	runs := []func(context.Context, *quic.Endpoint) error{g.Run}
	if dir := filepath.Join(s.data, IdentityDir); exists(dir) {
		if s.admission, err = NewAdmission(AdmissionConfig{Identity: id, Configuration: cfg.Configuration, Dir: dir, Gossip: g, Log: log}); err != nil {
			w.t.Fatal(err)
		}
		q.Join, q.Handlers[PurposeAdmission] = s.admission.Join, s.admission.Stream
		runs = append(runs, s.admission.Run)
	}
	if s.endpoint, err = quic.New(q); err != nil {
		w.t.Fatal(err)
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	runs = append(runs, func(ctx context.Context, e *quic.Endpoint) error { return e.Run(ctx) })
	for _, run := range runs {
		s.done.Go(func() {
			if err := run(ctx, s.endpoint); err != nil {
				w.t.Errorf("%s: %v", id.Name, err)
			}
		})
	}
	w.t.Cleanup(s.stop)
	return s
}

// stop ends s, once, with a word to its peers.
func (s *site) stop() {
	if s.unplug == nil {
		return
	}
	s.cancel()
	s.done.Wait()
	s.unplug()
	s.unplug = nil
	if s.w.t.Failed() {
		s.w.t.Logf("log of %s at %s:\n%s", s.id.Name, s.addr, s.log)
	}
}

// kill ends s as a crash does: nobody hears of it.
func (s *site) kill() {
	s.w.mu.Lock()
	before := s.w.cut
	s.w.mu.Unlock()
	s.w.cutOff(func(from, to string) bool {
		return from == s.addr.IP.String() || before != nil && before(from, to)
	})
	s.stop()
	s.w.cutOff(before)
}

func seeds(addrs ...string) func(*Config, *quic.Config) {
	return func(c *Config, _ *quic.Config) { c.Seeds = addrs }
}

// until waits in virtual time, for half an hour at most, until cond holds.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	for range 18_000 {
		synctest.Wait()
		if cond() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("does not happen: %s", what)
}

// sees says whether s has the site in that state.
func (s *site) sees(name string, state State) bool { return s.member(name).State == state }

func (s *site) member(name string) Member {
	for _, m := range s.Members() {
		if m.Name == name {
			return m
		}
	}
	return Member{}
}

// converged waits until all of the sites see each other alive, at their
// addresses.
func (w *world) converged(sites ...*site) {
	w.t.Helper()
	w.until("all see each other", func() bool {
		for _, s := range sites {
			for _, o := range sites {
				if m := s.member(o.id.Name); m.State != StateAlive || m.Address != o.addr.String() {
					return false
				}
			}
		}
		return true
	})
}

// startAll starts all voters, on hosts from first on, with the first one as the
// seed of the others.
func (w *world) startAll(first int) []*site {
	w.t.Helper()
	var sites []*site
	for i, id := range w.ids {
		sites = append(sites, w.start(id, first+i, seeds(addr(first).String())))
	}
	return sites
}

func identity(w *world, name string, n int) *quic.Identity {
	w.t.Helper()
	role := quic.RoleVoter
	if n == 0 {
		role = quic.RoleObserver
	}
	id, err := w.ca.NewIdentity(name, role, register.Voter(n))
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func mustContain(t *testing.T, what, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s does not say %q: %s", what, word, text)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var errNone = errors.New("no error")

func text(err error) string {
	if err == nil {
		err = errNone
	}
	return fmt.Sprint(err)
}

// anywhere is what a socket says that listens on all addresses.
var anywhere = &net.UDPAddr{IP: net.IPv6unspecified, Port: 7487}
