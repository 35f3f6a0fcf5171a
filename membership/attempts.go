package membership

import (
	"sync"
	"time"
)

const (
	// maxFailures is how many attempts to join may fail from one host in
	// attemptsWindow.
	maxFailures    = 10
	attemptsWindow = time.Minute
	// maxHosts is how many hosts are watched; while there are more, nobody new
	// is let try.
	maxHosts = 1024
)

// attempts counts failed attempts to join by where they came from. A secret
// cannot be guessed anyway: this spares the founding site the work and the log
// the lines.
type attempts struct {
	mu   sync.Mutex
	from map[string]*tries
}

type tries struct {
	failures int
	end      time.Time // of the window
}

// allow says whether somebody at host may try.
func (a *attempts) allow(host string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for h, t := range a.from {
		if !now.Before(t.end) {
			delete(a.from, h)
		}
	}
	t := a.from[host]
	if t == nil {
		return len(a.from) < maxHosts
	}
	return t.failures < maxFailures
}

// failed notes that an attempt has failed.
func (a *attempts) failed(host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.from[host]
	if t == nil {
		t = &tries{end: time.Now().Add(attemptsWindow)}
		a.from[host] = t
	}
	t.failures++
}
