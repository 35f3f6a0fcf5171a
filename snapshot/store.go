package snapshot

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

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

	// Epoch is an epoch's length: how long after the first save since the last
	// one the next is begun. It ends sooner where much is saved. At least a
	// millisecond; 0: ten seconds.
	Epoch time.Duration

	// Retain says how much of the past is kept.
	Retain Retention

	// Logger is told of what nobody gets as an error. Nil: nobody is told.
	Logger *slog.Logger

	bounds    bounds           // zero: see defaultBounds
	checkTime time.Duration    // zero: see checkTime
	now       func() time.Time // the clock; nil: time.Now
	committed func()           // nil, or called after each transaction of the writer
}

// defaultEpoch is the length of an epoch unless Options say otherwise.
const defaultEpoch = 10 * time.Second

// bounds are how long the log may become and in which pieces it is folded.
type bounds struct {
	rows  int64 // of the log: when there are more, it is folded
	bytes int64 // likewise, of their bodies
	keys  int64 // in one transaction of folding, where no save owes more; a quarter of the rows dropped in one
	piece int64 // bytes in one transaction of folding; the last key may go beyond
	log   int64 // pages in SQLite's log after which they are moved into the database; 0: the default
}

// defaultBounds let a start read the log in a few tenths of a second, and a
// save wait for a folding transaction no longer than for a few syncs.
var defaultBounds = bounds{rows: 1 << 17, bytes: 64 << 20, keys: 32, piece: 256 << 10, log: 1000}

// step is how many keys one transaction of folding has at most. A large save
// that has to wait for many of them may as well wait for fewer syncs.
func (b bounds) step(owed int64) int64 { return max(b.keys, min(owed, 8*b.keys)) }

// Store keeps records in a data directory. It implements register.Store.
type Store struct {
	opts     Options
	log      *slog.Logger
	path     string // of the database
	codec    codec
	lock     *flock.Flock
	db       *sql.DB // the writer's
	readers  *sql.DB // of Changes and Keys
	mover    mover
	boot     uint64
	lives    []life // the starts, this one the last; does not change after Open
	database uint64 // the id of the last of them

	jobs    chan job      // room for one: the save that is in flight
	wake    chan struct{} // room for one: a cursor waits to be saved
	busy    atomic.Bool
	stopped chan struct{} // closed by the writer when it ends
	closing func() error

	last     atomic.Uint64
	logRows  atomic.Int64
	logBytes atomic.Int64

	commits sync.Mutex // held by the writer in its transactions, see look

	mu      sync.Mutex // held for moments
	compact int        // half the length of recent at which it is compacted
	recent  []recent   // what the log says beyond the current records, in order, with last; appended to or replaced
	cursors cursors
	shown   shown

	// What follows belongs to the writer.
	conn       *sql.Conn
	statements statements
	nextID     int64        // of the log's next row
	body       bytes.Buffer // of the row being written
	pass       pass         // the newest one
	whole      pass         // the newest one that is complete
	changes    changes      // what the log says after pass.target
	owed       int64        // keys to fold before the next save
	history    history      // what is kept of the past
	broken     error        // a transaction ended with an unknown outcome
	grown      int64        // pages that SQLite's log has grown by at least since it was looked at

	timer    *time.Timer
	epochDue time.Time     // when the next pass begins; zero: nothing was saved
	nextStep time.Time     // of the pass under way
	saving   bool          // there was a save since its last step
	stalled  time.Time     // until when nothing is tried that no save waits for, for want of space
	retry    time.Duration // how long that was
	held     bool          // that has failed for want of space, and the logger was told
}

