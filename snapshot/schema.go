package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
)

// applicationID marks a database as ours in its header: "GUS" and a zero.
const applicationID = 0x47555300

// schemaVersion is the version of the schema below. It stands in the header
// (user_version), where it can be read whatever the tables are, and in meta,
// where a flipped bit is found.
const schemaVersion = 1

// schema makes the tables, each with the sums that tell a wrong bit (sum.go).
//
// In log, id orders the rows, without a gap, and seq is the number of the
// save; a large save has several rows. body is a CBOR sequence of records in
// log, and one record in records. passes has the newest complete pass and the
// one under way (the type pass), epochs has what passes changed in partitions,
// parts what a partition's records come to. For versions and timeline see history.go.
var schema = []string{
	`CREATE TABLE meta (
	name  TEXT PRIMARY KEY,
	value ANY NOT NULL,
	sum   INTEGER NOT NULL
) STRICT, WITHOUT ROWID`,
	`CREATE TABLE log (
	id   INTEGER PRIMARY KEY,
	seq  INTEGER NOT NULL,
	sum  INTEGER NOT NULL,
	body BLOB NOT NULL
) STRICT`,
	`CREATE TABLE passes (
	number    INTEGER PRIMARY KEY,
	seq       INTEGER NOT NULL,
	time      INTEGER NOT NULL,
	keys      INTEGER NOT NULL,
	part_keys INTEGER NOT NULL,
	target    INTEGER NOT NULL,
	dropped   INTEGER NOT NULL,
	position  BLOB NOT NULL,
	sum       INTEGER NOT NULL
) STRICT`,
	`CREATE TABLE epochs (
	part   INTEGER NOT NULL,
	number INTEGER NOT NULL,
	seq    INTEGER NOT NULL,
	time   INTEGER NOT NULL,
	keys   INTEGER NOT NULL,
	sum    INTEGER NOT NULL,
	PRIMARY KEY (part, number)
) STRICT, WITHOUT ROWID`,
	`CREATE TABLE parts (
	part   INTEGER PRIMARY KEY,
	keys   INTEGER NOT NULL,
	digest INTEGER NOT NULL,
	sum    INTEGER NOT NULL
) STRICT`,
	`CREATE TABLE starts (
	boot INTEGER PRIMARY KEY,
	id   INTEGER NOT NULL,
	seq  INTEGER NOT NULL,
	sum  INTEGER NOT NULL
) STRICT`,
	`CREATE TABLE cursors (
	name     TEXT PRIMARY KEY,
	database INTEGER NOT NULL,
	seq      INTEGER NOT NULL,
	sum      INTEGER NOT NULL
) STRICT, WITHOUT ROWID`,
	`CREATE TABLE records (
	part  INTEGER NOT NULL,
	key   BLOB NOT NULL,
	seq   INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	sum   INTEGER NOT NULL,
	body  BLOB NOT NULL,
	PRIMARY KEY (part, key)
) STRICT, WITHOUT ROWID`,
	changedIndex,
	keysIndex,
	`CREATE TABLE versions (
	until   INTEGER NOT NULL,
	part    INTEGER NOT NULL,
	key     BLOB NOT NULL,
	epoch   INTEGER NOT NULL,
	ts      INTEGER NOT NULL,
	owner   INTEGER NOT NULL,
	deleted INTEGER NOT NULL,
	sum     INTEGER NOT NULL,
	value   BLOB NOT NULL,
	PRIMARY KEY (until, part, key)
) STRICT, WITHOUT ROWID`,
	`CREATE INDEX of_key ON versions (part, key, until)`,
	`CREATE TABLE timeline (
	number INTEGER PRIMARY KEY,
	seq    INTEGER NOT NULL,
	time   INTEGER NOT NULL,
	ran    INTEGER NOT NULL,
	keys   INTEGER NOT NULL,
	bytes  INTEGER NOT NULL,
	sum    INTEGER NOT NULL
) STRICT`,
}

// changedIndex is what Changes reads: it covers that, so that no body is read.
const changedIndex = `CREATE INDEX changed ON records (seq, part, key, sum)`

// keysIndex has the keys of the records once more: whoever looks for records while the database is open
// looks there as well, so that a page of either that has gone bad hides none (past.go), and a
// pass takes no record for a new one (pass.go). A change of a record leaves it as it is. Where
// rows are looked up by it, SQLite would take it first: they say NOT INDEXED, which leaves the table's own order.
const keysIndex = `CREATE UNIQUE INDEX keys ON records (part, key)`

// connect opens the one connection of a handle of its own on the database at
// path, with further parameters of the driver.
func connect(path string, parameters url.Values) (*sql.DB, *sql.Conn, error) {
	db, err := handle(path, parameters)
	if err != nil {
		return nil, nil, err
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		return nil, nil, errors.Join(explain(path, err), db.Close())
	}
	return db, conn, nil
}

// handle makes a handle on the database at path.
func handle(path string, parameters url.Values) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the database: %w", err)
	}
	parameters.Set("_busy_timeout", "5000")
	parameters.Set("_defensive", "1")
	parameters.Set("_error_rc", "1")
	parameters.Set("_pragma", "trusted_schema(0)")
	// A URL and not a name: names with ? # % would be misread, and the
	// parameter mode ignored.
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(abs), RawQuery: parameters.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return db, nil
}

// create makes the database of a new data directory: whole, or not at all. It
// is made under another name, in one file, and renamed; what an earlier
// attempt has left there was never used.
func create(dir, cluster string) error {
	path := filepath.Join(dir, newName)
	for _, suffix := range []string{"", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an unfinished database: %w", err)
		}
	}
	// SQLite would make it readable by all, as the umask allows.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	if err := initialise(path, cluster); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, databaseName)); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	return syncDirectory(dir)
}

// initialise fills the empty file at path, durably when it returns.
func initialise(path, cluster string) error {
	db, conn, err := connect(path, url.Values{
		"mode":          {"rw"},
		"_journal_mode": {"DELETE"}, // one file, so that it can be renamed
		"_synchronous":  {"FULL"},
	})
	if err != nil {
		return err
	}
	err = fill(conn, cluster)
	if err := errors.Join(err, conn.Close(), db.Close()); err != nil {
		return explain(path, err)
	}
	return nil
}

// fill makes the tables and what is always in them, in one transaction. A
// failure leaves it open, and closing rolls it back.
func fill(conn *sql.Conn, cluster string) error {
	ctx := context.Background()
	statements := append([]string{"BEGIN IMMEDIATE"}, schema...)
	statements = append(statements, fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	for _, text := range statements {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	for name, value := range map[string]any{
		"schema":  int64(schemaVersion),
		"boot":    int64(0),
		"cluster": cluster,
	} {
		if _, err := conn.ExecContext(ctx, metaPut, name, value, sumOf("meta", name, value)); err != nil {
			return err
		}
	}
	_, err := conn.ExecContext(ctx, "COMMIT")
	return err
}
