package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"slices"
	"sort"

	"gus/register"
)

// Change says that a save has changed a key.
type Change struct {
	Seq register.Seq // in the order of changes: not below the last such save, nor above Last
	Key string       // not empty
}

// recent is a change that need not be in the current records yet.
type recent struct {
	seq  register.Seq
	spot *spot
	full bool // not only a mark
}

// after returns the changes above seq. They are in the order of their numbers.
func after(list []recent, seq register.Seq) []recent {
	return list[sort.Search(len(list), func(i int) bool { return list[i].seq > seq }):]
}

// minCompact is from how many changes on compacting them is worth while.
const minCompact = 1 << 12

// note takes note of a change at a spot.
func (s *Store) note(at *spot, seq register.Seq, full bool) {
	at.seq, at.full = seq, at.full || full
	s.recent = append(s.recent, recent{seq, at, full})
}

// compacted returns of each spot in list the last change, in order: keys that
// are written all the time are in it once, or twice while they are being folded. It changes nothing of list, which
// somebody may be reading. There is room for as much again.
func compacted(list []recent) []recent {
	n := 0
	for _, r := range list {
		if r.seq == r.spot.seq {
			n++
		}
	}
	newest := make([]recent, 0, 2*max(n, minCompact)+minCompact)
	for _, r := range list {
		if r.seq == r.spot.seq {
			r.full = r.spot.full
			newest = append(newest, r)
		}
	}
	return newest
}

// page is how many rows Changes and Keys read at once, in a transaction of
// their own, so that SQLite's log can shrink in between.
const page = 1000

// Changes yields each key that a save above since has changed, in the order
// of their numbers. A key's number is that of the last save that has changed it
// or, once an epoch has folded it, of the last save that the epoch covers: so
// some keys may come again whose last change was before since. end is Last at
// the call: whoever has taken in all of it has all changes up to end. A key
// that is changed again meanwhile may come with a number above end, or with both.
// A key of which there was never more than a mark may be there. It ends
// with an error if it cannot go on. Its memory is bounded by that of the log,
// however long the backlog. It may be read more than once. Safe for concurrent
// use before Close.
func (s *Store) Changes(since register.Seq) (changes iter.Seq2[Change, error], end register.Seq) {
	s.mu.Lock()
	logged := after(s.recent, since)
	end = s.Last()
	s.mu.Unlock()
	return func(yield func(Change, error) bool) {
		if since >= end {
			return // and what is above 63 bits is no number to SQLite
		}
		newest, inLog := lastOf(logged)
		emit := func(seq register.Seq, key string) bool {
			return key == "" || yield(Change{seq, key}, nil)
		}
		for row, err := range s.changedRows(since) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			for len(newest) > 0 && newest[0].seq < row.seq {
				if !emit(newest[0].seq, newest[0].spot.place[1:]) {
					return
				}
				newest = newest[1:]
			}
			if inLog[place(row.part, row.key)] {
				continue // it comes, or came, with the number that the log has
			}
			if !emit(row.seq, string(row.key)) {
				return
			}
		}
		for _, r := range newest {
			if !emit(r.seq, r.spot.place[1:]) {
				return
			}
		}
	}, end
}

// lastOf returns of each place in list the last change, in order, and all
// places.
func lastOf(list []recent) (newest []recent, places map[string]bool) {
	places = make(map[string]bool, len(list))
	for _, r := range slices.Backward(list) {
		if !places[r.spot.place] {
			places[r.spot.place] = true
			newest = append(newest, r)
		}
	}
	slices.Reverse(newest)
	return newest, places
}

// changed is a row of the index on the current records.
type changed struct {
	part int64
	key  []byte
	seq  register.Seq
	sum  int64
}

// changedRows yields the rows of the index with numbers above since, page by page. An
// epoch moves rows on meanwhile, never to before what is read already.
func (s *Store) changedRows(since register.Seq) iter.Seq2[changed, error] {
	const first = "SELECT seq, sum, part, key FROM records INDEXED BY changed WHERE seq > ? ORDER BY seq, part, key LIMIT ?"
	const next = "SELECT seq, sum, part, key FROM records INDEXED BY changed WHERE (seq, part, key) > (?, ?, ?) ORDER BY seq, part, key LIMIT ?"
	return func(yield func(changed, error) bool) {
		query, args := first, []any{int64(since), page}
		for {
			var list []changed
			err := s.read(query, args, func(rows *sql.Rows) error {
				var c changed
				if err := rows.Scan(&c.seq, &c.sum, &c.part, &c.key); err != nil {
					return err
				}
				if uint32(c.sum>>32) != orderSum(c.key, c.seq) || register.Partition(string(c.key)) != int(c.part) {
					return damaged(s.path, "the order of changes at save %d, key %q: %v", c.seq, c.key, errChecksum)
				}
				list = append(list, c)
				return nil
			})
			if err != nil {
				yield(changed{}, err)
				return
			}
			for _, c := range list {
				if !yield(c, nil) {
					return
				}
			}
			if len(list) < page {
				return
			}
			last := list[page-1]
			query, args = next, []any{int64(last.seq), last.part, last.key, page}
		}
	}
}

// Keys yields the keys of a partition (register.Partition) in their order: all
// that had a record at the call, and of those that come meanwhile some. It
// ends with an error if it cannot go on. Safe for concurrent use before Close.
func (s *Store) Keys(part int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s.mu.Lock()
		logged := s.recent
		s.mu.Unlock()
		var unfolded []string
		for _, r := range logged {
			if int(r.spot.place[0]) == part && r.full {
				unfolded = append(unfolded, r.spot.place[1:])
			}
		}
		slices.Sort(unfolded)
		unfolded = slices.Compact(unfolded)
		emit := func(key string) bool { return key == "" || yield(key, nil) }
		for key, err := range s.keyRows(part) {
			if err != nil {
				yield("", err)
				return
			}
			for len(unfolded) > 0 && unfolded[0] <= key {
				if unfolded[0] < key && !emit(unfolded[0]) {
					return
				}
				unfolded = unfolded[1:]
			}
			if !emit(key) {
				return
			}
		}
		for _, key := range unfolded {
			if !emit(key) {
				return
			}
		}
	}
}

// keyRows yields the keys of a partition's current records, page by page.
func (s *Store) keyRows(part int) iter.Seq2[string, error] {
	const query = "SELECT key, seq, sum FROM records WHERE part = ? AND key >= ? ORDER BY key LIMIT ?"
	return func(yield func(string, error) bool) {
		from := []byte{} // the least key that is still to come
		for {
			var keys []string
			err := s.read(query, []any{int64(part), from, page}, func(rows *sql.Rows) error {
				var key sql.RawBytes
				var seq register.Seq
				var sum int64
				if err := rows.Scan(&key, &seq, &sum); err != nil {
					return err
				}
				if uint32(sum>>32) != orderSum(key, seq) {
					return damaged(s.path, "the record of %q: %v", key, errChecksum)
				}
				keys = append(keys, string(key))
				return nil
			})
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range keys {
				if !yield(key, nil) {
					return
				}
			}
			if len(keys) < page {
				return
			}
			from = append([]byte(keys[page-1]), 0)
		}
	}
}

// read calls each with the rows that query finds, in a transaction that ends
// before it returns.
func (s *Store) read(query string, args []any, each func(*sql.Rows) error) (err error) {
	rows, err := s.readers.QueryContext(context.Background(), query, args...)
	if err != nil {
		return explain(s.path, err)
	}
	defer func() { err = errors.Join(err, explain(s.path, rows.Close())) }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return unreadable(s.path, err)
		}
	}
	return explain(s.path, rows.Err())
}
