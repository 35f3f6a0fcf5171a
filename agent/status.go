package agent

import (
	"runtime/metrics"
	"slices"

	"gus/agent/client"
	"gus/quic"
	"gus/register"
)

// status puts together what the loop and the other parts know.
func (n *node) status(l loopStatus) client.Status {
	net, disk := n.endpoint.Status(), n.store.Stats()
	s := client.Status{
		Site:      n.id.Name,
		Cluster:   n.id.Cluster.String(),
		Version:   n.cfg.Version,
		Data:      n.cfg.Data,
		Listen:    net.Addr.String(),
		Started:   n.started,
		Voters:    votersOf(&l.reach, net),
		Keys:      l.replica.Keys,
		DataBytes: l.replica.Bytes,
		Memory:    memory(),
		Disk:      disk.DatabaseBytes + disk.WALBytes,
		Unsettled: l.replica.Unsettled,
		Writes:    l.replica.Writes,
		Reads:     l.replica.Reads,
		Waiting:   l.waiting,
		UDP:       client.UDP{Receive: net.ReceiveBuffer, Send: net.SendBuffer, Wanted: quic.WantedBuffer},
	}
	s.Quorum = quorumOf(&l.reach, s.Voters)
	if l.saveErr != nil {
		s.SaveError = l.saveErr.Error()
	}
	return s
}

func votersOf(r *reach, net quic.Status) []client.Voter {
	peers := map[register.Voter]quic.PeerStatus{}
	for _, p := range net.Peers {
		peers[p.Number] = p
	}
	var all []client.Voter
	for _, v := range r.conf.Voters {
		p := peers[v.Number]
		c := client.Voter{
			Name:      v.Name,
			Number:    int(v.Number),
			Self:      v.Number == r.self,
			Connected: v.Number == r.self || r.up.Has(v.Number),
			Since:     r.since[v.Number],
			RTT:       client.Duration(p.RTT),
			Address:   p.Addr,
		}
		if p.Remote != "" {
			c.Address = p.Remote
		}
		if c.Self {
			c.Address = net.Addr.String()
		}
		all = append(all, c)
	}
	return all
}

// quorumOf says whether there is a quorum, and how far away the nearest is.
func quorumOf(r *reach, voters []client.Voter) client.Quorum {
	q := client.Quorum{
		OK:      r.ok(),
		Read:    r.conf.ReadQuorum,
		Write:   r.conf.WriteQuorum,
		Reached: r.count(),
		Since:   r.lost,
	}
	for _, v := range r.away() {
		q.Missing = append(q.Missing, v.Name)
	}
	var rtts []client.Duration
	for _, v := range voters {
		if v.Connected && !v.Self {
			rtts = append(rtts, v.RTT)
		}
	}
	slices.Sort(rtts)
	if need := max(q.Read, q.Write) - 1; need > 0 && need <= len(rtts) {
		q.RTT = rtts[need-1]
	}
	return q
}

// memory returns the bytes that the process has from the system.
func memory() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64() - m[1].Value.Uint64())
}
