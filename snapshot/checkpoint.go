package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"

	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite's log is emptied in two steps, so that no save waits for its pages to
// be written where they belong, or for the sync after that. The mover moves what the log
// holds into the database while saves go on. What they have added meanwhile is
// little, and the writer moves that itself: only then SQLite begins the log anew.
//
// As SQLite does it by itself, each save that fills the log waits for all.

// mover moves pages on a goroutine and a connection of its own.
type mover struct {
	db    *sql.DB
	conn  *sql.Conn
	begin chan struct{} // room for one
	ended chan error    // room for one: each begin is followed by one

	// What follows belongs to the writer.
	under bool  // way
	log   int64 // pages in SQLite's log, when last looked
	next  int64 // how many there are when the next move begins
}

const (
	moveLog = "PRAGMA wal_checkpoint(PASSIVE)"
	lookLog = "PRAGMA wal_checkpoint(NOOP)" // says the same and does nothing
)

const (
	lookEvery = 32 // into how many parts the way to the next move is divided by looking
	layParts  = 8  // and by making the log longer
	pageSize  = 4 << 10
	walFrame  = walFrameHeader + pageSize
)

// layOut makes SQLite's log longer ahead of what is written to it, up to where it begins anew. A
// sync of what is written over has only that to write; where the file grows with each
// save, the file system writes down its length as well, which doubles the time of a small one. It
// appends, so nothing of SQLite's is written over, and zeros are no frame. The next
// commit syncs them; where there is no room for them, the log grows as ever.
func (s *Store) layOut() {
	ahead, end := s.opts.bounds.log/layParts*walFrame, s.mover.log*walFrame
	f, err := os.OpenFile(s.path+"-wal", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() < 2*s.opts.bounds.log*walFrame && info.Size()-end < ahead/2 {
		_, _ = f.Write(make([]byte, ahead))
	}
}

// openMover makes the mover's connection.
func (s *Store) openMover() (err error) {
	m := &s.mover
	m.db, m.conn, err = connect(s.path, url.Values{"mode": {"rw"}, "_synchronous": {"FULL"}})
	m.begin, m.ended = make(chan struct{}, 1), make(chan error, 1)
	m.next = s.opts.bounds.log
	return err
}

// run moves when it is told to, until begin is closed.
func (m *mover) run() {
	defer close(m.ended)
	for range m.begin {
		var busy, log, moved int64
		m.ended <- m.conn.QueryRowContext(context.Background(), moveLog).Scan(&busy, &log, &moved)
	}
}

func (m *mover) close() error {
	if m.db == nil {
		return nil
	}
	return errors.Join(m.conn.Close(), m.db.Close())
}

// tendLog begins a move where SQLite's log has become long, and ends what one
// has left of it. The writer calls it between transactions.
func (s *Store) tendLog() {
	m := &s.mover
	if m.under {
		select {
		case err := <-m.ended:
			s.moved(err)
		default:
		}
	}
	if s.broken != nil || s.grown < max(1, s.opts.bounds.log/lookEvery) {
		return // most saves write a page or two, and to look costs a tenth of a small one
	}
	s.grown = 0
	was := m.log
	if err := s.pragmaLog(s.statements.logLook); err != nil {
		s.failedMove(err)
		return
	}
	s.layOut()
	b := s.opts.bounds.log
	if m.log < was {
		m.next = b // it has begun anew
	}
	switch {
	case m.log < m.next:
	case !m.under:
		m.under, m.next = true, m.log+b
		m.begin <- struct{}{}
	case m.log >= m.next+2*b: // saves outrun it
		s.moved(<-m.ended)
	}
}

// moved ends what a move has left, where the log is so long that it is to begin anew.
func (s *Store) moved(err error) {
	m := &s.mover
	m.under = false
	if err == nil && s.broken == nil && m.log >= 2*s.opts.bounds.log {
		err = s.pragmaLog(s.statements.logMove)
	}
	if err != nil {
		s.failedMove(err)
	}
}

// pragmaLog notes how long the log is.
func (s *Store) pragmaLog(stmt *sql.Stmt) error {
	var busy, moved int64
	return stmt.QueryRow().Scan(&busy, &s.mover.log, &moved)
}

// failedMove takes note of why pages could not be moved. For want of space that
// is tried again once the log has grown further. After any other failure nobody knows
// what of them the database holds: no save may rest on that.
func (s *Store) failedMove(err error) {
	if code, ok := resultCode(err); ok && (code&0xff == sqlite3.SQLITE_BUSY || code&0xff == sqlite3.SQLITE_LOCKED) {
		return // somebody reads through the same connection: nothing was moved, and will be later
	}
	if err := s.failed(fmt.Errorf("move pages from SQLite's log: %w", err)); !errors.Is(err, ErrRolledBack) {
		s.log.Error("saving has ended", "error", err)
	}
}
