package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"net/url"

	"gus/register"
)

// What is read of the tables, in the order of row.
const (
	currentRows = "SELECT 0, seq, sum, body FROM records ORDER BY part, key"
	logRows     = "SELECT id, seq, sum, body FROM log ORDER BY id"
)

// Records yields what is saved: of each key the folded record, then those of
// the log in the order in which they were saved, older before newer. It ends
// with an error, ErrDamaged among them, if it cannot go on. It reads one
// state of the database, on a connection of its own, with memory for one row:
// at most 256 records. Safe for concurrent use before Close; while it is
// read, the file gus.db-wal cannot shrink.
func (s *Store) Records() iter.Seq2[register.Record, error] {
	return func(yield func(register.Record, error) bool) {
		stopped := false
		err := s.replay(func(r register.Record) (more bool) {
			stopped = !yield(r, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(register.Record{}, err)
		}
	}
}

// replay calls each with all records, until it wants no more.
func (s *Store) replay(each func(register.Record) (more bool)) (err error) {
	db, conn, err := connect(s.path, url.Values{"mode": {"ro"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(), db.Close()) }()
	// A transaction, so that a record which is folded meanwhile does not go
	// unseen in both tables.
	tx, err := conn.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(s.path, err)
	}
	defer tx.Rollback() // nothing was written
	f, err := s.readFold(tx)
	if err != nil {
		return err
	}
	for _, query := range []string{currentRows, logRows} {
		for row, err := range s.readRows(tx, query) {
			if err != nil {
				return err
			}
			for _, r := range row.records {
				if query == logRows && f.covers(row.id, s.codec.place(r.Key)) {
					continue
				}
				if !each(r) {
					return nil
				}
			}
		}
	}
	return nil
}

// inspect refuses a database that is not ours or is damaged, and loads where it
// stands. It has a connection of its own which cannot write: the closing of one
// that can would move SQLite's log into a database that was refused.
func (s *Store) inspect() error {
	db, conn, err := connect(s.path, url.Values{"mode": {"ro"}})
	if err != nil {
		return err
	}
	err = verify(conn, s.path, s.opts.Cluster)
	if err == nil {
		err = s.load(conn)
	}
	return errors.Join(err, conn.Close(), db.Close())
}

// load reads where the database stands: how far it is folded, and the log,
// which is checked by that.
func (s *Store) load(conn *sql.Conn) error {
	tx, err := conn.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(s.path, err)
	}
	defer tx.Rollback() // nothing was written
	f, err := s.readFold(tx)
	if err != nil {
		return err
	}
	last, id, underWay := f.seq, int64(0), changes{}
	for row, err := range s.readRows(tx, logRows) {
		if err != nil {
			return err
		}
		if id == 0 {
			f.dropped = row.id - 1
		}
		into := s.changes
		if row.id <= f.target {
			into = underWay
			f.rows, f.size = f.rows+1, f.size+row.size
		}
		for _, r := range row.records {
			if place := s.codec.place(r.Key); !f.covers(row.id, place) {
				into.add(place, row.seq, r)
			}
		}
		s.logRows.Add(1)
		s.logBytes.Add(row.size)
		last, id = row.seq, row.id
	}
	f.changes = underWay.inOrder()
	s.fold, s.nextID = f, id+1
	s.last.Store(uint64(last))
	return nil
}

// readFold reads how far the database is folded.
func (s *Store) readFold(tx *sql.Tx) (f fold, err error) {
	var position []byte
	err = tx.QueryRow("SELECT seq, target, position FROM fold").Scan(&f.seq, &f.target, &position)
	if err != nil {
		return f, incomplete(s.path, err)
	}
	f.position = string(position)
	return f, nil
}

// row is a row of the log or the current records (then id is 0), checked.
type row struct {
	id      int64
	seq     register.Seq
	size    int64 // of its body
	records []register.Record
}

// readRows yields the rows that query finds. It ends with the first error.
func (s *Store) readRows(tx *sql.Tx, query string) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		rows, err := tx.Query(query)
		if err != nil {
			yield(row{}, incomplete(s.path, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var r row
			var sum int64
			var body sql.RawBytes
			if err := rows.Scan(&r.id, &r.seq, &sum, &body); err != nil {
				yield(row{}, explain(s.path, err))
				return
			}
			r.size = int64(len(body))
			r.records, err = s.codec.open(r.seq, sum, body)
			if err != nil {
				yield(row{}, damaged(s.path, "save %d: %v", r.seq, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(row{}, explain(s.path, err))
		}
	}
}
