package membership

import (
	"cmp"
	"net"
	"slices"
	"time"

	"gus/quic"
)

// Conflict says that two processes run under one identity: somebody has copied a
// data directory. The one that came first stays connected.
type Conflict struct {
	Name string    // of the site, this one or another
	At   string    // where one of the two was seen, "" where that is not known
	Last time.Time // when it was seen last
}

const (
	// conflictMemory is how long a conflict that is not seen again is shown.
	conflictMemory = 10 * time.Minute
	// conflictInterval is the least time between two lines about one.
	conflictInterval = time.Minute
	maxConflicts     = 64
)

type conflict struct {
	at         string
	last, next time.Time
}

// Twin takes what the endpoint saw: for quic.Config.Twin. The peer that is
// connected is told: it cannot see its twin, who gets no connection.
func (g *Gossip) Twin(site quic.Site, at net.Addr) {
	g.conflict(site.Name, at.String())
	if site.Name == g.cfg.Identity.Name {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.notices) < maxConflicts {
		g.notices[site.Name] = at.String()
	}
	wake(g.news)
}

// conflict notes and logs that a site runs twice.
func (g *Gossip) conflict(name, at string) {
	now := time.Now()
	g.mu.Lock()
	c := g.conflicts[name]
	if c == nil {
		if g.closed || len(g.conflicts) >= maxConflicts {
			g.mu.Unlock()
			return
		}
		c = &conflict{}
		g.conflicts[name] = c
	}
	c.at, c.last = at, now
	due := !now.Before(c.next)
	if due {
		c.next = now.Add(conflictInterval)
	}
	g.mu.Unlock()
	wake(g.news)
	switch {
	case !due:
	case name == g.cfg.Identity.Name:
		g.log.Error("another process runs under this site's identity: stop one of the two, and never copy a data directory", "site", name, "seen", at)
	default:
		g.log.Warn("two processes run under one site's identity", "peer", name, "seen", at)
	}
}

// Conflicts returns the conflicts of the last ten minutes, by name.
func (g *Gossip) Conflicts() []Conflict {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []Conflict
	for name, c := range g.conflicts {
		if time.Since(c.last) < conflictMemory {
			all = append(all, Conflict{name, c.at, c.last})
		}
	}
	slices.SortFunc(all, func(a, b Conflict) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
