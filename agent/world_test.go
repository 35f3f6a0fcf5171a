package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
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

	"gus/agent/client"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(restoreVariable); what != "" { // backup_test.go
		beRestorer(what)
	}
	goleak.VerifyTestMain(m)
}

// world is a cluster in virtual time: agents with real databases and the real
// transport over a simulated network. Only the unix sockets are left out.
type world struct {
	t     *testing.T
	dir   string
	sites []*testSite

	mu     sync.Mutex
	router simnet.PerfectRouter
	cut    map[string]bool // sites that nobody reaches, by IP
	names  map[string][]netip.Addr
}

type testSite struct {
	*node
	w       *world
	name    string
	addr    *net.UDPAddr
	seeds   []string
	skew    time.Duration // of its clock
	disk    string        // its data are below; empty: below the world's directory
	saving  func()        // as in Config
	backups BackupPlan
	net     *simnet.Simnet
	cancel  context.CancelFunc
	done    chan error
}

// inWorld founds a cluster of these sites, starts them, and runs f once they
// are connected.
func inWorld(t *testing.T, names []string, f func(w *world)) {
	inEmptyWorld(t, names, func(w *world) {
		w.settle()
		f(w)
	})
}

// settle founds a cluster of all sites, starts them, and waits until they are connected.
func (w *world) settle() {
	w.t.Helper()
	var founders []Founder
	var seeds []string
	for _, s := range w.sites {
		founders = append(founders, Founder{Name: s.name, Data: s.data(), Observer: s.observes()})
		seeds = append(seeds, s.addr.String())
	}
	if err := Found(founders); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range w.sites {
		s.seeds = seeds
		s.start()
	}
	w.await(func() bool { return w.connected(w.voters()) })
}

// observes says whether the site has no vote: its name says so.
func (s *testSite) observes() bool { return strings.HasPrefix(s.name, "ob") }

// voters is how many of the sites are.
func (w *world) voters() (n int) {
	for _, s := range w.sites {
		if !s.observes() {
			n++
		}
	}
	return n
}

// inEmptyWorld runs f with sites that have no identity and do not run.
func inEmptyWorld(t *testing.T, names []string, f func(w *world)) {
	dir := t.TempDir() // outside, since it is removed after the bubble
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir, cut: map[string]bool{}, names: map[string][]netip.Addr{}}
		for i, name := range names {
			w.sites = append(w.sites, &testSite{w: w, name: name, addr: address(i + 1)})
		}
		defer func() {
			for _, s := range w.sites {
				s.kill()
			}
			time.Sleep(time.Minute) // gossip lets its last probes run out
		}()
		f(w)
	})
}

// address is the nth of the world.
func address(n int) *net.UDPAddr {
	return &net.UDPAddr{IP: net.IPv4(1, 0, 0, byte(n)).To4(), Port: 7487}
}

// lookup is the world's DNS.
func (w *world) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ips := w.names[host]; ips != nil {
		return ips, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// SendPacket implements simnet.Router. It holds the lock all the while, which
// nothing behind it waits for.
func (w *world) SendPacket(p simnet.Packet) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut[host(p.From)] || w.cut[host(p.To)] {
		return nil
	}
	return w.router.SendPacket(p)
}

// AddNode implements simnet.Router, for plug.
func (w *world) AddNode(addr net.Addr, r simnet.PacketReceiver) { w.router.AddNode(addr, r) }

// plug gives s a socket. No packet passes until it is ready.
func (w *world) plug(s *testSite) net.PacketConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.net = &simnet.Simnet{Router: w}
	conn := s.net.NewEndpoint(s.addr, simnet.NodeBiDiLinkSettings{Latency: 20 * time.Millisecond})
	if err := s.net.Start(); err != nil {
		w.t.Fatal(err)
	}
	return conn
}

func host(a net.Addr) string { return a.(*net.UDPAddr).IP.String() }

// cutOff lets nobody reach s any more, or again.
func (w *world) cutOff(s *testSite, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[s.addr.IP.String()] = cut
}

