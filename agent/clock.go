package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"gus/agent/client"
	"gus/quic"
)

// purposeClock is that of a stream on which a site tells the time: one frame of
// eight bytes, microseconds since 1970, big endian.
const purposeClock quic.Purpose = 3

const (
	// clockInterval is how often a peer is asked, clockLook how often there is
	// a look for peers that were not asked yet.
	clockInterval = 5 * time.Minute
	clockLook     = 10 * time.Second
	clockTimeout  = 5 * time.Second
	// maxClockOffset is how far two clocks may be apart. Nothing breaks beyond: versions
	// only tell wrong times then, and of two sets at once that of the later clock stays.
	maxClockOffset = time.Second
)

// clocks compares this site's clock with those of its peers, for people: nothing
// that the protocol decides depends on it.
type clocks struct {
	now func() time.Time
	log *slog.Logger

	mu    sync.Mutex
	peers map[string]clockOf
}

// clockOf is what is known of a peer's clock.
type clockOf struct {
	client.Clock
	asked time.Time
	boot  uint64 // of the peer that was asked: after its restart it is asked again
}

func newClocks(log *slog.Logger) *clocks {
	return &clocks{now: newClock(), log: log, peers: map[string]clockOf{}}
}

// tell serves a stream of purposeClock.
func (c *clocks) tell(_ context.Context, _ quic.Site, s *quic.Stream) {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.now().UnixMicro()))
	if err := s.SetDeadline(time.Now().Add(clockTimeout)); err == nil {
		_ = quic.WriteFrame(s, b) // who asked and left needs no answer
	}
}

// run asks the voters among the peers of e until ctx ends.
func (c *clocks) run(ctx context.Context, e *quic.Endpoint) error {
	tick := time.NewTicker(clockLook)
	defer tick.Stop()
	for {
		for _, p := range e.Status().Peers {
			// The times in versions are voters'.
			if ctx.Err() == nil && p.Role == quic.RoleVoter && c.due(p) {
				c.compare(ctx, e, p)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// due says whether p is to be asked, and notes that it is. A site that is gone
// tells no time.
func (c *clocks) due(p quic.PeerStatus) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.Connected {
		delete(c.peers, p.Name)
		return false
	}
	known, ok := c.peers[p.Name]
	if ok && known.boot == p.Boot && time.Since(known.asked) < clockInterval {
		return false
	}
	known.asked, known.boot = time.Now(), p.Boot
	c.peers[p.Name] = known
	return true
}

// compare asks p, and logs where its clock begins or ceases to be far off.
func (c *clocks) compare(ctx context.Context, e *quic.Endpoint, p quic.PeerStatus) {
	got, err := c.ask(ctx, e, p.Name)
	if err != nil {
		c.log.Debug("cannot compare clocks", "peer", p.Name, "err", err)
		return
	}
	c.mu.Lock()
	known := c.peers[p.Name]
	before := farOff(known.Clock)
	known.Clock = got
	c.peers[p.Name] = known
	c.mu.Unlock()
	switch after := farOff(got); {
	case after && !before:
		c.log.Warn("a site's clock is not this one's: set both by NTP", "peer", p.Name, "ahead", time.Duration(got.Ahead))
	case before && !after:
		c.log.Info("a site's clock is this one's again", "peer", p.Name)
	}
}

// ask takes the middle of the way there and back for the moment of the answer.
func (c *clocks) ask(ctx context.Context, e *quic.Endpoint, peer string) (client.Clock, error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	begin, sent := time.Now(), c.now()
	s, err := e.OpenStream(ctx, peer, purposeClock)
	if err != nil {
		return client.Clock{}, err
	}
	defer s.Close()
	if err := s.SetDeadline(begin.Add(clockTimeout)); err != nil {
		return client.Clock{}, fmt.Errorf("ask for the time: %w", err)
	}
	b, err := quic.ReadFrame(s, 8)
	if err != nil {
		return client.Clock{}, fmt.Errorf("ask for the time: %w", err)
	}
	if len(b) != 8 {
		return client.Clock{}, fmt.Errorf("ask for the time: an answer of %d bytes", len(b))
	}
	half := time.Since(begin) / 2
	told := time.UnixMicro(int64(binary.BigEndian.Uint64(b)))
	return client.Clock{Ahead: client.Duration(told.Sub(sent.Add(half))), Error: client.Duration(half)}, nil
}

// farOff says whether a clock is too far off, whatever the way there took.
func farOff(c client.Clock) bool {
	return time.Duration(c.Ahead).Abs()-time.Duration(c.Error) > maxClockOffset
}

// known returns the clocks that were compared, by site.
func (c *clocks) known() map[string]client.Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]client.Clock{}
	for name, p := range c.peers {
		if p.Clock != (client.Clock{}) {
			all[name] = p.Clock
		}
	}
	return all
}
