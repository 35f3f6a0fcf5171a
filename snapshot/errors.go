package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// What Open refuses, and how a save fails. Each error of this package that
// wraps one of them is one line that names the file and says what to do.
var (
	// ErrRolledBack says that a save has failed and left nothing behind: the
	// disk is full, or another process holds the database. Later saves may
	// succeed. An error of a save that does not wrap it leaves the outcome
	// open: only recovery tells.
	ErrRolledBack = errors.New("nothing was written")

	// ErrLocked says that another process, or another Store of this one, has
	// the data directory open.
	ErrLocked = errors.New("in use by another agent")

	// ErrNewer says that the database was made by a newer version of gus.
	ErrNewer = errors.New("written by a newer version of gus")

	// ErrOtherCluster says that the data directory belongs to another cluster.
	ErrOtherCluster = errors.New("belongs to another cluster")

	// ErrPermission says that the data directory is open to others, or that
	// this process may not write one of its files.
	ErrPermission = errors.New("wrong permissions")

	// ErrDamaged says that the database, or one of its rows, is not what was
	// written. Nothing was changed.
	ErrDamaged = errors.New("damaged")
)

// damaged returns an ErrDamaged about the file at path.
func damaged(path, format string, args ...any) error {
	return fmt.Errorf("%s is %w: %s: nothing was changed; leave this agent stopped and keep the files: the others go on without it, and this version cannot admit the site again",
		path, ErrDamaged, fmt.Sprintf(format, args...))
}

// forbidden returns an ErrPermission about the file at path, which could not be
// opened for writing, or about its directory if it cannot even be looked at.
func forbidden(path string, cause error) error {
	info, err := os.Stat(path)
	if err != nil {
		path = filepath.Dir(path)
		info, err = os.Stat(path)
	}
	if err != nil {
		return fmt.Errorf("%s: %w for uid %d: %w", path, ErrPermission, os.Getuid(), cause)
	}
	return fmt.Errorf("%s, mode %#o, is not open to uid %d (%w): chown it to that user and make it writable, or run as its owner: %w",
		path, info.Mode().Perm(), os.Getuid(), ErrPermission, cause)
}

// explain says in our words what SQLite reports of the file at path. It
// returns what did not come from SQLite as it is.
func explain(path string, err error) error {
	code, ok := resultCode(err)
	if !ok {
		return err
	}
	switch code {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%s: the disk is full, free some space: %w", path, ErrRolledBack)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("%s is held by another program, close that: %w", path, ErrRolledBack)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(path, "%v", err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("%s: %w for uid %d, or the file system is read-only: %w", path, ErrPermission, os.Getuid(), err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// unreadable explains why a row of the file at path could not be read: what is
// neither SQLite's nor ours says that a value is not what the table may hold.
func unreadable(path string, err error) error {
	if _, ok := resultCode(err); ok || err == nil {
		return explain(path, err)
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, context.Canceled) {
		return err
	}
	return damaged(path, "%v", err)
}

// resultCode returns SQLite's primary result code, if err has one.
func resultCode(err error) (code int, ok bool) {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff, true
	}
	return 0, false
}
