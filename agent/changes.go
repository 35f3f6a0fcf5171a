package agent

import (
	"fmt"
	"iter"

	"gus/register"
	"gus/snapshot"
)

// changes reads which keys a database has changed, page by page, in the order in
// which they were changed last. stop must follow.
type changes struct {
	next  func() (snapshot.Change, error, bool)
	stop  func()
	ahead *snapshot.Change
	last  register.Seq // those above it are left out
	end   register.Seq // with which they are complete
	upto  register.Seq // all up to it are in the pages so far
}

// newChanges begins after the save of that number. What the disk has and the
// replica has not heard of yet is not passed over: the changes are complete up to where
// both are, of which durable is the replica's. A key that is changed again meanwhile may
// be left out, unless again is set: who is not going to come back for what is above the end needs it.
func newChanges(store *snapshot.Store, after, durable register.Seq, again bool) *changes {
	all, end := store.Changes(after)
	c := &changes{upto: after, last: end, end: max(after, min(end, durable))}
	if again {
		c.last = ^register.Seq(0)
	}
	c.next, c.stop = iter.Pull2(all)
	return c
}

// look reads the next change ahead.
func (c *changes) look() error {
	c.ahead = nil
	change, err, ok := c.next()
	if err != nil {
		return fmt.Errorf("read what has changed: %w", err)
	}
	if ok && change.Seq <= c.last {
		c.ahead = &change
	}
	return nil
}

// ended says whether all were in the pages so far.
func (c *changes) ended() bool { return c.ahead == nil }

// page returns the next keys: so many, or so many bytes of them with the last one.
func (c *changes) page(most, bytes int) (keys []string, err error) {
	last := c.upto
	for size := 0; c.ahead != nil && len(keys) < most && size < bytes; {
		keys, size, last = append(keys, c.ahead.Key), size+len(c.ahead.Key), c.ahead.Seq
		if err := c.look(); err != nil {
			return nil, err
		}
	}
	switch {
	case c.ahead == nil:
		last = c.end
	case c.ahead.Seq == last: // the rest of that save is in the next page
		last = max(last-1, c.upto)
	}
	c.upto = min(last, c.end)
	return keys, nil
}