// await waits, in virtual time, until the condition holds.
func (w *world) await(condition func() bool) {
	w.t.Helper()
	for range 10_000 {
		if condition() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Fatal("what was waited for does not come")
}

// connected says whether all running sites vote and reach n voters.
func (w *world) connected(n int) bool {
	for _, s := range w.sites {
		if s.node == nil {
			continue
		}
		if st := s.status(); st.Quorum.Reached != n || !st.Voting.OK {
			return false
		}
	}
	return true
}

func (s *testSite) data() string {
	if s.disk != "" {
		return filepath.Join(s.disk, s.name)
	}
	return filepath.Join(s.w.dir, s.name)
}

func (s *testSite) open() (*node, error) {
	return open(Config{
		Data:    s.data(),
		Conn:    s.w.plug(s),
		Seeds:   s.seeds,
		lookup:  s.w.lookup,
		saving:  s.saving,
		Backups: s.backups,
		Logger:  slog.New(slog.NewTextHandler(s.w.t.Output(), nil)).With("at", s.name),
	})
}

func (s *testSite) start() {
	s.w.t.Helper()
	n, err := s.open()
	if err != nil {
		s.w.t.Fatal(err)
	}
	skew := s.skew
	n.clocks.now = func() time.Time { return time.Now().Add(skew) }
	n.loop.now = n.clocks.now
	ctx, cancel := context.WithCancel(s.w.t.Context())
	s.node, s.cancel, s.done = n, cancel, make(chan error, 1)
	go func() {
		s.done <- n.run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}()
}

// kill ends the site without a word to the others.
func (s *testSite) kill() {
	if s.node == nil {
		return
	}
	s.w.cutOff(s, true)
	s.cancel()
	if err := s.ended(); err != nil {
		s.w.t.Errorf("%s: %v", s.name, err)
	}
}

// ended waits until the site has ended, and returns what it ended with.
func (s *testSite) ended() error {
	err := <-s.done
	s.cancel()
	s.node = nil
	if err := s.net.Close(); err != nil {
		s.w.t.Error(err)
	}
	return err
}

func (s *testSite) restart() {
	s.w.cutOff(s, false)
	s.start()
}

// reply is what the local API answered.
type reply struct {
	status int
	body   string
	header map[string][]string
}

// err returns what the client would return.
func (r reply) err() error {
	if r.status < 300 {
		return nil
	}
	e := new(client.Error)
	if err := json.Unmarshal([]byte(r.body), e); err != nil {
		return err
	}
	return e
}

// ask sends one request to the local API. timeout is as in Gus-Timeout.
func (s *testSite) ask(ctx context.Context, method, target, timeout, body string) reply {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.Header.Set(client.HeaderTimeout, timeout)
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	return reply{w.Code, w.Body.String(), w.Header()}
}

func (s *testSite) set(key, value string) reply {
	return s.ask(s.w.t.Context(), "PUT", kvPath+key, "5s", value)
}

func (s *testSite) get(key string) reply {
	return s.ask(s.w.t.Context(), "GET", kvPath+key, "5s", "")
}

func (s *testSite) local(key string) reply {
	return s.ask(s.w.t.Context(), "GET", kvPath+key+"?local=true", "5s", "")
}

func (s *testSite) status() client.Status {
	r := s.ask(s.w.t.Context(), "GET", statusPath, "5s", "")
	var st client.Status
	if err := json.Unmarshal([]byte(r.body), &st); err != nil {
		s.w.t.Fatalf("status: %v in %q", err, r.body)
	}
	return st
}

// want checks that the reply is the value.
func (w *world) want(r reply, value string) {
	w.t.Helper()
	if r.err() != nil || r.body != value {
		w.t.Errorf("got %d %q, want 200 %q", r.status, r.body, value)
	}
}

// fails checks that the reply is that error, and that its message has the words.
func (w *world) fails(r reply, target error, words ...string) {
	w.t.Helper()
	if !errors.Is(r.err(), target) {
		w.t.Errorf("got %d %q, want %v", r.status, r.body, target)
	}
	for _, word := range words {
		if !strings.Contains(r.body, word) {
			w.t.Errorf("%q does not say %q", r.body, word)
		}
	}
}
