package agent

import (
	"context"
	"time"

	"gus/register"
)

const (
	// maxVisit is for how long a visit may hold the loop up, by and by, and
	// maxVisited how much it may do in that time.
	maxVisit   = 200 * time.Microsecond
	maxVisited = 256
)

// visit has the loop call f with the replica in one of its turns, and returns
// after that. What f does must be short. A turn takes in one visit at most, so
// that clients go first.
func (l *loop) visit(ctx context.Context, f func(*register.Replica)) error {
	done := make(chan struct{})
	select {
	case l.visits <- func(r *register.Replica) { f(r); close(done) }:
		<-done // the loop has taken it, and is at it
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.desk.stopped:
		return errStopping()
	}
}

// each has the loop call f with 0 to n-1, in as many visits as it takes.
func (l *loop) each(ctx context.Context, n int, f func(r *register.Replica, i int)) error {
	for i := 0; i < n; {
		err := l.visit(ctx, func(r *register.Replica) {
			begin, end := time.Now(), min(n, i+maxVisited)
			for more := true; more; more = i < end && time.Since(begin) < maxVisit {
				f(r, i)
				i++
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// show returns what this voter shows of each of keys.
func (l *loop) show(ctx context.Context, keys []string) ([]register.Shown, error) {
	shown := make([]register.Shown, 0, len(keys))
	err := l.each(ctx, len(keys), func(r *register.Replica, i int) {
		shown = append(shown, r.Show(keys[i:i+1])...)
	})
	return shown, err
}
