package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"
)

// statements are what the writer does all the time, prepared.
type statements struct {
	begin, commit, rollback       *sql.Stmt
	logInsert, logDrop            *sql.Stmt
	recordGet, recordAdd          *sql.Stmt
	recordPut                     *sql.Stmt
	passPut, passDrop             *sql.Stmt
	epochPut, epochTrim           *sql.Stmt
	partPut                       *sql.Stmt
	startPut, startTrim           *sql.Stmt
	cursorPut, cursorDrop         *sql.Stmt
	metaPut                       *sql.Stmt
	versionPut, versionTake       *sql.Stmt
	versionDrop, versionNext      *sql.Stmt
	timePut, timeDrop, timeOldest *sql.Stmt
	logLook, logMove              *sql.Stmt
}

// statement is one of them, and its text.
type statement struct {
	stmt **sql.Stmt
	text string
}

func (p *statements) all() []statement {
	return []statement{
		{&p.begin, "BEGIN IMMEDIATE"},
		{&p.commit, "COMMIT"},
		{&p.rollback, "ROLLBACK"},
		{&p.logInsert, "INSERT INTO log (id, seq, sum, body) VALUES (?, ?, ?, ?)"},
		{&p.logDrop, "DELETE FROM log WHERE id <= ?"},
		{&p.recordGet, "SELECT seq, epoch, sum, body FROM records NOT INDEXED WHERE part = ? AND key = ?"},
		{&p.recordAdd, "INSERT INTO records (part, key, seq, epoch, sum, body) VALUES (?, ?, ?, ?, ?, ?)"},
		{&p.recordPut, "UPDATE records NOT INDEXED SET seq = ?3, epoch = ?4, sum = ?5, body = ?6 WHERE part = ?1 AND key = ?2"},
		{&p.passPut, "REPLACE INTO passes (number, seq, time, keys, part_keys, target, dropped, position, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&p.passDrop, "DELETE FROM passes WHERE number < ?"},
		{&p.epochPut, "INSERT INTO epochs (part, number, seq, time, keys, sum) VALUES (?, ?, ?, ?, ?, ?)"},
		{&p.epochTrim, "DELETE FROM epochs WHERE part = ?1 AND number <= (SELECT number FROM epochs WHERE part = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)"},
		{&p.partPut, "REPLACE INTO parts (part, keys, digest, sum) VALUES (?, ?, ?, ?)"},
		{&p.startPut, "INSERT INTO starts (boot, id, seq, sum) VALUES (?, ?, ?, ?)"},
		{&p.startTrim, "DELETE FROM starts WHERE boot <= ?"},
		{&p.cursorPut, "REPLACE INTO cursors (name, database, seq, sum) VALUES (?, ?, ?, ?)"},
		{&p.cursorDrop, "DELETE FROM cursors WHERE name = ?"},
		{&p.metaPut, metaPut},
		{&p.versionPut, "REPLACE INTO versions (until, part, key, epoch, ts, owner, deleted, sum, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&p.versionTake, "DELETE FROM versions WHERE until = ? AND part = ? AND key = ? RETURNING epoch, ts, owner, deleted, sum, value"},
		{&p.versionDrop, "DELETE FROM versions WHERE (until, part, key) < (?, ?, ?)"},
		{&p.versionNext, "SELECT until, part, key FROM versions ORDER BY until, part, key LIMIT 1 OFFSET ?"},
		{&p.timePut, "REPLACE INTO timeline (number, seq, time, ran, keys, bytes, sum) VALUES (?, ?, ?, ?, ?, ?, ?)"},
		{&p.timeDrop, "DELETE FROM timeline WHERE number < ?"},
		{&p.timeOldest, selectMoments + " WHERE number >= ? ORDER BY number LIMIT ?"},
		{&p.logLook, lookLog},
		{&p.logMove, moveLog},
	}
}

func (p *statements) prepare(conn *sql.Conn) error {
	for _, s := range p.all() {
		var err error
		if *s.stmt, err = conn.PrepareContext(context.Background(), s.text); err != nil {
			return err
		}
	}
	return nil
}

func (p *statements) close() error {
	var errs []error
	for _, s := range p.all() {
		if *s.stmt != nil {
			errs = append(errs, (*s.stmt).Close())
		}
	}
	return errors.Join(errs...)
}

// transact runs body in a transaction and commits it, synced. After an error
// that came from a full disk or a lock, nothing of it is left behind.
func (p *statements) transact(body func() error) error {
	if _, err := p.begin.Exec(); err != nil {
		return err
	}
	err := body()
	if err == nil {
		_, err = p.commit.Exec()
	}
	if err == nil {
		return nil
	}
	// SQLite has rolled back by itself after some errors; it then says that
	// there is no transaction, with the plain SQLITE_ERROR.
	_, failure := p.rollback.Exec()
	if code, ok := resultCode(failure); failure == nil || ok && code == sqlite3.SQLITE_ERROR {
		return err
	}
	return fmt.Errorf("roll back after %v: %w", err, failure)
}
