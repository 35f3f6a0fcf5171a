package agent

import (
	"runtime/metrics"
	"slices"

	"gus/agent/client"
	"gus/quic"
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
		Advertise: n.gossip.Address(),
		Started:   n.started,
		Members:   membersOf(&l.reach, net, n.gossip.Members(), n.clocks.known()),
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
	cpu, resident := usage()
	s.CPU, s.Resident = client.Duration(cpu), resident
	s.Epoch = client.Epoch{Number: disk.Epoch, Time: disk.EpochTime, Behind: uint64(n.store.Last() - disk.EpochSeq), HeldUp: disk.EpochHeldUp}
	s.Past = client.PastStatus{Epochs: disk.KeptEpochs, Oldest: disk.OldestEpoch, Bytes: disk.HistoryBytes}
	if m, err := n.store.MomentAtNumber(disk.OldestEpoch); err == nil {
		s.Past.Since = m.Time
	}
	n.catchup.status(&s)
	if n.observer != nil {
		n.observer.status(&s)
	}
	s.Quorum, s.Voting = quorumOf(&l.reach, s.Members), l.voting
	if l.saves.saveErr != nil {
		s.SaveError = l.saves.saveErr.Error()
	}
	if l.saves.stall() > slowSave {
		s.SaveSince = l.saves.saveFrom
	}
	s.Syncs = n.published.states()
	s.Backups = n.schedule.status()
	s.Warnings = warningsOf(&s, n.gossip.Conflicts())
	return s
}

// quorumOf says whether there is a quorum, and how far away the nearest is.
func quorumOf(r *reach, members []client.Member) client.Quorum {
	q := client.Quorum{
		OK:      r.ok(),
		Voters:  len(r.conf.Voters),
		Read:    r.conf.ReadQuorum,
		Write:   r.conf.WriteQuorum,
		Reached: r.count(),
		Since:   r.lost,
	}
	for _, v := range r.away() {
		q.Missing = append(q.Missing, v.Name)
	}
	var rtts []client.Duration
	for _, m := range members {
		if m.Number != 0 && m.State == client.StateUp && !m.Self {
			rtts = append(rtts, m.RTT)
		}
	}
	slices.Sort(rtts)
	need := max(q.Read, q.Write) - 1
	if r.self == 0 {
		need = 1
	}
	if need > 0 && need <= len(rtts) {
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
