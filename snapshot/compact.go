package snapshot

import (
	"database/sql"
	"errors"
	"time"
)

// compactSome does the next step of a compaction.
func (s *Store) compactSome() {
	if s.history.limit == 0 {
		s.step("see which epochs are old", s.limitHistory)
		return
	}
	s.step("delete old versions", s.dropVersions)
}

// limitHistory sees which epochs are kept no more, and forgets them. Their versions
// go after that: nobody can ask for them any more, whatever happens in between.
func (s *Store) limitHistory() error {
	h := s.history
	h.looks = false
	ran := h.ran()
	for {
		list, err := s.oldestMoments(h.oldest)
		if err != nil {
			return err
		}
		i := 0
		for ; i+1 < len(list); i++ {
			next := list[i+1]
			if !s.opts.Retain.old(&h, ran-next.ran) {
				break
			}
			h.oldest, h.bytes, h.epochs = next.number, h.bytes-next.bytes, h.epochs-1
		}
		if i+1 < momentsAtOnce {
			break
		}
	}
	h.limit = h.oldest
	err := s.transact(func() error {
		_, err := s.statements.timeDrop.Exec(h.oldest)
		return err
	})
	if err == nil {
		s.history = h
		s.show()
	}
	return err
}

// old says whether the oldest epoch may go, where the one after it is of that age.
func (r *Retention) old(h *history, age time.Duration) bool {
	return age >= r.For || r.Bytes > 0 && h.bytes > r.Bytes || r.Epochs > 0 && h.epochs > r.Epochs
}

// momentsAtOnce is how many rows of the timeline are looked at in one go.
const momentsAtOnce = 1000

// oldestMoments returns complete epochs from that number on.
func (s *Store) oldestMoments(from int64) (list []moment, err error) {
	rows, err := s.statements.timeOldest.Query(from, momentsAtOnce)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m moment
		if err := m.scan(rows); err != nil {
			return nil, unreadable(s.path, err)
		}
		if m.number <= s.whole.number {
			list = append(list, m)
		}
	}
	return list, rows.Err()
}

// dropVersions deletes the next versions that ended before the oldest epoch, or with it. They
// stand at the beginning of the table. What they leave free, SQLite uses again; the file
// does not become smaller.
func (s *Store) dropVersions() error {
	most := int64(compactRows)
	if s.easy() {
		most /= 4
	}
	limit := s.history.limit
	until, part, key := limit+1, int64(0), []byte{}
	ends := true
	err := s.transact(func() error {
		var u, p int64
		var k []byte
		err := s.statements.versionNext.QueryRow(most).Scan(&u, &p, &k)
		switch {
		case err == nil && u <= limit:
			until, part, key, ends = u, p, k, false
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return err
		}
		_, err = s.statements.versionDrop.Exec(until, part, key)
		return err
	})
	if err == nil && ends {
		s.history.limit = 0
	}
	return err
}
