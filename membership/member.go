package membership

import (
	"cmp"
	"slices"
	"time"

	"gus/quic"
	"gus/register"
)

// State is gossip's opinion of a site. Nothing that the protocol decides may
// depend on it.
type State string

// The states of a site.
const (
	StateAlive   State = "alive"      // it answers
	StateSuspect State = "suspect"    // this site has no connection with it; gossip has not given it up
	StateDead    State = "dead"       // nobody has heard of it for a while; of an observer: it is not connected with this site
	StateUnseen  State = "never seen" // a voter that this site has never heard of
)

// Member is a site as this one knows it.
type Member struct {
	Name    string
	Role    quic.Role
	Number  register.Voter // 0 for an observer
	Self    bool           // it is this site
	Address string         // HOST:PORT where it is dialled, "" where unknown
	State   State
	Since   time.Time // when it came into this state here; for StateDead not before this process
	// What it says of itself; zero where it has not been heard.
	Configuration uint64
	Version       string
	Boot          uint64
}

// member is what is known of another site.
type member struct {
	name      string
	number    register.Voter
	address   string // where it was heard to be, or seen; "" where unknown
	said      bool   // it has said its address itself
	meta      meta
	seen      bool // ever
	alive     bool
	since     time.Time // when alive changed
	announced bool      // alive, as the log was told last
	told      string    // address, as the endpoint was told last
}

func (m *member) role() quic.Role {
	if m.number == 0 {
		return quic.RoleObserver
	}
	return quic.RoleVoter
}

// Members returns all sites that are known, by name, this one among them: the
// voters of the configuration, and the observers that were seen since this one's start
// (an observer knows of no other).
func (g *Gossip) Members() []Member {
	links := g.links()
	g.mu.Lock()
	defer g.mu.Unlock()
	all := []Member{{
		Name: g.cfg.Identity.Name, Role: g.cfg.Identity.Role, Number: g.self.Number, Self: true,
		Address: g.self.Address, State: StateAlive, Since: g.started,
		Configuration: g.self.Configuration, Version: g.self.Version, Boot: g.self.Boot,
	}}
	for _, m := range g.members {
		out := Member{
			Name: m.name, Role: m.role(), Number: m.number, Address: m.address, Since: m.since,
			Configuration: m.meta.Configuration, Version: m.meta.Version, Boot: m.meta.Boot,
		}
		link, known := links[m.name]
		switch {
		case m.number == 0 && known: // an observer's connection is all there is to know
			out.State, out.Since = StateDead, link.Since
			if link.Connected {
				out.State = StateAlive
			}
		case m.alive && known && !link.Connected:
			out.State, out.Since = StateSuspect, later(m.since, link.Since)
		case m.alive:
			out.State = StateAlive
		case m.seen:
			out.State = StateDead
		default:
			out.State = StateUnseen
		}
		all = append(all, out)
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Peers returns the other voters that are known with an address, by name: they are the
// sites that can be asked and dialled.
func (g *Gossip) Peers() []Peer {
	var peers []Peer
	for _, m := range g.voters() {
		if m.address != "" {
			peers = append(peers, Peer{m.name, m.number, m.address})
		}
	}
	return peers
}

// Address returns where this site tells others to reach it, "" while it does
// not know.
func (g *Gossip) Address() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.self.Address
}

// voters returns copies of the other voters, by name.
func (g *Gossip) voters() []member {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []member
	for _, m := range g.members {
		if m.number != 0 {
			all = append(all, *m)
		}
	}
	slices.SortFunc(all, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	return all
}

// links returns what the endpoint has, by name; nothing before Run.
func (g *Gossip) links() map[string]quic.PeerStatus {
	g.mu.Lock()
	e := g.endpoint
	g.mu.Unlock()
	if e == nil {
		return nil
	}
	links := make(map[string]quic.PeerStatus)
	for _, p := range e.Status().Peers {
		links[p.Name] = p
	}
	return links
}
