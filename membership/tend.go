package membership

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"gus/quic"
)

const (
	// tendInterval is how often all is looked after without news.
	tendInterval = 30 * time.Second
	// rejoinInterval is how often a connected site that is not in the gossip
	// is asked to gossip.
	rejoinInterval = 5 * time.Second
	// Seeds are tried at growing intervals while somebody is missing.
	seekMin = time.Second
	seekMax = 30 * time.Second
)

// tend acts on news: it tells the endpoint where sites are, remembers them,
// tells the others where this site is, and logs who came and went. list is nil at an
// observer.
func (g *Gossip) tend(ctx context.Context, e *quic.Endpoint, list *memberlist.Memberlist) {
	var file []byte // what peers.json is known to hold
	for {
		links := g.links()
		if g.learn(links) && list != nil {
			// What it returns says only that nobody has been told yet.
			_ = list.UpdateNode(time.Millisecond)
		}
		for _, m := range g.due() {
			g.tell(e, m)
		}
		var err error
		if file, err = savePeers(g.cfg.Data, g.Peers(), file); err != nil {
			g.log.Warn("cannot remember where other sites are", "err", err)
		}
		g.announce()
		if list != nil {
			g.sendNotices(list, links)
		}
		if g.cfg.Changed != nil {
			g.cfg.Changed()
		}
		if !pause(ctx, tendInterval, g.news) {
			return
		}
	}
}

// pause waits for about d, or until there is news. It returns false where ctx
// ended.
func pause(ctx context.Context, d time.Duration, news <-chan struct{}) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// learn takes from the connections where those sites are that have not said it,
// and where the others see this one. It says whether that is news.
func (g *Gossip) learn(links map[string]quic.PeerStatus) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var observed []string
	for name, link := range links {
		if !link.Connected {
			continue
		}
		m := g.members[name]
		if m == nil && len(g.members) < maxMembers {
			m = &member{name: name, number: link.Number, since: time.Now()}
			g.members[name] = m
		}
		if m != nil {
			if m.seen = true; !m.said && checkAddress(link.Remote) == nil { // an observer's is never said
				m.address = link.Remote
			}
		}
		if link.Observed != "" {
			observed = append(observed, link.Observed)
		}
	}
	if g.cfg.Identity.Role == quic.RoleObserver {
		g.judge(links)
	}
	own := ownAddress(g.cfg.Advertise, g.cfg.Listen, g.self.Address, observed)
	news := own != g.self.Address
	g.self.Address = own
	return news
}

// ownAddress is where a site tells others to reach it: as it was told; else
// where it listens, if that is one address; else where most of the others see
// it, and of equally many what it was before or the least.
func ownAddress(advertise string, listen net.Addr, before string, observed []string) string {
	if advertise != "" {
		return advertise
	}
	if udp, ok := listen.(*net.UDPAddr); ok && len(udp.IP) > 0 && !udp.IP.IsUnspecified() {
		return udp.String()
	}
	votes := make(map[string]int)
	for _, o := range observed {
		votes[o]++
	}
	best := before
	for o, n := range votes {
		most := votes[best]
		if n > most || n == most && best != before && o < best {
			best = o
		}
	}
	return best
}

// due returns the voters whose address the endpoint has not been told.
func (g *Gossip) due() []member {
	g.mu.Lock()
	defer g.mu.Unlock()
	var due []member
	for _, m := range g.members {
		if m.number != 0 && m.address != "" && m.address != m.told {
			m.told = m.address
			due = append(due, *m)
		}
	}
	return due
}

// announce logs which voters came and went. Of an observer its connection says so.
func (g *Gossip) announce() {
	g.mu.Lock()
	var news []member
	for _, m := range g.members {
		if m.alive != m.announced {
			m.announced = m.alive
			news = append(news, *m)
		}
	}
	g.mu.Unlock()
	for _, m := range news {
		if m.alive {
			g.log.Info("a site is there", "peer", m.name, "role", m.role(), "addr", m.address, "version", m.meta.Version)
		} else {
			g.log.Warn("a site is gone: nobody hears of it", "peer", m.name, "role", m.role(), "addr", m.address)
		}
	}
}

// sendNotices tells voters that they run twice. Observers are told when they ask.
func (g *Gossip) sendNotices(list *memberlist.Memberlist, links map[string]quic.PeerStatus) {
	notices, later := make(map[string]string), make(map[string]string)
	g.mu.Lock()
	for name, at := range g.notices {
		switch {
		case g.cfg.Configuration.VoterOf(name) != 0:
			notices[name] = at
		case links[name].Connected:
			later[name] = at
		}
	}
	g.notices = later
	g.mu.Unlock()
	if len(notices) == 0 {
		return
	}
	for _, n := range list.Members() {
		if at, ok := notices[n.Name]; ok {
			// It goes out with the next conflict again: losing one is nothing.
			_ = list.SendBestEffort(n, append([]byte{noticeTwin}, at...))
		}
	}
}

// rejoin begins to gossip with each voter that is connected and not in the gossip, for
// ever: parts of a cluster that forgot each other come together again as soon
// as two of their voters are connected.
func (g *Gossip) rejoin(ctx context.Context, list *memberlist.Memberlist) {
	for {
		for name, link := range g.links() {
			if ctx.Err() == nil && link.Connected && link.Role == quic.RoleVoter && !g.isAlive(name) {
				addr := net.JoinHostPort(nowhere.String(), "7487")
				if _, err := list.Join([]string{name + "/" + addr}); err != nil {
					g.log.Debug("cannot gossip yet", "peer", name, "err", err)
				}
			}
		}
		if !pause(ctx, rejoinInterval, g.joins) {
			return
		}
	}
}

func (g *Gossip) isAlive(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[name]
	return m != nil && m.alive
}

// seek tries the seeds for ever while nobody else, or not every voter, is there. The
// endpoint keeps trying where sites were last; seeds say where they may be now.
func (g *Gossip) seek(ctx context.Context, e *quic.Endpoint) {
	delay := seekMin
	failures := make([]string, len(g.cfg.Seeds))
	for {
		wait := rejoinInterval
		if len(g.cfg.Seeds) > 0 && g.lonely() {
			var wg sync.WaitGroup
			for i, seed := range g.cfg.Seeds {
				wg.Go(func() { failures[i] = g.meet(ctx, e, seed, failures[i]) })
			}
			wg.Wait()
			wait, delay = delay, min(2*delay, seekMax)
		} else {
			delay = seekMin
		}
		if !pause(ctx, wait, nil) {
			return
		}
	}
}

// lonely says whether somebody is missing whom a seed may know.
func (g *Gossip) lonely() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	others := 0
	for _, m := range g.members {
		if m.number != 0 && !m.alive {
			return true
		}
		if m.alive {
			others++
		}
	}
	return others == 0
}

// meet tries one seed. It logs a failure that differs from the one before, and
// returns it in words.
func (g *Gossip) meet(ctx context.Context, e *quic.Endpoint, seed, before string) string {
	_, err := e.Meet(ctx, seed)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != before {
		g.log.Info("nobody met at a seed, trying on", "seed", seed, "err", err)
	}
	return err.Error()
}
