package agent

import (
	"slices"
	"sync"

	"gus/register"
)

const (
	// maxFeed is how many events a feed holds, and maxFeedBytes how much memory they
	// may take. Who is further behind reads the database.
	maxFeed      = 1 << 13
	maxFeedBytes = 4 << 20
	// eventBytes is about what an event takes beside its key and value.
	eventBytes = 256
)

// feed is what this site has come to know as settled, the last of it, in memory: so
// that a hundred who follow it cost no more than their own messages.
//
// Positions are those of events since the start. All methods may be called
// concurrently; only the loop publishes.
type feed struct {
	more tide // rises with each publication

	mu     sync.Mutex
	events []*event          // the last ones
	first  uint64            // the position of the first of them
	bytes  int               // that they take
	last   map[string]uint64 // the position of each key's last one
	turns  []turn            // in which they were published
	lost   register.Seq      // the highest before of turns that are not held whole any more
	upto   register.Seq      // of the last turn
}

// event is a write that has come to be known as settled.
type event struct {
	register.News
	once  sync.Once
	frame []byte // as observers are sent it
}

// turn is what was published at once: the events up to the position end, with the two
// numbers of Replica.Settled.
type turn struct {
	end          uint64
	upto, before register.Seq
}

func newFeed() *feed { return &feed{last: map[string]uint64{}} }

// publish tells what the replica has come to know as settled.
func (f *feed) publish(r *register.Replica) {
	var news []*event
	upto, before := r.Settled(func(n register.News) { news = append(news, &event{News: n}) })
	f.mu.Lock()
	if len(news) == 0 && upto == f.upto {
		f.mu.Unlock()
		return
	}
	f.upto = upto
	for _, e := range news {
		f.add(e)
	}
	if end := f.end(); len(news) > 0 {
		f.turns = append(f.turns, turn{end, upto, before})
	} else if n := len(f.turns); n > 0 && f.turns[n-1].end == end {
		f.turns[n-1].upto = upto
	}
	f.trim()
	f.mu.Unlock()
	if len(news) > 0 {
		f.more.rise()
	}
}

func (f *feed) end() uint64 { return f.first + uint64(len(f.events)) }

func (e *event) size() int { return eventBytes + len(e.Key) + len(e.Value) }

// add appends e, unless it is what the key's last event is.
func (f *feed) add(e *event) {
	if at, ok := f.last[e.Key]; ok && f.events[at-f.first].Tag == e.Tag {
		return
	}
	f.last[e.Key] = f.end()
	f.events = append(f.events, e)
	f.bytes += e.size()
}

// trim lets go of the oldest events.
func (f *feed) trim() {
	for len(f.events) > maxFeed || f.bytes > maxFeedBytes && len(f.events) > 1 {
		e := f.events[0]
		if f.last[e.Key] == f.first {
			delete(f.last, e.Key)
		}
		f.bytes -= e.size()
		f.events[0] = nil
		f.events = f.events[1:]
		if t := f.turns[0]; f.first < t.end {
			f.lost = max(f.lost, t.before)
		}
		f.first++
		for len(f.turns) > 0 && f.turns[0].end <= f.first {
			f.turns = f.turns[1:]
		}
	}
}

// from returns the position from where on to follow the feed, for who has read all
// that the database has up to the save end. It returns false where some of that is
// not held any more.
func (f *feed) from(end register.Seq) (at uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost > end {
		return 0, false
	}
	at = f.first
	for _, t := range f.turns {
		if t.before > end {
			return at, true
		}
		at = t.end
	}
	return f.end(), true
}

// read returns events from a position on, so many at most and about so many bytes, and
// the position after them. Of those that the same key has several of, the last one
// counts. upto is the save up to which all is told with them; 0: no further than it was
// before. It returns false where what follows at is not held any more.
func (f *feed) read(at uint64, most, bytes int) (events []*event, next uint64, upto register.Seq, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at < f.first {
		return nil, at, 0, false
	}
	size := 0
	for next = at; next < f.end() && len(events) < most && size < bytes; next++ {
		if e := f.events[next-f.first]; f.last[e.Key] == next {
			events = append(events, e)
			size += e.size()
		}
	}
	if next == f.end() {
		return events, next, f.upto, true
	}
	i, found := slices.BinarySearchFunc(f.turns, next, func(t turn, at uint64) int {
		switch {
		case t.end < at:
			return -1
		case t.end > at:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i >= 0 {
		upto = f.turns[i].upto
	}
	return events, next, upto, true
}

// position returns the position after the last event.
func (f *feed) position() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end()
}
