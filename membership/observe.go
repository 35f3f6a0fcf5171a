package membership

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gus/quic"
)

// Observers do not gossip: they ask (doc.go says why). Each asks every voter that it is
// connected with, with a description of itself, and is told of the voters.

const (
	// inquireInterval is how often an observer asks a voter.
	inquireInterval = 30 * time.Second
	inquireTimeout  = 10 * time.Second
	// maxNews is the size of the largest answer in bytes: what register.MaxVoters voters
	// say of themselves.
	maxNews = 16 << 10
)

// news is what a voter tells an observer.
type news struct {
	Sites []said `cbor:"1,keyasint"`
	// Twin is where another process was seen that runs under the observer's identity.
	Twin string `cbor:"2,keyasint,omitempty"`
}

// said is what is said of a voter.
type said struct {
	Name  string `cbor:"1,keyasint"`
	Alive bool   `cbor:"2,keyasint,omitempty"`
	Meta  []byte `cbor:"3,keyasint"`
}

// observe is Run at an observer.
func (g *Gossip) observe(ctx context.Context, e *quic.Endpoint) {
	var wg sync.WaitGroup
	for _, f := range []func(){
		func() { g.tend(ctx, e, nil) },
		func() { g.inquire(ctx, e) },
		func() { g.seek(ctx, e) },
	} {
		wg.Go(f)
	}
	wg.Wait()
}

// inquire asks the voters until ctx ends: each once it is connected, and from then on
// by and by.
func (g *Gossip) inquire(ctx context.Context, e *quic.Endpoint) {
	asked := make(map[string]time.Time)
	for {
		var wg sync.WaitGroup
		for name, link := range g.links() {
			last := asked[name]
			if !link.Connected || link.Role != quic.RoleVoter || last.After(link.Since) && time.Since(last) < inquireInterval {
				continue
			}
			asked[name] = time.Now()
			wg.Go(func() {
				n, err := g.inquireOf(ctx, e, name)
				if err != nil {
					g.log.Debug("a voter does not say who is there", "peer", name, "err", err)
					return
				}
				g.heed(name, n)
			})
		}
		wg.Wait()
		if !pause(ctx, rejoinInterval, g.joins) {
			return
		}
	}
}

// inquireOf asks one voter.
func (g *Gossip) inquireOf(ctx context.Context, e *quic.Endpoint, voter string) (news, error) {
	ctx, cancel := context.WithTimeout(ctx, inquireTimeout)
	defer cancel()
	s, err := e.OpenStream(ctx, voter, PurposeGossip)
	if err != nil {
		return news{}, err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	g.mu.Lock()
	self := g.self.encode()
	g.mu.Unlock()
	if err := quic.WriteFrame(s, self); err != nil {
		return news{}, err
	}
	b, err := quic.ReadFrame(s, maxNews)
	if err != nil {
		return news{}, err
	}
	var n news
	if err := hints.Unmarshal(b, &n); err != nil {
		return news{}, fmt.Errorf("decode what %s says: %w", voter, err)
	}
	return n, nil
}

// heed takes in what a voter says. Of where another voter is, that one knows best: what
// others say of it counts while it is not connected.
func (g *Gossip) heed(from string, n news) {
	if n.Twin != "" {
		g.conflict(g.cfg.Identity.Name, printable(n.Twin, maxAddress))
	}
	links := g.links()
	g.mu.Lock()
	defer g.mu.Unlock()
	alive := make(map[string]bool)
	for _, s := range n.Sites {
		m := g.members[s.Name]
		said, err := decodeMeta(s.Meta)
		if m == nil || err != nil || said.Number != m.number {
			continue // what is not in the configuration here does not count
		}
		alive[s.Name] = s.Alive
		if s.Name != from && (links[s.Name].Connected || said.Boot < m.meta.Boot) {
			continue
		}
		m.meta, m.seen = said, m.seen || said.Boot != 0
		if m.said = said.Address != ""; m.said {
			m.address = said.Address
		}
	}
	g.opinions[from] = alive
	wake(g.news)
}

// judge says of each voter, at an observer, whether it is there: it is connected, or one
// that is hears of it.
func (g *Gossip) judge(links map[string]quic.PeerStatus) {
	for from := range g.opinions {
		if !links[from].Connected {
			delete(g.opinions, from)
		}
	}
	for _, m := range g.members {
		alive := links[m.name].Connected
		for _, opinion := range g.opinions {
			alive = alive || opinion[m.name]
		}
		if m.alive != alive {
			m.alive, m.since = alive, time.Now()
		}
	}
}

// inform answers an observer.
func (g *Gossip) inform(from quic.Site, s *quic.Stream) {
	if err := g.answer(from, s); err != nil {
		g.log.Debug("an observer could not be answered", "peer", from.Name, "err", err)
	}
}

func (g *Gossip) answer(from quic.Site, s *quic.Stream) error {
	if err := s.SetDeadline(time.Now().Add(inquireTimeout)); err != nil {
		return fmt.Errorf("answer an observer: %w", err)
	}
	b, err := quic.ReadFrame(s, maxMeta)
	if err != nil {
		return err
	}
	m, err := decodeMeta(b)
	if err != nil {
		return err
	}
	if m.Number != 0 {
		return fmt.Errorf("an observer says that it is voter %d", m.Number)
	}
	g.note(from, m)
	out, err := encoding.Marshal(g.newsFor(from.Name))
	if err != nil || len(out) > maxNews {
		panic(fmt.Sprintf("membership: news of %d bytes: %v", len(out), err))
	}
	return quic.WriteFrame(s, out)
}

// note takes in what an observer says of itself. Where it is the connection tells: nobody
// dials it, and behind NAT it may say what many say.
func (g *Gossip) note(from quic.Site, said meta) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[from.Name]
	if m == nil {
		if len(g.members) >= maxMembers {
			return
		}
		m = &member{name: from.Name, since: time.Now()}
		g.members[from.Name] = m
	}
	m.meta, m.seen = said, true
}

// newsFor is what an observer is told.
func (g *Gossip) newsFor(observer string) news {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := news{Sites: []said{{g.cfg.Identity.Name, true, g.self.encode()}}}
	for _, m := range g.members {
		if m.number != 0 {
			about := m.meta
			about.Number, about.Address = m.number, m.address
			n.Sites = append(n.Sites, said{m.name, m.alive, about.encode()})
		}
	}
	if at, ok := g.notices[observer]; ok {
		n.Twin = at
		delete(g.notices, observer)
	}
	return n
}
