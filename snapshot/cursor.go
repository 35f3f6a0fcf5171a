package snapshot

import (
	"database/sql"
	"maps"
	"time"

	"gus/register"
)

// Cursor is a position in the changes of a database, this one or another's.
type Cursor struct {
	Database uint64       // which start of which database: see Store.Database
	Seq      register.Seq // all changes up to it have been taken in
}

// maxCursors is how many names may have one.
const maxCursors = 64

// cursors are those that were set, by name, and which of them are not saved.
type cursors struct {
	all   map[string]Cursor
	dirty map[string]bool
	due   time.Time // by when they are to be saved; zero: all are
	full  bool      // and the logger was told
}

// Cluster is the id of the cluster that the database belongs to. Safe for concurrent use.
func (s *Store) Cluster() string { return s.opts.Cluster }

// Cursors returns the cursors that were set, by name; not all of them need be
// durable yet. Safe for concurrent use.
func (s *Store) Cursors() map[string]Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.cursors.all)
}

// SetCursor gives name a cursor, or takes it away where c is zero, and returns
// at once. It becomes durable with the next transaction or within about a
// second, where the disk has room, and never before a save that was reported as done
// before the call; after a crash an older one may be there. At most 64 names
// have a cursor: further ones are dropped, and the logger is told once. Safe
// for concurrent use before Close.
func (s *Store) SetCursor(name string, c Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.cursors.all[name]
	if old == c {
		return
	}
	if !known && len(s.cursors.all) >= maxCursors {
		if !s.cursors.full {
			s.log.Warn("there are too many cursors, one is not kept", "name", name, "kept", maxCursors)
		}
		s.cursors.full = true
		return
	}
	if c == (Cursor{}) {
		delete(s.cursors.all, name)
	} else {
		s.cursors.all[name] = c
	}
	s.cursors.dirty[name] = true
	if s.cursors.due.IsZero() {
		s.cursors.due = time.Now().Add(cursorDelay)
		select {
		case s.wake <- struct{}{}:
		default: // it is about to wake
		}
	}
}

func (s *Store) cursorsDue() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursors.due
}

// transact runs body in a transaction of the writer, and saves in it the
// cursors that wait for one.
func (s *Store) transact(body func() error) error {
	s.mu.Lock()
	saving := make(map[string]Cursor, len(s.cursors.dirty))
	for name := range s.cursors.dirty {
		saving[name] = s.cursors.all[name]
	}
	s.mu.Unlock()
	s.commits.Lock()
	err := s.statements.transact(func() error {
		if err := body(); err != nil {
			return err
		}
		return s.putCursors(saving)
	})
	s.commits.Unlock()
	if err != nil {
		return err
	}
	s.grown++
	if len(saving) > 0 {
		s.saved(saving)
	}
	if s.opts.committed != nil {
		s.opts.committed()
	}
	return nil
}

// putCursors saves cursors, within a transaction.
func (s *Store) putCursors(saving map[string]Cursor) error {
	for name, c := range saving {
		var err error
		if c == (Cursor{}) {
			_, err = s.statements.cursorDrop.Exec(name)
		} else {
			_, err = s.statements.cursorPut.Exec(name, int64(c.Database), int64(c.Seq), c.sum(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c Cursor) sum(name string) int64 {
	return sumOf("cursors", name, int64(c.Database), int64(c.Seq))
}

// saved takes note of cursors that are durable, unless they are others by now.
func (s *Store) saved(saving map[string]Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range saving {
		if s.cursors.all[name] == c {
			delete(s.cursors.dirty, name)
		}
	}
	s.cursors.due = time.Time{}
	if len(s.cursors.dirty) > 0 {
		s.cursors.due = time.Now().Add(cursorDelay)
	}
}

// loadCursors reads those that are durable.
func (s *Store) loadCursors(tx *sql.Tx) error {
	s.cursors = cursors{all: map[string]Cursor{}, dirty: map[string]bool{}}
	rows, err := tx.Query("SELECT name, database, seq, sum FROM cursors")
	if err != nil {
		return incomplete(s.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var database, seq, sum int64
		if err := rows.Scan(&name, &database, &seq, &sum); err != nil {
			return unreadable(s.path, err)
		}
		c := Cursor{uint64(database), register.Seq(seq)}
		if c.sum(name) != sum {
			return damaged(s.path, "the cursor of %q: %v", name, errChecksum)
		}
		s.cursors.all[name] = c
	}
	return explain(s.path, rows.Err())
}
