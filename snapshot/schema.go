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
// (user_version), where it can be read whatever the tables are.
const schemaVersion = 1

// schema makes the tables. In log, id orders the rows and seq is the number of
// the save; a large save has several rows. body is a CBOR sequence of records
// in log, and one record in records; sum is checksum(seq, body). The one row of
// fold is the type fold.
const schema = `
CREATE TABLE meta (
	name  TEXT PRIMARY KEY,
	value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE log (
	id   INTEGER PRIMARY KEY,
	seq  INTEGER NOT NULL,
	sum  INTEGER NOT NULL,
	body BLOB NOT NULL
) STRICT;

CREATE TABLE records (
	part INTEGER NOT NULL,
	key  BLOB NOT NULL,
	seq  INTEGER NOT NULL,
	sum  INTEGER NOT NULL,
	body BLOB NOT NULL,
	PRIMARY KEY (part, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE fold (
	seq      INTEGER NOT NULL,
	target   INTEGER NOT NULL,
	position BLOB NOT NULL
) STRICT;
`

// connect opens the one connection of a handle of its own on the database at
// path, with further parameters of the driver.
func connect(path string, parameters url.Values) (*sql.DB, *sql.Conn, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, fmt.Errorf("find the database: %w", err)
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
		return nil, nil, fmt.Errorf("open the database: %w", err)
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		return nil, nil, errors.Join(explain(path, err), db.Close())
	}
	return db, conn, nil
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
	const rest = `
PRAGMA application_id = %d;
PRAGMA user_version = %d;
INSERT INTO meta (name, value) VALUES ('boot', 0);
INSERT INTO fold (seq, target, position) VALUES (0, 0, x'');
INSERT INTO meta (name, value) VALUES ('cluster', ?);
COMMIT;`
	_, err = conn.ExecContext(context.Background(),
		"BEGIN IMMEDIATE;"+schema+fmt.Sprintf(rest, applicationID, schemaVersion), cluster)
	if err := errors.Join(err, conn.Close(), db.Close()); err != nil {
		return explain(path, err)
	}
	return nil
}

// verify refuses a database that is not ours, of a newer version, or of
// another cluster.
func verify(conn *sql.Conn, path, cluster string) error {
	ctx := context.Background()
	var application, version int64
	if err := conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&application); err != nil {
		return explain(path, err)
	}
	if application != applicationID {
		return damaged(path, "it is not a database of gus")
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return explain(path, err)
	}
	switch {
	case version > schemaVersion:
		return fmt.Errorf("%s was %w: its schema is %d, this version knows %d: run the newer version", path, ErrNewer, version, schemaVersion)
	case version < schemaVersion:
		return damaged(path, "its schema is %d, and there never was such a one", version)
	}
	var found string
	if err := conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'cluster'").Scan(&found); err != nil {
		return incomplete(path, err)
	}
	if found != cluster {
		return fmt.Errorf("%s %w: it is of %q, this agent is of %q: use that cluster's data directory, or an empty one",
			path, ErrOtherCluster, found, cluster)
	}
	return nil
}

// incomplete explains why a row or table that is always there could not be
// read: it is missing, or what SQLite says.
func incomplete(path string, err error) error {
	const missing = 1 // SQLITE_ERROR: no such table or column
	if code, ok := resultCode(err); errors.Is(err, sql.ErrNoRows) || ok && code == missing {
		return damaged(path, "its schema is incomplete: %v", err)
	}
	return explain(path, err)
}
