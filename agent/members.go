package agent

import (
	"cmp"
	"slices"

	"gus/agent/client"
	"gus/membership"
	"gus/quic"
)

// membersOf puts together what the loop knows of the voters, the endpoint of
// connections, and gossip of everybody: who is there by the first two, and
// only of those that are not, by what gossip says.
func membersOf(r *reach, net quic.Status, known []membership.Member, clocks map[string]client.Clock) []client.Member {
	links := map[string]quic.PeerStatus{}
	for _, p := range net.Peers {
		links[p.Name] = p
	}
	var all []client.Member
	for _, m := range known {
		link := links[m.Name]
		c := client.Member{
			Name: m.Name, Role: string(m.Role), Number: int(m.Number), Self: m.Self,
			RTT: client.Duration(link.RTT), Address: m.Address, Version: m.Version, Failure: link.Failure,
		}
		up := m.Self || link.Connected
		c.Since = cmp.Or(link.Since, m.Since)
		if m.Number != 0 {
			up = m.Self || r.up.Has(m.Number)
			c.Since = r.since[m.Number]
		}
		c.State = stateOf(up, m.State)
		if clock, ok := clocks[m.Name]; ok {
			c.Clock = &clock
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b client.Member) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// rank puts voters first, by number.
func rank(m client.Member) uint8 { return uint8(m.Number) - 1 }

func stateOf(up bool, gossip membership.State) client.State {
	switch {
	case up:
		return client.StateUp
	case gossip == membership.StateDead:
		return client.StateDown
	case gossip == membership.StateUnseen:
		return client.StateUnseen
	}
	return client.StateUnreachable
}
