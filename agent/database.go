package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gus/membership"
	"gus/quic"
)

// databaseFile is the database in the data directory, and databaseMark says in the
// identity directory that there was one.
const (
	databaseFile = "gus.db"
	databaseMark = "has-database"
)

// ErrDatabaseGone: this voter has had a database, and there is none. It has
// promised others to hold what was in it; were it to vote with an empty one,
// a quorum could forget what it acknowledged.
var ErrDatabaseGone = errors.New("the database is gone")

// checkDatabase refuses a data directory that has lost its database.
func checkDatabase(data string) error {
	_, err := os.Stat(filepath.Join(data, membership.IdentityDir, databaseMark))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the identity directory: %w", err)
	}
	path := filepath.Join(data, databaseFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing, and this site has had one: mount its disk, or put the file back as it was when the agent stopped; "+
			"with an empty one it must not vote, so if the file is lost leave this agent stopped: the others go on without it, and this version cannot admit the site again", ErrDatabaseGone, path)
	}
	return nil
}

// noteDatabase notes, durably and before anything is said to others, that this voter has a
// database. An observer has promised nothing: one that has lost its copy gets another.
func (n *node) noteDatabase() error {
	if n.id.Role == quic.RoleObserver {
		return nil
	}
	return markDatabase(filepath.Join(n.cfg.Data, membership.IdentityDir))
}

// markDatabase notes it in an identity directory.
func markDatabase(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, databaseMark), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("note that there is a database: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close(), membership.SyncDir(dir)); err != nil {
		return fmt.Errorf("note that there is a database: %w", err)
	}
	return nil
}
