package quic

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is a growing delay, with jitter so that sites that were parted
// together do not come back together. The zero value begins at backoffMin.
type backoff struct{ next time.Duration }

// reset makes the next wait the shortest.
func (b *backoff) reset() { b.next = 0 }

// wait lets the delay pass, or until news comes, after which it begins anew.
// It returns false where ctx ended first.
func (b *backoff) wait(ctx context.Context, news <-chan struct{}) bool {
	d := max(b.next, backoffMin)
	b.next = min(2*d, backoffMax)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-news:
		b.reset()
		return true
	case <-ctx.Done():
		return false
	}
}
