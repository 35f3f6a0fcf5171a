package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"net/url"
	"runtime"
	"sync"

	"gus/register"
)

// Records yields what is saved: of each key the current record, from the
// newest epoch of its partition, then those of the log after it in the order
// in which they were saved, older before newer. It ends with an error,
// ErrDamaged among them, if it cannot go on; it finds rows that are missing,
// and rows that are older than they should be. It reads one state of the
// database, on a connection for each processor, up to four, with memory for a
// few hundred records each, and on one more checks the order of changes. Safe for concurrent use before Close; while it is
// read, the file gus.db-wal cannot shrink.
func (s *Store) Records() iter.Seq2[register.Record, error] {
	return func(yield func(register.Record, error) bool) {
		stopped := false
		err := s.replay(func(r register.Record) (more bool) {
			stopped = !yield(r, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(register.Record{}, err)
		}
	}
}

// replay calls each with all records, until it wants no more.
func (s *Store) replay(each func(register.Record) (more bool)) (err error) {
	v, err := s.look(min(4, runtime.GOMAXPROCS(0)) + 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	p, _, err := readPasses(v.txs[0], s.path)
	if err != nil {
		return err
	}
	if p.parts, err = readParts(v.txs[0], s.path); err != nil {
		return err
	}
	if more, err := s.replayRecords(v, p.parts, each); !more || err != nil {
		return err
	}
	for row, err := range s.readLog(v.txs[0]) {
		if err != nil {
			return err
		}
		for _, r := range row.records {
			if !p.covers(row.id, placeOf(r.Key)) && !each(r) {
				return nil
			}
		}
	}
	return nil
}

// view is one state of the database, seen from several connections.
type view struct {
	conns []*sql.Conn
	txs   []*sql.Tx // one on each connection
	close func() error
}

// look opens a view. No transaction of the writer falls between the beginnings
// of its connections' transactions: a record that is folded meanwhile would go
// unseen in both tables, or come twice.
func (s *Store) look(connections int) (v view, err error) {
	var closers []func() error
	v.close = func() error {
		var errs []error
		for i := len(closers) - 1; i >= 0; i-- {
			errs = append(errs, closers[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	for range connections {
		db, conn, err := connect(s.path, url.Values{"mode": {"ro"}})
		if err != nil {
			return v, err
		}
		closers = append(closers, db.Close, conn.Close)
		tx, err := conn.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return v, explain(s.path, err)
		}
		closers = append(closers, tx.Rollback)
		v.conns, v.txs = append(v.conns, conn), append(v.txs, tx)
	}
	s.commits.Lock()
	defer s.commits.Unlock()
	for _, tx := range v.txs {
		var n int // SQLite's transaction begins with its first read
		if err := tx.QueryRow("SELECT count(*) FROM passes").Scan(&n); err != nil {
			return v, incomplete(s.path, err)
		}
	}
	return v, nil
}

// replayRecords calls each with the current records. Each reader has every
// so-manieth partition, on a connection of its own, and decodes ahead; their
// batches are taken in turn, so that the order is always the same. The last
// connection is for the index, which must come to the same as the records.
func (s *Store) replayRecords(v view, parts [register.Partitions]part, each func(register.Record) bool) (more bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	n := len(v.conns) - 1
	var readers []*reader
	var indexed error
	var index order
	running.Go(func() { index, indexed = s.indexOrder(ctx, v.txs[n]) })
	for i, conn := range v.conns[:n] {
		r := newReader(s, conn, ctx.Done())
		readers = append(readers, r)
		running.Go(func() {
			defer close(r.batches)
			for number := i; number < register.Partitions && r.readPart(number, parts[number]); number += n {
			}
		})
	}
	if more, err := inTurn(readers, each); !more || err != nil {
		return false, err
	}
	running.Wait()
	var sum order
	for _, r := range readers {
		sum.join(r.order)
	}
	if indexed == nil && sum != index {
		indexed = damaged(s.path, "the order of changes has %d keys of %d, or other ones", index.keys, sum.keys)
	}
	return indexed == nil, indexed
}

// order is what the rows of the index come to, modulo 2^64: a row that is
// missing or has a wrong bit makes a difference. (A wrong bit in a key is for
// whoever reads the row.)
type order struct {
	keys, seqs, highSums int64
}

func (o *order) add(seq register.Seq, sum int64) {
	o.join(order{1, int64(seq), sum >> 32})
}

func (o *order) join(p order) {
	o.keys, o.seqs, o.highSums = o.keys+p.keys, o.seqs+p.seqs, o.highSums+p.highSums
}

// indexOrder lets SQLite add up the index, by halves of numbers, as its sums
// must not exceed 63 bits.
func (s *Store) indexOrder(ctx context.Context, tx *sql.Tx) (o order, err error) {
	const query = "SELECT count(*), ifnull(sum(seq >> 32), 0), ifnull(sum(seq & 4294967295), 0), ifnull(sum(sum >> 32), 0) FROM records INDEXED BY changed"
	var high, low int64
	if err := tx.QueryRowContext(ctx, query).Scan(&o.keys, &high, &low, &o.highSums); err != nil {
		return o, incomplete(s.path, err)
	}
	o.seqs = high<<32 + low
	return o, nil
}
