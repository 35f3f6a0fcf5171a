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
	_, err := l.offer(ctx, l.visits, nil, f)
	return err
}

// join is visit, and first waits that long for a turn after which something is to be
// saved anyway: what f changes goes with that, and costs no sync of its own.
func (l *loop) join(ctx context.Context, wait time.Duration, f func(*register.Replica)) error {
	if wait > 0 {
		late := time.NewTimer(wait)
		defer late.Stop()
		if done, err := l.offer(ctx, l.joining, late.C, f); done || err != nil {
			return err
		}
	}
	return l.visit(ctx, f)
}

// letJoin takes in a visit that waits for something to save, if there is.
func (l *loop) letJoin() {
	known := l.replica.Durable()
	if !l.saveFrom.IsZero() {
		known++ // the save under way
	}
	if l.replica.Covers() <= known {
		return
	}
	select {
	case f := <-l.joining:
		f(l.replica)
	default:
	}
}

// offer has the loop call f, unless it has not taken it when it is late.
func (l *loop) offer(ctx context.Context, to chan<- func(*register.Replica), late <-chan time.Time, f func(*register.Replica)) (done bool, err error) {
	over := make(chan struct{})
	select {
	case to <- func(r *register.Replica) { f(r); close(over) }:
		<-over // the loop has taken it, and is at it
		return true, nil
	case <-late:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-l.desk.stopped:
		return false, errStopping()
	}
}

// each has the loop call f with 0 to n-1, in as many visits as it takes.
func (l *loop) each(ctx context.Context, n int, f func(r *register.Replica, i int)) error {
	return l.joinEach(ctx, 0, n, f)
}

// joinEach is each, with visits that wait as those of join.
func (l *loop) joinEach(ctx context.Context, wait time.Duration, n int, f func(r *register.Replica, i int)) error {
	for i := 0; i < n; {
		err := l.join(ctx, wait, func(r *register.Replica) {
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
