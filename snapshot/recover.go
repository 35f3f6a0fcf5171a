package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"net/url"
	"time"

	"gus/register"
)

// inspect refuses a database that is not ours or is damaged, and loads where it
// stands. It has a connection of its own which cannot write: the closing of one
// that can would move SQLite's log into a database that was refused.
func (s *Store) inspect() error {
	db, conn, err := connect(s.path, url.Values{"mode": {"ro"}})
	if err != nil {
		return err
	}
	return errors.Join(s.inspectOn(conn), conn.Close(), db.Close())
}

func (s *Store) inspectOn(conn *sql.Conn) error {
	tx, err := conn.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(s.path, err)
	}
	defer tx.Rollback() // nothing was written
	if s.opts.Cluster, err = verify(tx, s.path, s.opts.Cluster); err != nil {
		return err
	}
	if err := s.check(tx); err != nil {
		return err
	}
	for _, load := range []func(*sql.Tx) error{s.loadMeta, s.loadPasses, s.loadEpochs, s.loadStarts, s.loadCursors, s.loadLog, s.loadTimeline} {
		if err := load(tx); err != nil {
			return err
		}
	}
	if len(s.changes) > 0 { // beyond the pass under way
		s.epochDue = time.Now().Add(s.opts.Epoch)
	}
	s.show()
	return nil
}

func (s *Store) loadMeta(tx *sql.Tx) error {
	boot, err := getMeta[int64](tx, s.path, "boot")
	if err != nil {
		return err
	}
	s.boot = uint64(boot)
	return nil
}

// loadPasses reads how far the database is folded.
func (s *Store) loadPasses(tx *sql.Tx) (err error) {
	if s.pass, s.whole, err = readPasses(tx, s.path); err != nil {
		return err
	}
	s.pass.parts, err = readParts(tx, s.path)
	return err
}

// readPasses reads the newest pass, and the newest one that is complete: it may
// be the same.
func readPasses(tx *sql.Tx, path string) (newest, whole pass, err error) {
	rows, err := tx.Query("SELECT number, seq, time, keys, part_keys, target, dropped, position, sum FROM passes ORDER BY number")
	if err != nil {
		return newest, whole, incomplete(path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var position []byte
		var sum int64
		var p pass
		err := rows.Scan(&p.number, &p.seq, &p.time, &p.keys, &p.partKeys, &p.target, &p.dropped, &position, &sum)
		if err != nil {
			return newest, whole, unreadable(path, err)
		}
		p.position = string(position)
		if p.sum() != sum {
			return newest, whole, damaged(path, "pass %d: %v", p.number, errChecksum)
		}
		if p.complete() {
			whole = p
		}
		newest = p
	}
	newest.begun = newest.dropped < newest.target
	return newest, whole, explain(path, rows.Err())
}

// readParts reads what the partitions' records come to.
func readParts(tx *sql.Tx, path string) (parts [register.Partitions]part, err error) {
	rows, err := tx.Query("SELECT part, keys, digest, sum FROM parts")
	if err != nil {
		return parts, incomplete(path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var number, sum int64
		var p part
		if err := rows.Scan(&number, &p.keys, &p.digest, &sum); err != nil {
			return parts, unreadable(path, err)
		}
		if sumOf("parts", number, p.keys, p.digest) != sum {
			return parts, damaged(path, "partition %d: %v", number, errChecksum)
		}
		parts[number] = p
	}
	return parts, explain(path, rows.Err())
}

// loadLog reads and checks the log, and sets the numbers that follow from it.
func (s *Store) loadLog(tx *sql.Tx) error {
	p := &s.pass
	last, id, underWay := p.seq, p.dropped, changes{}
	for row, err := range s.readLog(tx) {
		if err != nil {
			return err
		}
		if row.id != id+1 || row.seq < last && row.id > p.target {
			return damaged(s.path, "the log has save %d in row %d after save %d in row %d", row.seq, row.id, last, id)
		}
		into := s.changes
		if row.id <= p.target {
			into = underWay
			p.rows, p.size = p.rows+1, p.size+row.size
		}
		for _, r := range row.records {
			at := &spot{place: placeOf(r.Key)}
			if !p.covers(row.id, at.place) {
				at = into.add(at.place, r)
			}
			if row.id > p.target || !p.complete() {
				s.note(at, row.seq, !r.IsMark())
			}
		}
		s.logRows.Add(1)
		s.logBytes.Add(row.size)
		last, id = row.seq, row.id
	}
	if id < p.target {
		return damaged(s.path, "the log ends with row %d, and pass %d needs it up to row %d", id, p.number, p.target)
	}
	p.changes = underWay.byPartition()
	s.nextID = id + 1
	s.last.Store(uint64(max(last, p.seq)))
	return nil
}

// logRow is a row of the log, checked.
type logRow struct {
	id      int64
	seq     register.Seq
	size    int64 // of its body
	records []register.Record
}

// readLog yields the rows of the log. It ends with the first error.
func (s *Store) readLog(tx *sql.Tx) iter.Seq2[logRow, error] {
	return func(yield func(logRow, error) bool) {
		rows, err := tx.Query("SELECT id, seq, sum, body FROM log ORDER BY id")
		if err != nil {
			yield(logRow{}, incomplete(s.path, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var r logRow
			var sum int64
			var body sql.RawBytes
			if err := rows.Scan(&r.id, &r.seq, &sum, &body); err != nil {
				yield(logRow{}, unreadable(s.path, err))
				return
			}
			r.size = int64(len(body))
			r.records, err = s.codec.open(r.seq, sum, body)
			if err != nil {
				yield(logRow{}, damaged(s.path, "save %d: %v", r.seq, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(logRow{}, explain(s.path, err))
		}
	}
}
