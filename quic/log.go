package quic

import (
	"log/slog"
	"sync"
	"time"
)

// logInterval is the least time between two lines of a limitedLog.
const logInterval = 10 * time.Second

// limitedLog writes the warnings that other machines can cause, and so must
// not be able to flood the log with: of each message one an interval, with the
// number of those that were left out.
type limitedLog struct {
	log *slog.Logger

	mu      sync.Mutex
	written map[string]lines // by message, of which there are a handful
}

type lines struct {
	next    time.Time
	skipped int
}

func (l *limitedLog) warn(msg string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, w := time.Now(), l.written[msg]
	if now.Before(w.next) {
		w.skipped++
		l.written[msg] = w
		return
	}
	if w.skipped > 0 {
		args = append(args, "skipped", w.skipped)
	}
	l.log.Warn(msg, args...)
	l.written[msg] = lines{next: now.Add(logInterval)}
}
