package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gus/agent"
	"gus/agent/client"
)

// demoSites are the demo's agents, in one process or each a process, and each with its own
// directory, sockets and identity: nothing else is shared.
type demoSites struct {
	program string // whose agent command each runs; empty: all are in this process
	rtts    rtts
	log     *slog.Logger
	sites   []*demoSite // the voters first
}

// demoSite is one of them.
type demoSite struct {
	name     string // "ca"
	observes bool   // it has no vote
	data     string
	addr     *net.UDPAddr
	client   *client.Client

	conn net.PacketConn     // nil while the site is down, and where it is a process
	pid  int                // 0 while it is down, and where it is none
	stop context.CancelFunc // nil while it is down
	done chan error         // gets what the agent's Run returned
}

// label is how tables name the site.
func (s *demoSite) label() string { return strings.ToUpper(s.name) }

func (s *demoSite) socket() string { return filepath.Join(s.data, "gus.sock") }

func (s *demoSite) up() bool { return s.conn != nil || s.pid != 0 }

// voters returns the sites that vote.
func (d *demoSites) voters() []*demoSite { return d.sites[:len(siteNames())] }

// openDemo founds a cluster in dir, or finds the one that is there, and starts
// its sites: the voters, and the observers of the given names. The caller closes it.
func openDemo(ctx context.Context, dir string, r rtts, log *slog.Logger, observers ...string) (*demoSites, error) {
	return openDemoOf(ctx, "", dir, r, log, observers...)
}

// openDemoOf is openDemo where each site is a process of the program, if that is not empty.
func openDemoOf(ctx context.Context, program, dir string, r rtts, log *slog.Logger, observers ...string) (*demoSites, error) {
	d := &demoSites{program: program, rtts: r, log: log}
	var founders []agent.Founder
	for i, name := range slices.Concat(siteNames(), observers) {
		data := filepath.Join(dir, name)
		s := &demoSite{name: name, data: data, observes: i >= len(siteNames())}
		s.client = client.NewPipelined(s.socket())
		d.sites = append(d.sites, s)
		founders = append(founders, agent.Founder{Name: name, Data: data, Observer: s.observes})
	}
	if err := agent.Found(founders); err != nil {
		return nil, err
	}
	var conns []*net.UDPConn
	for _, s := range d.sites {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a UDP socket: %w", err), d.close())
		}
		conns = append(conns, c)
		s.addr = c.LocalAddr().(*net.UDPAddr)
	}
	for i, s := range d.sites {
		if err := d.start(ctx, s, conns[i]); err != nil {
			for _, c := range conns[i+1:] {
				c.Close()
			}
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

// restart starts a site that was killed, at the address where it was.
func (d *demoSites) restart(ctx context.Context, s *demoSite) error {
	c, err := net.ListenUDP("udp4", s.addr)
	if err != nil {
		return fmt.Errorf("open a UDP socket: %w", err)
	}
	return d.start(ctx, s, c)
}

// start runs the site's agent on c and waits until it answers.
func (d *demoSites) start(ctx context.Context, s *demoSite, c *net.UDPConn) error {
	if d.program != "" {
		c.Close() // the agent opens it again
		return d.startProcess(ctx, s)
	}
	s.conn = d.distant(s, c)
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx)) // it stops when close says so
	s.done = make(chan error, 1)
	ready := make(chan struct{})
	cfg := agent.Config{
		Data:    s.data,
		Socket:  s.socket(),
		Conn:    s.conn,
		Seeds:   d.others(s),
		Version: programVersion(),
		Logger:  d.log.With("site", s.name),
		Ready:   func() { close(ready) },
	}
	go func() { s.done <- agent.Run(ctx, cfg) }()
	select {
	case <-ready:
		return nil
	case err := <-s.done:
		s.stop()
		s.conn = nil
		return fmt.Errorf("start site %s: %w", s.name, err)
	}
}

