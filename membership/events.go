package membership

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"

	"gus/quic"
)

// events is the Gossip as memberlist tells it of others. It is called under
// memberlist's locks: it takes notes, and tend acts on them.
type events Gossip

// NotifyAlive judges what is said of a site before it counts: the configuration
// says who is a voter, and nobody becomes one by saying so.
func (ev *events) NotifyAlive(n *memberlist.Node) error {
	g := (*Gossip)(ev)
	m, err := decodeMeta(n.Meta)
	if err != nil {
		return err
	}
	if n.Name == g.cfg.Identity.Name {
		if m.Boot > g.cfg.Boot {
			g.conflict(n.Name, m.Address)
		}
		return nil // memberlist knows better who this is, and says so
	}
	number := g.cfg.Configuration.VoterOf(n.Name)
	switch {
	case number == 0:
		return fmt.Errorf("%s is no voter by configuration %d, and only voters gossip", printable(n.Name, quic.MaxName), g.cfg.Configuration.Number)
	case m.Number != number:
		return fmt.Errorf("it is said to be voter %d, and is %d by configuration %d", m.Number, number, g.cfg.Configuration.Number)
	}
	return nil
}

// NotifyJoin notes that a site is there.
func (ev *events) NotifyJoin(n *memberlist.Node) { (*Gossip)(ev).heard(n, true) }

// NotifyUpdate notes that a site says something new of itself.
func (ev *events) NotifyUpdate(n *memberlist.Node) { (*Gossip)(ev).heard(n, true) }

// NotifyLeave notes that a site is there no more.
func (ev *events) NotifyLeave(n *memberlist.Node) { (*Gossip)(ev).heard(n, false) }

func (g *Gossip) heard(n *memberlist.Node, alive bool) {
	if n.Name == g.cfg.Identity.Name {
		return
	}
	said, err := decodeMeta(n.Meta)
	if err != nil {
		return // NotifyAlive has refused it
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	m := g.members[n.Name]
	if m == nil {
		m = &member{name: n.Name, number: said.Number}
		g.members[n.Name] = m
	}
	m.meta, m.seen = said, true
	m.said = said.Address != ""
	if m.said {
		m.address = said.Address
	}
	if m.alive != alive || m.since.IsZero() {
		m.alive, m.since = alive, time.Now()
	}
	g.Linked()
}

// delegate is the Gossip as memberlist asks it about itself.
type delegate Gossip

// NodeMeta returns what this site says of itself.
func (d *delegate) NodeMeta(int) []byte {
	g := (*Gossip)(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.self.encode()
}

// noticeTwin begins the one message of our own: another process runs under the
// receiver's identity, at the address that follows.
const noticeTwin = 1

// NotifyMsg takes a notice. Any site of the cluster may send one, and all it
// can cause is a warning.
func (d *delegate) NotifyMsg(b []byte) {
	g := (*Gossip)(d)
	if len(b) < 1 || b[0] != noticeTwin {
		return
	}
	g.conflict(g.cfg.Identity.Name, printable(string(b[1:]), maxAddress))
}

// GetBroadcasts returns nothing: memberlist has its own.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns nothing to exchange.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState takes nothing.
func (d *delegate) MergeRemoteState([]byte, bool) {}