// Open opens the data directory dir, makes it (mode 0700, its parent must
// exist) and its database if they are absent, and raises Boot durably before
// it returns. It refuses with ErrLocked, ErrPermission, ErrNewer,
// ErrOtherCluster or ErrDamaged, having changed nothing; where the disk is
// full, with ErrRolledBack. It has SQLite check the database's pages for two
// seconds at most. The caller closes the Store.
func Open(dir string, opts Options) (*Store, error) {
	if opts.Cluster == "" || opts.Done == nil {
		return nil, errors.New("open a data directory: no cluster id, or nobody to report saves to")
	}
	opts.setDefaults()
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
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		changes: changes{},
		timer:   time.NewTimer(0),
	}
	s.timer.Stop()
	s.closing = sync.OnceValue(s.close)
	if err := s.open(dir); err != nil {
		return nil, errors.Join(err, s.release())
	}
	go s.mover.run()
	go s.run()
	return s, nil
}

func (o *Options) setDefaults() {
	if o.bounds == (bounds{}) {
		o.bounds = defaultBounds
	}
	if o.bounds.log == 0 {
		o.bounds.log = defaultBounds.log
	}
	if o.checkTime == 0 {
		o.checkTime = checkTime
	}
	o.Retain.setDefaults()
	if o.now == nil {
		o.now = time.Now
	}
	if o.Epoch == 0 {
		o.Epoch = defaultEpoch
	}
	o.Epoch = max(o.Epoch, time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
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
	if err := s.raiseBoot(); err != nil {
		return err
	}
	if err := s.openMover(); err != nil {
		return err
	}
	s.readers, err = handle(s.path, url.Values{"mode": {"ro"}})
	if err != nil {
		return err
	}
	s.readers.SetMaxOpenConns(4)
	return nil
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
	// Behind the end of SQLite's log there may be what a power cut has spoilt.
	// With the next one, checkWAL could no longer tell the two apart. Where
	// the disk is full it stays, and raiseBoot says so.
	var busy, frames, moved int
	err := s.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
	if err := explain(s.path, err); err != nil && !errors.Is(err, ErrRolledBack) {
		return err
	}
	// See checkpoint.go.
	if _, err := s.conn.ExecContext(ctx, "PRAGMA wal_autocheckpoint = 0"); err != nil {
		return explain(s.path, err)
	}
	// A large transaction may make the log of SQLite larger than it is when it
	// begins anew; then it is cut.
	if _, err := s.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA journal_size_limit = %d", 12<<20)); err != nil {
		return explain(s.path, err)
	}
	// Folding goes to and fro in the order of changes, whose pages are many.
	if _, err := s.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA cache_size = -%d", 8<<10)); err != nil {
		return explain(s.path, err)
	}
	if err := s.statements.prepare(s.conn); err != nil {
		return incomplete(s.path, err)
	}
	return nil
}

// raiseBoot counts this start. The commit is synced.
func (s *Store) raiseBoot() error {
	boot := int64(s.boot) + 1
	err := s.transact(func() error {
		if _, err := s.statements.metaPut.Exec("boot", boot, sumOf("meta", "boot", boot)); err != nil {
			return err
		}
		return s.addStart(boot)
	})
	if err != nil {
		return fmt.Errorf("raise the boot number: %w", incomplete(s.path, err))
	}
	s.boot = uint64(boot)
	return nil
}

// Boot is how many times the database was opened, this time included: 1 or
// more. Safe for concurrent use.
func (s *Store) Boot() uint64 { return s.boot }

// Last is the highest number ever saved, 0 if none: it counts a save as soon
// as it is durable, and never goes down. Safe for concurrent use.
func (s *Store) Last() register.Seq { return register.Seq(s.last.Load()) }

// Close finishes the save in flight, if there is one, saves cursors that wait
// for it, and gives the directory free. It returns what an earlier transaction
// failed with, if its outcome is unknown. No Save may come after it; a second
// Close does no harm.
func (s *Store) Close() error { return s.closing() }

func (s *Store) close() error {
	close(s.jobs)
	<-s.stopped
	return errors.Join(s.broken, s.release())
}

// release closes what is open of the database, and then the lock.
func (s *Store) release() error {
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.Close())
	}
	errs = append(errs, s.mover.close())
	if s.db != nil {
		errs = append(errs, s.statements.close(), s.conn.Close(), s.db.Close())
	}
	errs = append(errs, s.lock.Unlock())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the database: %w", explain(s.path, err))
	}
	return nil
}
