package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gus/agent/client"
	"gus/register"
)

const (
	// maxBuckets is how many buckets, all of one partition, are looked at an epoch.
	maxBuckets = 16
	// maxSuspects bounds the keys of which two sites are remembered to show
	// different things.
	maxSuspects = 1000
	// maxToldKeys is how many keys are named in a log at once, and in status.
	maxToldKeys = 10
)

// agreement is how two sites compare what they hold: by the sums of partitions,
// of buckets where those differ, and of keys where those do. Its goroutine is its
// peer's follower.
//
// A key on which both have different settled writes is only suspect at first: one
// of the two may be about to learn. It is an alarm once both have looked at all
// that the other had saved then, and still show the same. So a site that is behind
// raises none.
type agreement struct {
	looked   bool                        // there was a comparison
	sums     [register.Partitions]uint64 // of this site, at the last one
	saved    register.Seq                // of the peer, at the last one
	position int                         // partition and bucket from where to look on; 0: all have had their turn
	suspects map[string]*suspect
}

// suspect is a key of which two sites show different settled writes.
type suspect struct {
	pair
	since time.Time    // when that was seen first
	ours  register.Seq // what this site had saved then
	its   register.Seq // what the peer had saved then
	alarm bool
}

// agree compares with p, where something has changed since it did last.
func (c *catchup) agree(ctx context.Context, p *follower) error {
	sums, err := c.sums(ctx)
	if err != nil {
		return err
	}
	g := &p.agreement
	if g.looked && g.sums == sums && g.saved == p.hear(0) && g.position == 0 && len(g.suspects) == 0 {
		return nil
	}
	err = c.compare(ctx, p, func(x *comparison) error {
		if err := x.lookAgain(ctx); err != nil {
			return err
		}
		if err := x.lookOn(ctx); err != nil {
			return err
		}
		// Sums that differ for another reason, such as a write that is not durable yet,
		// say nothing of what is to come.
		g.looked, g.sums, g.saved = len(x.parts()) == 0, x.sums, p.hear(x.told.Last)
		return nil
	})
	if err != nil {
		return fmt.Errorf("compare with %s: %w", p.name, err)
	}
	return nil
}

// lookAgain looks at the keys that were suspect.
func (x *comparison) lookAgain(ctx context.Context) error {
	var alarms, agreed []*suspect
	keys := slices.Sorted(maps.Keys(x.peer.suspects))
	err := x.again(ctx, keys, func(now pair) {
		key := now.mine.Key
		s := x.peer.suspects[key]
		switch {
		case !now.differs():
			delete(x.peer.suspects, key)
			if s.alarm {
				agreed = append(agreed, s)
			}
		case !s.same(now):
			// Somebody has written it, or one of the two has learnt.
			x.suspect(now, s.alarm)
		case !s.alarm && x.bothHaveLooked(s):
			s.alarm = true
			alarms = append(alarms, s)
		}
	})
	x.tell(alarms, agreed)
	x.peer.publish()
	if err != nil {
		return err
	}
	return x.repair(ctx)
}

// suspect remembers that the sites do not show the same of a key.
func (x *comparison) suspect(now pair, alarm bool) {
	key := now.mine.Key
	if x.peer.suspects[key] == nil && len(x.peer.suspects) >= maxSuspects {
		return // they are looked for again when there is room
	}
	x.peer.suspects[key] = &suspect{pair: now, since: time.Now(), ours: x.store.Last(), its: x.told.Last, alarm: alarm}
}

// bothHaveLooked says whether each site has taken in all that the other had
// saved when they were seen to differ, which was an epoch ago.
func (x *comparison) bothHaveLooked(s *suspect) bool {
	x.peer.mu.Lock()
	cursor := x.peer.cursor
	x.peer.mu.Unlock()
	return time.Since(s.since) >= epochLength*9/10 &&
		cursor.Database == x.told.Database && cursor.Seq >= s.its &&
		x.told.Of == x.store.Database() && x.told.Upto >= s.ours
}

// repair reads the keys on which the sites have different versions, which brings
// the later one to both. The same version with different contents is beyond that.
func (x *comparison) repair(ctx context.Context) error {
	var keys []string
	for key, s := range x.peer.suspects {
		if s.alarm && s.mine.Tag != s.theirs.Tag {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return x.loop.each(ctx, len(keys), func(r *register.Replica, i int) { r.Reread(keys[i]) })
}

// lookOn looks at buckets that differ: maxBuckets of one partition, others at the
// next epoch.
func (x *comparison) lookOn(ctx context.Context) error {
	g := &x.peer.agreement
	for _, part := range x.parts() {
		if part < g.position/register.Buckets {
			continue
		}
		buckets, err := x.buckets(ctx, part)
		if err != nil {
			return err
		}
		buckets = slices.DeleteFunc(buckets, func(b uint16) bool { return part*register.Buckets+int(b) < g.position })
		if len(buckets) == 0 {
			continue
		}
		buckets = buckets[:min(len(buckets), maxBuckets)]
		err = x.keys(ctx, part, buckets, func(now pair) {
			if now.differs() && x.peer.suspects[now.mine.Key] == nil {
				x.suspect(now, false)
			}
		})
		if err != nil {
			return err
		}
		g.position = part*register.Buckets + int(buckets[len(buckets)-1]) + 1
		return nil
	}
	g.position = 0
	return nil
}

// tell logs which keys have come to be alarms, and which are none any more.
func (x *comparison) tell(alarms, agreed []*suspect) {
	for i, s := range alarms {
		if i == maxToldKeys {
			x.log.Error("sites disagree on more keys", "peer", x.peer.name, "keys", len(alarms)-i)
			break
		}
		x.log.Error("sites disagree on a key", "key", s.theirs.Key, "here", versionText(s.mine.Tag), "peer", x.peer.name,
			"there", versionText(s.theirs.Tag), "cure", cureOf(s.pair))
	}
	for i, s := range agreed {
		if i == maxToldKeys {
			x.log.Info("sites agree again on more keys", "peer", x.peer.name, "keys", len(agreed)-i)
			break
		}
		x.log.Info("sites agree again on a key", "key", s.theirs.Key, "peer", x.peer.name)
	}
}

func cureOf(p pair) string {
	if p.mine.Tag == p.theirs.Tag {
		return "set the key again"
	}
	return "none needed: it is being read, which brings the later version to both"
}

// versionText is a version for people and scripts, empty where there is none.
func versionText(t register.Tag) string {
	if t.IsZero() {
		return ""
	}
	return t.String()
}

// publish has status see the alarms.
func (p *follower) publish() {
	var known []client.Disagreement
	for _, key := range slices.Sorted(maps.Keys(p.suspects)) {
		if s := p.suspects[key]; s.alarm {
			known = append(known, disagreementOf(p.name, s.pair, s.since))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = known
}

func disagreementOf(peer string, p pair, since time.Time) client.Disagreement {
	return client.Disagreement{
		Key: p.mine.Key, Version: client.Version(versionText(p.mine.Tag)),
		Peer: peer, PeerVersion: client.Version(versionText(p.theirs.Tag)), Since: since,
	}
}
