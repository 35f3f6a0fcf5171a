package snapshot

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/gofrs/flock"
	"modernc.org/sqlite"

	"gus/register"
)

// Options say what a Store is opened for.
type Options struct {
	// Cluster is the cluster's id, not empty. A new database is given it; one
	// of another cluster is refused.
	Cluster string

	// Done is called exactly once for each Save, by the Store's goroutine and
	// after the save is durable or has failed. A failure that wraps
	// ErrRolledBack has left nothing behind; after any other the process must
	// end. Done must not call Close.
	Done func(seq register.Seq, err error)

	// Logger is told of what nobody gets as an error. Nil: nobody is told.
	Logger *slog.Logger

	bounds bounds // zero: see defaultBounds
}

// bounds are how long the log may become and in which pieces it is folded.
type bounds struct {
	rows  int64 // of the log: when there are more, it is folded
	bytes int64 // likewise, of their bodies
	keys  int64 // in one transaction of folding, and a quarter of the rows dropped in one
	piece int64 // bytes in one transaction of folding; the last key may go beyond
}

// defaultBounds let a start read the log in a few tenths of a second, and a
// save wait for a folding transaction no longer than for a few syncs.
var defaultBounds = bounds{rows: 1 << 16, bytes: 16 << 20, keys: 256, piece: 1 << 20}

// Store keeps records in a data directory. It implements register.Store.
type Store struct {
	opts  Options
	log   *slog.Logger
	path  string // of the database
	codec codec
	lock  *flock.Flock
	db    *sql.DB
	boot  uint64

	jobs    chan job // room for one: the save that is in flight
	busy    atomic.Bool
	stopped chan struct{} // closed by the writer when it ends
	closing func() error

	last     atomic.Uint64
	logRows  atomic.Int64
	logBytes atomic.Int64

	// What follows belongs to the writer.
	conn       *sql.Conn
	statements statements
	nextID     int64        // of the log's next row
	body       bytes.Buffer // of the row being written
	fold       fold         // the folding under way
	changes    changes      // what the log says after fold.target
	owed       int64        // keys to fold before the next save
	stalled    bool         // folding failed for want of space, and no save has succeeded since
	grows      bool         // folding failed for want of space, and the logger was told
	broken     error        // a transaction ended with an unknown outcome
}

// Open opens the data directory dir, makes it (mode 0700, its parent must
// exist) and its database if they are absent, and raises Boot durably before
// it returns. It refuses with ErrLocked, ErrPermission, ErrNewer,
// ErrOtherCluster or ErrDamaged, having changed nothing; where the disk is
// full, with ErrRolledBack. The caller closes the Store.
func Open(dir string, opts Options) (*Store, error) {
	if opts.Cluster == "" || opts.Done == nil {
		return nil, errors.New("open a data directory: no cluster id, or nobody to report saves to")
	}
	if opts.bounds == (bounds{}) {
		opts.bounds = defaultBounds
	}
	codec, err := newCodec()
	if err != nil {
		return nil, err
	}
	lock, err := enter(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		opts:    opts,
		log:     opts.Logger,
		path:    filepath.Join(dir, databaseName),
		codec:   codec,
		lock:    lock,
		jobs:    make(chan job, 1),
		stopped: make(chan struct{}),
		changes: changes{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.closing = sync.OnceValue(s.close)
	if err := s.open(dir); err != nil {
		return nil, errors.Join(err, s.release())
	}
	go s.run()
	return s, nil
}

// open opens the database, or makes it, and reads where it stands.
func (s *Store) open(dir string) error {
	exists, err := checkFiles(dir)
	if err != nil {
		return err
	}
	if !exists {
		if err := create(dir, s.opts.Cluster); err != nil {
			return err
		}
		s.log.Info("made a new database", "path", s.path, "cluster", s.opts.Cluster)
	}
	// Equally durable, and on a journaling file system up to twice as fast as
	// fsync: it leaves out the timestamps. Where it does not exist, SQLite
	// syncs as ever.
	_, _ = sqlite.Fdatasync(true)
	if err := s.inspect(); err != nil {
		return err
	}
	s.db, s.conn, err = connect(s.path, url.Values{"mode": {"rw"}, "_synchronous": {"FULL"}})
	if err != nil {
		return err
	}
	if err := s.setUp(); err != nil {
		return err
	}
	return s.raiseBoot()
}

// setUp makes the verified database's connection ready for writing.
func (s *Store) setUp() error {
	ctx := context.Background()
	var mode string
	if err := s.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return explain(s.path, err)
	}
	if mode != "wal" {
		return fmt.Errorf("%s: its file system offers no shared memory, which the write-ahead log needs: use a local disk", s.path)
	}
	// A large transaction may make the log of SQLite larger; it is cut at the
	// next checkpoint, of which there is one each 1000 pages or so.
	if _, err := s.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA journal_size_limit = %d", 8<<20)); err != nil {
		return explain(s.path, err)
	}
	if err := s.statements.prepare(s.conn); err != nil {
		return incomplete(s.path, err)
	}
	return nil
}

// raiseBoot counts this start. The commit is synced.
func (s *Store) raiseBoot() error {
	err := s.statements.transact(func() error {
		if _, err := s.statements.bootRaise.Exec(); err != nil {
			return err
		}
		return s.statements.bootGet.QueryRow().Scan(&s.boot)
	})
	if err != nil {
		return fmt.Errorf("raise the boot number: %w", incomplete(s.path, err))
	}
	return nil
}

// Boot is how many times the database was opened, this time included: 1 or
// more. Safe for concurrent use.
func (s *Store) Boot() uint64 { return s.boot }

// Last is the highest number ever saved, 0 if none: it counts a save as soon
// as it is durable, and never goes down. Safe for concurrent use.
func (s *Store) Last() register.Seq { return register.Seq(s.last.Load()) }

// Stats are what the data takes on the disk.
type Stats struct {
	LogRows       int64 // saved and not yet folded; a large save has several rows
	LogBytes      int64 // of those rows, encoded
	DatabaseBytes int64 // gus.db
	WALBytes      int64 // gus.db-wal
}

// Stats measures s. It costs two system calls. Safe for concurrent use.
func (s *Store) Stats() Stats {
	return Stats{
		LogRows:       s.logRows.Load(),
		LogBytes:      s.logBytes.Load(),
		DatabaseBytes: fileSize(s.path),
		WALBytes:      fileSize(s.path + "-wal"),
	}
}

// fileSize returns the size of the file at path, 0 if there is none.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Close finishes the save in flight, if there is one, and gives the directory
// free. It returns what an earlier transaction failed with, if its outcome is
// unknown. No Save may come after it; a second Close does no harm.
func (s *Store) Close() error { return s.closing() }

func (s *Store) close() error {
	close(s.jobs)
	<-s.stopped
	return errors.Join(s.broken, s.release())
}

// release closes what is open of the database, and then the lock.
func (s *Store) release() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.statements.close(), s.conn.Close(), s.db.Close())
	}
	errs = append(errs, s.lock.Unlock())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the database: %w", explain(s.path, err))
	}
	return nil
}