// others returns the addresses of the other voters.
func (d *demoSites) others(s *demoSite) []string {
	var addrs []string
	for _, o := range d.voters() {
		if o != s {
			addrs = append(addrs, o.addr.String())
		}
	}
	return addrs
}

// distant puts the distances to the other sites behind c: half a round trip
// each way. Without distances it is the bare socket.
func (d *demoSites) distant(s *demoSite, c *net.UDPConn) net.PacketConn {
	if len(d.rtts) == 0 {
		return c
	}
	delays := map[netip.AddrPort]time.Duration{}
	for _, o := range d.sites {
		if o != s {
			delays[o.addr.AddrPort()] = d.rtts.between(s.name, o.name) / 2
		}
	}
	return newDelayed(c, delays)
}

// kill stops a site's agent without warning: its socket is closed before it
// learns of anything, so that it cannot say good-bye to anybody.
func (d *demoSites) kill(s *demoSite) {
	s.conn.Close()
	s.stop()
	<-s.done // it lost its socket: an error is what must come
	s.conn = nil
	s.client.Close()
}

// close stops all and returns what they failed with.
func (d *demoSites) close() error {
	var errs []error
	for _, s := range d.sites {
		if s.up() {
			s.stop()
		}
	}
	for _, s := range d.sites {
		if s.up() {
			errs = append(errs, <-s.done)
			s.conn, s.pid = nil, 0
		}
		s.client.Close()
	}
	return errors.Join(errs...)
}

// find returns the site of that name, in upper or lower case.
func (d *demoSites) find(name string) (*demoSite, error) {
	i := slices.IndexFunc(d.sites, func(s *demoSite) bool { return strings.EqualFold(s.name, name) })
	if i < 0 {
		var names []string
		for _, s := range d.sites {
			names = append(names, s.name)
		}
		return nil, usage("there is no site %q: there are %s", name, strings.Join(names, ", "))
	}
	return d.sites[i], nil
}

// await waits until all voters that are up are connected to each other, and an observer
// has a copy of all that they know.
func (d *demoSites) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		ok, err := d.connected(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the sites to connect: %w", ctx.Err())
		case <-poll.C:
		}
	}
}

func (d *demoSites) connected(ctx context.Context) (bool, error) {
	up := 0
	for _, s := range d.voters() {
		if s.up() {
			up++
		}
	}
	for _, s := range d.sites {
		if !s.up() {
			continue
		}
		st, err := s.client.Status(ctx)
		if err != nil {
			return false, fmt.Errorf("site %s: %w", s.name, err)
		}
		ready := st.Quorum.Reached >= up && st.Voting.OK
		if s.observes {
			ready = st.Following != nil && st.Following.Complete
		}
		if !ready {
			return false, nil
		}
	}
	return true, nil
}

// quorumRTT is the round-trip time from s to its nearest quorum, by the
// distances: with three voters, to the nearest other that is up. An observer's is that to the
// nearest voter, and from there.
func (d *demoSites) quorumRTT(s *demoSite) time.Duration {
	var nearest *demoSite
	for _, o := range d.voters() {
		if o != s && o.up() && (nearest == nil || d.rtts.between(s.name, o.name) < d.rtts.between(s.name, nearest.name)) {
			nearest = o
		}
	}
	switch {
	case nearest == nil:
		return 0
	case s.observes:
		return d.rtts.between(s.name, nearest.name) + d.quorumRTT(nearest)
	}
	return d.rtts.between(s.name, nearest.name)
}

// demoDir makes the directory for the sites: dir, or a temporary one that
// remove removes.
func demoDir(dir string) (path string, remove func() error, err error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", nil, fmt.Errorf("make the demo's directory: %w", err)
		}
		path, err := filepath.Abs(dir)
		return path, func() error { return nil }, err
	}
	path, err = os.MkdirTemp("", "gus-demo-")
	if err != nil {
		return "", nil, fmt.Errorf("make the demo's directory: %w", err)
	}
	return path, func() error { return os.RemoveAll(path) }, nil
}
