package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/gofrs/flock"
)

// The files of a data directory that are ours. SQLite adds -wal and -shm to
// the database's name, and -journal while it is made.
const (
	databaseName = "gus.db"
	newName      = "gus.db.new"
	lockName     = "lock"
)

// enter makes the data directory if need be, checks that it is closed to
// others, and locks it for this Store.
func enter(dir string) (*flock.Flock, error) {
	if err := makeDirectory(dir); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the data directory: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory: move it away, or use another data directory", dir)
	}
	// Windows has no such modes; its access lists are inherited.
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %#o (%w): it must be closed to others, run chmod 700 %s",
			dir, info.Mode().Perm(), ErrPermission, dir)
	}
	path := filepath.Join(dir, lockName)
	lock := flock.New(path)
	switch ok, err := lock.TryLock(); {
	case errors.Is(err, fs.ErrPermission):
		return nil, forbidden(path, err)
	case err != nil:
		return nil, fmt.Errorf("lock the data directory: %w", err)
	case !ok:
		return nil, fmt.Errorf("%s is %w: stop that one, or use another data directory", dir, ErrLocked)
	}
	return lock, nil
}

// makeDirectory makes dir, but not what it is in: that may be a disk which is
// not mounted.
func makeDirectory(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return syncDirectory(filepath.Dir(dir))
}

// checkFiles says whether dir holds a database. It refuses one that has lost
// its file, is empty, or cannot be written. It opens the files, so SQLite must
// not have them open.
func checkFiles(dir string) (exists bool, err error) {
	path := filepath.Join(dir, databaseName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, checkOrphan(path)
	case err != nil:
		return false, fmt.Errorf("look at the database: %w", err)
	case !info.Mode().IsRegular():
		return false, damaged(path, "it is not a regular file")
	case info.Size() == 0:
		return false, damaged(path, "it is empty")
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		f, err := os.OpenFile(path+suffix, os.O_RDWR, 0)
		switch {
		case err == nil:
			f.Close() // nothing was written
		case suffix != "" && errors.Is(err, fs.ErrNotExist):
		default:
			return false, forbidden(path+suffix, err)
		}
	}
	if err := checkHeader(path); err != nil {
		return false, err
	}
	return true, checkWAL(path + "-wal")
}

// checkOrphan refuses a write-ahead log without its database: it may hold
// saves, and SQLite would remove it.
func checkOrphan(path string) error {
	if _, err := os.Stat(path + "-wal"); err == nil {
		return damaged(path, "it is missing, while its log %s-wal is there", path)
	}
	return nil
}

// syncDirectory makes the names in dir durable.
func syncDirectory(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // cannot be asked for there
	}
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	return nil
}
