package membership

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// bridgeInterval is the least time between two lines of one level.
const bridgeInterval = 10 * time.Second

// seldom says when a line is due that others can cause as often as they like.
type seldom struct {
	mu   sync.Mutex
	next time.Time
}

// due says whether a line may be written now: one an interval.
func (s *seldom) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(bridgeInterval)
	return true
}

// bridge puts memberlist's lines into the agent's log, of each level one an
// interval: what is news about a site this package says itself, and the rest is
// for whoever looks for a fault in gossip. It is the Writer of a log.Logger.
type bridge struct {
	log *slog.Logger

	mu      sync.Mutex
	next    map[slog.Level]time.Time
	skipped map[slog.Level]int
}

func newBridge(log *slog.Logger) *bridge {
	return &bridge{log: log, next: make(map[slog.Level]time.Time), skipped: make(map[slog.Level]int)}
}

// bridgeLevels are one step calmer than memberlist's: its errors are a peer's
// bad moments, which gossip is made for.
var bridgeLevels = map[string]slog.Level{"ERR": slog.LevelInfo, "ERROR": slog.LevelInfo, "WARN": slog.LevelInfo}

func (b *bridge) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	level := slog.LevelDebug
	if rest, ok := strings.CutPrefix(text, "["); ok {
		if name, after, ok := strings.Cut(rest, "] "); ok {
			text = after
			if l, ok := bridgeLevels[name]; ok {
				level = l
			}
		}
	}
	b.write(level, strings.TrimPrefix(text, "memberlist: "))
	return len(line), nil
}

func (b *bridge) write(level slog.Level, text string) {
	ctx := context.Background()
	if !b.log.Enabled(ctx, level) {
		return
	}
	b.mu.Lock()
	now := time.Now()
	if now.Before(b.next[level]) {
		b.skipped[level]++
		b.mu.Unlock()
		return
	}
	skipped := b.skipped[level]
	b.next[level], b.skipped[level] = now.Add(bridgeInterval), 0
	b.mu.Unlock()
	b.log.Log(ctx, level, "gossip", "says", text, "skipped", skipped)
}
