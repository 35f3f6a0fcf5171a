//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"gus/agent/client"
	"gus/register"
)

// The streams of random numbers that are drawn from a seed.
const (
	streamRelay = iota + 1
	streamWorld
	streamDeck
	streamPlan
	streamLoad
	streamJudge
)

// world is a cluster of agents with what torments it.
type world struct {
	opts    options
	dir     string
	log     *slog.Logger // torture.log: faults and windows, with the agents' time
	watch   stopwatch
	relay   *relay
	sites   []*site
	small   int // the site whose disk is small; -1: none
	noSmall error
	quorum  int // voters that it takes to do anything

	window  int
	deck    deck
	carried *carried
	ledger  ledger
	odd     oddities
	report  report

	mu     sync.Mutex
	failed error // the first thing that went wrong
	cancel context.CancelFunc
}

// random returns the random numbers of one stream of the seed.
func (w *world) random(stream, n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.opts.seed, stream<<48|n))
}

// fail notes what went wrong and ends the run. The first caller counts.
func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.failed == nil {
		w.failed = err
		w.log.Error("failed", "err", err)
		w.cancel()
	}
}

func (w *world) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// newWorld builds the program and founds the cluster. Close ends it, also
// after an error.
func newWorld(opts options, dir string, cancel context.CancelFunc) (*world, error) {
	w := &world{
		opts: opts, dir: dir, cancel: cancel, small: -1,
		carried: &carried{}, ledger: ledger{}, odd: oddities{seen: map[string]int{}},
	}
	w.watch.began = time.Now()
	w.quorum = max(register.Quorums(opts.voters))
	log, err := os.Create(filepath.Join(dir, "torture.log"))
	if err != nil {
		return w, err
	}
	w.log = slog.New(slog.NewTextHandler(log, nil)) // the file is open until the harness ends
	program := filepath.Join(dir, "gus")
	build := exec.Command("go", "build", "-tags", "torture", "-o", program, "gus")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return w, fmt.Errorf("build gus: %w: %s", err, out)
	}
	if err := w.layOut(program); err != nil {
		return w, err
	}
	return w, w.found()
}

// layOut gives each site its places and connects them by the relay.
func (w *world) layOut(program string) error {
	var private []netip.AddrPort
	for range w.opts.voters {
		addr, err := freeAddress(private)
		if err != nil {
			return err
		}
		private = append(private, addr)
	}
	rng := w.random(streamWorld, 0)
	base := link{delay: time.Duration(rng.Int64N(int64(8 * time.Millisecond)))}
	base.jitter = base.delay / 4
	var err error
	if w.relay, err = newRelay(private, base, w.opts.seed); err != nil {
		return err
	}
	for i, addr := range private {
		s := &site{
			name: string(rune('a' + i)), dir: filepath.Join(w.dir, string(rune('a'+i))),
			listen: addr.String(), public: w.relay.address(i), program: program, fail: w.fail,
		}
		s.data, s.client = s.path("data"), client.New(s.path("s"))
		if i%2 == 1 {
			s.client = client.NewPipelined(s.path("s"))
		}
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			return err
		}
		w.sites = append(w.sites, s)
	}
	w.log.Info("sites", "voters", w.opts.voters, "seed", w.opts.seed, "delay", base.delay)
	return w.makeSmall(rng.IntN(w.opts.voters))
}

// smallDisk is the size of the one small disk: what hours need, and no more than a
// machine can spare when it is filled.
const smallDisk = 192 << 20

// makeSmall gives a site a small disk, where the system lets it.
func (w *world) makeSmall(i int) error {
	s := w.sites[i]
	if err := os.Mkdir(s.path("disk"), 0o700); err != nil {
		return err
	}
	if w.noSmall = mountSmall(s.path("disk"), smallDisk); w.noSmall == nil {
		w.small, s.data = i, s.path("disk/data")
	}
	return nil
}

// freeAddress returns a UDP address that nobody listens at, below the ports
// that the system hands out by itself: while an agent is down it stays free.
func freeAddress(taken []netip.AddrPort) (netip.AddrPort, error) {
	for range 1000 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(15000+rand.IntN(15000)))
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			continue
		}
		c.Close()
		for _, t := range taken {
			if t == addr {
				err = net.ErrClosed
			}
		}
		if err == nil {
			return addr, nil
		}
	}
	return netip.AddrPort{}, errors.New("there is no free UDP port")
}

// found makes the cluster as the README does: init, token, join.
func (w *world) found() error {
	var names []string
	for _, s := range w.sites {
		names = append(names, s.name)
	}
	first := w.sites[0]
	if _, err := first.run("init", "--name", first.name, "--voters", strings.Join(names, ",")); err != nil {
		return err
	}
	if err := first.start(); err != nil {
		return err
	}
	token, err := first.client.Token(context.Background(), 0)
	if err != nil {
		return fmt.Errorf("ask for a token: %w", err)
	}
	for _, s := range w.sites[1:] {
		if _, err := s.run("join", token.Token, "--name", s.name, "--listen", s.listen); err != nil {
			return err
		}
		if err := s.start(); err != nil {
			return err
		}
	}
	return w.number()
}

// number learns the voters' numbers.
func (w *world) number() error {
	st, err := w.sites[0].client.Status(context.Background())
	if err != nil {
		return fmt.Errorf("ask for the members: %w", err)
	}
	for _, m := range st.Members {
		for _, s := range w.sites {
			if s.name == m.Name {
				s.number = register.Voter(m.Number)
			}
		}
	}
	return nil
}

// close ends all agents, well, and the relay.
func (w *world) close() error {
	var errs []error
	for _, s := range w.sites {
		_ = s.signal(syscall.SIGCONT) // a frozen one would not end; one that is gone needs nothing
		errs = append(errs, s.stop(syscall.SIGTERM))
		s.client.Close()
	}
	if w.relay != nil {
		errs = append(errs, w.relay.close())
	}
	if w.small >= 0 {
		errs = append(errs, unmount(w.sites[w.small].path("disk")))
	}
	return errors.Join(errs...)
}

// caller returns one at site s.
func (w *world) caller(s *site) caller {
	return caller{watch: &w.watch, site: s.number, client: s.client, odd: &w.odd}
}
