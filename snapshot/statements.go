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
	begin, commit, rollback *sql.Stmt
	logInsert, logDrop      *sql.Stmt
	recordGet, recordPut    *sql.Stmt
	foldPut                 *sql.Stmt
	bootRaise, bootGet      *sql.Stmt
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
		{&p.recordGet, "SELECT seq, sum, body FROM records WHERE part = ? AND key = ?"},
		{&p.recordPut, "REPLACE INTO records (part, key, seq, sum, body) VALUES (?, ?, ?, ?, ?)"},
		{&p.foldPut, "UPDATE fold SET seq = ?, target = ?, position = ?"},
		{&p.bootRaise, "UPDATE meta SET value = value + 1 WHERE name = 'boot'"},
		{&p.bootGet, "SELECT value FROM meta WHERE name = 'boot'"},
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
