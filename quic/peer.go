package quic

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"gus/register"
)

// raceWindow is longer than any dial takes, hello included. Two connections
// whose beginnings lie closer together may be the two of one race.
const raceWindow = 3 * helloTimeout

// peer is another site and what waits for it. It outlives its connections.
type peer struct {
	site Site

	mu      sync.Mutex
	addr    string        // host:port to dial, "" where unknown
	cur     *conn         // the one connection in use, nil while there is none
	up      chan struct{} // closed while cur is there
	since   time.Time     // when cur came or went
	changes uint64        // how often cur changed
	box     outbox
	gossip  ring
	stats   Counters
	failure string // of the last dial, "" where it succeeded

	lost        chan struct{} // holds a token after cur went
	readdressed chan struct{} // holds a token after addr changed

	notifying sync.Mutex // orders the calls of Config.Peer
	notified  uint64     // changes, as of the last call; guarded by notifying
}

func newPeer(site Site) *peer {
	return &peer{
		site: site, up: make(chan struct{}), since: time.Now(),
		lost: make(chan struct{}, 1), readdressed: make(chan struct{}, 1),
	}
}

// wake puts a token into c unless one is there.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// setAddr notes where to dial the peer from now on, and says whether that is
// news.
func (p *peer) setAddr(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addr == addr {
		return false
	}
	p.addr = addr
	wake(p.readdressed)
	return true
}

// wanted returns the address to dial, "" while there is a connection or no
// address.
func (p *peer) wanted() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cur != nil {
		return ""
	}
	return p.addr
}

// current returns the connection in use, if any, and a channel that is closed
// once there is one.
func (p *peer) current() (*conn, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cur, p.up
}

// install makes c the peer's connection, unless the present one is better
// (errDuplicate) or shows that two processes run as that peer (errTwin).
func (p *peer) install(c *conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cur != nil {
		if c.twinOf(p.cur) {
			return errTwin
		}
		if !c.replaces(p.cur) {
			return errDuplicate
		}
		p.cur.retire()
	} else {
		close(p.up)
	}
	p.cur, p.since = c, time.Now()
	p.changes++
	return nil
}

// twinOf says whether c is from another process than old, and not from a later
// one: a site raises its boot at each start and locks its data, so somebody
// has copied it. The one that is connected stays, or the two would take turns.
func (c *conn) twinOf(old *conn) bool {
	return c.instance != 0 && old.instance != 0 && c.instance != old.instance && c.boot <= old.boot
}

// replaces decides which of two connections between the same two sites stays.
// Both ends come to the same conclusion:
//   - a later boot of the peer replaces an earlier one, which is dead;
//   - of one dialler the later connection replaces the earlier one, by the
//     dialler's own count: two may be under way at once, and come to stand in
//     different orders at the two ends;
//   - of two that were dialled at once, the lower site's stays;
//   - one that has stood for longer than a race takes is gone at the other
//     end, or that would not have dialled.
func (c *conn) replaces(old *conn) bool {
	switch {
	case c.boot != old.boot:
		return c.boot > old.boot
	case c.dialled == old.dialled:
		return c.attempt == 0 || c.attempt > old.attempt
	case c.since.Sub(old.since) > raceWindow:
		return true
	}
	return c.lowerDialled()
}

// compareSites orders sites for the tie-break.
func compareSites(a, b Site) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), strings.Compare(a.Name, b.Name))
}

// remove takes c out of use, and says whether it was in use. The register
// messages that wait are dropped: who hears that the peer is back sends them
// again.
func (p *peer) remove(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cur != c {
		return false
	}
	p.cur, p.since, p.up = nil, time.Now(), make(chan struct{})
	p.changes++
	p.stats.MessagesUnsent += uint64(p.box.clear())
	wake(p.lost)
	return true
}

// notify tells f of what has happened to the connection since the last call,
// in order and by the last state: up again after a replacement, too.
func (p *peer) notify(f func(v register.Voter, up bool)) {
	p.notifying.Lock()
	defer p.notifying.Unlock()
	p.mu.Lock()
	news := p.changes != p.notified
	p.notified = p.changes
	up := p.cur != nil && (p.cur.register || p.cur.e.id.Role == RoleObserver)
	p.mu.Unlock()
	if news && p.site.Role == RoleVoter {
		f(p.site.Number, up)
	}
}

// send queues an encoded register message, of which it keeps nothing.
func (p *peer) send(m []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cur == nil || !p.cur.register {
		p.stats.MessagesUnsent++
		return
	}
	if !p.box.push(m) {
		p.stats.MessagesDropped++
		return
	}
	wake(p.cur.messages)
}

// sendDatagram queues a gossip packet, also while there is no connection.
func (p *peer) sendDatagram(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gossip.push(b) {
		p.stats.DatagramsDropped++
	}
	if p.cur != nil {
		wake(p.cur.datagrams)
	}
}

// takeMessages returns the next batch for c and how many messages it has: none where none
// waits or c is no longer in use. It takes back the one before.
func (p *peer) takeMessages(c *conn, before []byte) ([]byte, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.box.give(before)
	if p.cur != c || !c.register {
		return nil, 0
	}
	return p.box.take()
}

// takeDatagram returns the next gossip packet for c, likewise.
func (p *peer) takeDatagram(c *conn) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cur != c {
		return nil
	}
	return p.gossip.pop()
}

// count changes the peer's counters.
func (p *peer) count(f func(*Counters)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// failed notes how the last dial went and says whether that is news.
func (p *peer) failed(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	news := p.failure != text
	p.failure = text
	return news
}

// Delays between dials of one peer.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	// steady is how long a connection must have stood for the next dial to
	// follow its end at once.
	steady = backoffMax
)

// keepConnected dials the peer whenever it has an address and no connection,
// until ctx ends. It never gives up.
func (e *Endpoint) keepConnected(ctx context.Context, p *peer) {
	var delay backoff
	for try := 0; ; try++ {
		addr := p.wanted()
		if addr == "" {
			if !p.rest(ctx, &delay) {
				return
			}
			continue
		}
		err := e.dial(ctx, p, addr, try)
		if ctx.Err() != nil {
			return
		}
		e.reportDial(p, addr, err)
		if err != nil && !delay.wait(ctx, p.readdressed) {
			return
		}
	}
}

// rest waits until there may be something to dial again, and longer where the
// last connection did not hold. It returns false where ctx ended first.
func (p *peer) rest(ctx context.Context, delay *backoff) bool {
	begin := time.Now()
	select {
	case <-p.lost:
		if time.Since(begin) < steady {
			return delay.wait(ctx, p.readdressed)
		}
		delay.reset()
	case <-p.readdressed:
		delay.reset()
	case <-ctx.Done():
		return false
	}
	return true
}

// reportDial logs a dial that failed in another way than the one before.
func (e *Endpoint) reportDial(p *peer, addr string, err error) {
	if p.failed(err) && err != nil {
		e.log.Warn("cannot connect, trying on", "peer", p.site.Name, "addr", addr, "err", err)
	}
}
