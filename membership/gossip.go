package membership

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"gus/quic"
)

// maxMembers is how many sites gossip may name.
const maxMembers = 1024

// maxSeeds is how many seeds a site may have.
const maxSeeds = 32

// Config is what a Gossip is made of. What has no other word is required.
type Config struct {
	Identity      *quic.Identity
	Configuration Configuration
	Boot          uint64 // as the endpoint has it
	// Data is the data directory; the sites that were seen are remembered
	// there, in peers.json.
	Data string
	// Seeds are addresses HOST:PORT at which some site of the cluster may be,
	// this one too. Names are looked up at each try, and need not be known
	// yet. Optional.
	Seeds []string
	// Advertise is the address HOST:PORT at which others reach this site.
	// Optional: without it Listen is told, and where that names no address, what the
	// others say they see.
	Advertise string
	// Listen is the address of the endpoint's socket.
	Listen net.Addr
	// Version is the program's, for others to see: at most 64 bytes.
	// Optional.
	Version string
	Log     *slog.Logger
	// Changed is told that Members or Conflicts may have news. It must not block.
	// Optional.
	Changed func()
}

// Validate says what is wrong with c, if anything.
func (c Config) Validate() error {
	if c.Identity == nil || c.Data == "" || c.Log == nil || c.Listen == nil || c.Boot == 0 {
		return errors.New("gossip needs an identity, a boot, a data directory, the socket's address and a log")
	}
	if len(c.Seeds) > maxSeeds {
		return fmt.Errorf("%d seeds, the limit is %d", len(c.Seeds), maxSeeds)
	}
	for _, s := range c.Seeds {
		if err := checkAddress(s); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	if c.Advertise != "" {
		if err := checkAddress(c.Advertise); err != nil {
			return fmt.Errorf("advertise: %w", err)
		}
	}
	if len(c.Version) > maxVersion {
		return fmt.Errorf("a version of %d bytes, the limit is %d", len(c.Version), maxVersion)
	}
	return c.Configuration.Validate()
}

// Gossip is a site's part in the gossip of its cluster: it knows who is there
// and where, and tells its endpoint. All methods may be called by several
// goroutines at the same time, before, during and after Run.
type Gossip struct {
	cfg       Config
	log       *slog.Logger
	transport *transport
	news      chan struct{} // holds a token while there is something to tend to
	joins     chan struct{} // holds a token while somebody may be there to gossip with

	mu        sync.Mutex
	closed    bool
	members   map[string]*member // by name, without this site
	self      meta
	started   time.Time
	conflicts map[string]*conflict       // by name
	notices   map[string]string          // of conflicts, to be sent: address by name
	opinions  map[string]map[string]bool // at an observer: which voters those that are connected hear of
	endpoint  *quic.Endpoint             // nil before Run
	refusals  seldom
}

// NewGossip returns a Gossip that remembers who was seen before. A memory that cannot
// be read is left out, with a line in the log.
func NewGossip(cfg Config) (*Gossip, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	g := &Gossip{
		cfg: cfg, log: cfg.Log,
		news: make(chan struct{}, 1), joins: make(chan struct{}, 1),
		members: make(map[string]*member), started: time.Now(),
		conflicts: make(map[string]*conflict), notices: make(map[string]string), opinions: make(map[string]map[string]bool),
	}
	g.transport = newTransport(g.refuse)
	g.self = meta{
		Number: cfg.Identity.Number, Configuration: cfg.Configuration.Number,
		Version: cfg.Version, Boot: cfg.Boot, Address: ownAddress(cfg.Advertise, cfg.Listen, "", nil),
	}
	for _, v := range cfg.Configuration.Voters {
		if v.Name != cfg.Identity.Name {
			g.members[v.Name] = &member{name: v.Name, number: v.Number, since: g.started}
		}
	}
	peers, err := loadPeers(cfg.Data)
	if err != nil {
		g.log.Warn("cannot remember where other sites were", "err", err)
	}
	for _, p := range peers {
		g.remember(p)
	}
	return g, nil
}

// remember takes in what was known of a site when this one stopped.
func (g *Gossip) remember(p Peer) {
	m := g.members[p.Name]
	if m == nil || m.number != p.Number {
		return // the configuration has changed since
	}
	m.address, m.seen = p.Address, true
}

// Datagram takes a gossip packet: for quic.Config.Datagram.
func (g *Gossip) Datagram(from quic.Site, packet []byte) {
	if !g.gossips(from.Role) {
		g.refuse(from.Name, errNotVoters)
		return
	}
	g.transport.datagram(from, packet)
}

// Stream takes a stream of PurposeGossip: for quic.Config.Handlers.
func (g *Gossip) Stream(ctx context.Context, from quic.Site, s *quic.Stream) {
	switch {
	case g.gossips(from.Role):
		g.transport.stream(ctx, from, s)
	case from.Role == quic.RoleObserver:
		g.inform(from, s)
	default: // nobody asks an observer
		g.refuse(from.Name, errNotVoters)
	}
}

var errNotVoters = errors.New("only voters gossip, with each other")

// gossips says whether this site gossips with sites of the role.
func (g *Gossip) gossips(with quic.Role) bool {
	return g.cfg.Identity.Role == quic.RoleVoter && with == quic.RoleVoter
}

// Linked is told that connections came or went: for quic.Config.Changed.
func (g *Gossip) Linked() {
	wake(g.news)
	wake(g.joins)
}

// wake puts a token into c unless one is there.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run gossips over e, whose Run is to be running, until ctx ends, and then
// returns nil. It is called once. Stopping is not leaving: the others see this
// site as dead after a while, and alive when it is back.
//
// memberlist lets its last probes run out by themselves, for up to 40 s after
// Run; they find everything closed.
func (g *Gossip) Run(ctx context.Context, e *quic.Endpoint) error {
	g.mu.Lock()
	g.endpoint = e
	g.mu.Unlock()
	g.introduce(e)
	if g.cfg.Identity.Role == quic.RoleObserver {
		g.observe(ctx, e)
		g.end()
		return nil
	}
	g.transport.open(e)
	list, err := memberlist.Create(g.listConfig())
	if err != nil {
		return errors.Join(fmt.Errorf("begin to gossip: %w", err), g.transport.Shutdown())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, f := range []func(){
		func() { g.tend(ctx, e, list) },
		func() { g.rejoin(ctx, list) },
		func() { g.seek(ctx, e) },
	} {
		wg.Go(f)
	}
	<-ctx.Done()
	wg.Wait()
	g.end()
	if err := list.Shutdown(); err != nil {
		return fmt.Errorf("end gossip: %w", err)
	}
	return nil
}

// end has what still comes change nothing.
func (g *Gossip) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// listConfig is memberlist's configuration: its numbers for wide-area networks.
// With them a site that was killed counts as dead after about a minute.
func (g *Gossip) listConfig() *memberlist.Config {
	c := memberlist.DefaultWANConfig()
	c.Name = g.cfg.Identity.Name
	c.Label = g.cfg.Identity.Cluster.String()
	c.Transport = g.transport
	c.RequireNodeNames = true
	c.EnableCompression = false                                   // descriptions do not shrink, and there are bombs
	c.GossipVerifyIncoming, c.GossipVerifyOutgoing = false, false // QUIC encrypts
	c.UDPBufferSize = quic.MaxDatagram - 16                       // it leaves out a checksum
	c.DeadNodeReclaimTime = 30 * time.Second
	c.Delegate, c.Events, c.Alive = (*delegate)(g), (*events)(g), (*events)(g)
	c.LogOutput, c.Logger = nil, log.New(newBridge(g.log), "", 0)
	c.DNSConfigPath = "" // it is given no names to look up
	return c
}

// introduce tells the endpoint of the voters. Observers dial, and are dialled by nobody.
func (g *Gossip) introduce(e *quic.Endpoint) {
	for _, m := range g.voters() {
		g.tell(e, m)
	}
}

// tell tells the endpoint where a site is.
func (g *Gossip) tell(e *quic.Endpoint, m member) {
	if err := e.SetPeer(m.name, m.number, m.address); err != nil && !errors.Is(err, net.ErrClosed) {
		g.log.Warn("a site is not who it was said to be", "peer", m.name, "err", err)
	}
}

// refuse is told of packets and streams that are not what they should be.
func (g *Gossip) refuse(from string, err error) {
	if g.refusals.due() {
		g.log.Warn("refused gossip", "peer", from, "err", err)
	}
}
