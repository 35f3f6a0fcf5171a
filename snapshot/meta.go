package snapshot

import (
	"database/sql"
	"errors"
	"fmt"
)

const (
	metaPut = "REPLACE INTO meta (name, value, sum) VALUES (?, ?, ?)"
	metaGet = "SELECT value, sum FROM meta WHERE name = ?"
)

// verify refuses a database that is not ours, of a newer version, or of
// another cluster, if one is named. It returns the id of its cluster.
func verify(tx *sql.Tx, path, cluster string) (id string, err error) {
	var application, version int64
	if err := tx.QueryRow("PRAGMA application_id").Scan(&application); err != nil {
		return "", explain(path, err)
	}
	if application != applicationID {
		return "", damaged(path, "it is not a database of gus")
	}
	if err := tx.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return "", explain(path, err)
	}
	said, err := getMeta[int64](tx, path, "schema")
	switch {
	case version > schemaVersion && (err != nil || said == version): // its meta may be quite another
		return "", fmt.Errorf("%s was %w: its schema is %d, this version knows %d: run the newer version", path, ErrNewer, version, schemaVersion)
	case err != nil:
		return "", err
	case version != schemaVersion || said != schemaVersion:
		return "", damaged(path, "its schema is %d and said to be %d, and there never was such a one", version, said)
	}
	if err := verifySchema(tx, path); err != nil {
		return "", err
	}
	found, err := getMeta[string](tx, path, "cluster")
	if err != nil {
		return "", err
	}
	if cluster != "" && found != cluster {
		return "", fmt.Errorf("%s %w: it is of %q, this agent is of %q: use that cluster's data directory, or an empty one",
			path, ErrOtherCluster, found, cluster)
	}
	return found, nil
}

// verifySchema compares the tables with those that we make: a wrong bit in a
// definition could make another one of it.
func verifySchema(tx *sql.Tx, path string) error {
	for _, text := range schema {
		var n int
		if err := tx.QueryRow("SELECT count(*) FROM sqlite_schema WHERE sql = ?", text).Scan(&n); err != nil {
			return explain(path, err)
		}
		if n != 1 {
			return damaged(path, "its schema is incomplete, it has no %.30q", text)
		}
	}
	return nil
}

// getMeta reads the value called name.
func getMeta[T int64 | string](tx *sql.Tx, path, name string) (value T, err error) {
	var sum int64
	if err := tx.QueryRow(metaGet, name).Scan(&value, &sum); err != nil {
		return value, incomplete(path, err)
	}
	if sum != sumOf("meta", name, value) {
		return value, damaged(path, "meta %q: the checksum does not match", name)
	}
	return value, nil
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
