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

// A batch of records that are decoded ahead has at most so many, and as soon
// as it has so many bytes, no more. One waits for each reader.
const (
	aheadRecords = 256
	aheadBytes   = 256 << 10
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
	txs   []*sql.Tx
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
		v.txs = append(v.txs, tx)
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

// batch is some records, or why there are no more.
type batch struct {
	records []register.Record
	err     error
}

// replayRecords calls each with the current records. Each reader has every
// so-manieth partition, on a connection of its own, and decodes ahead; their
// batches are taken in turn, so that the order is always the same. The last
// connection is for the index, which must come to the same as the records.
func (s *Store) replayRecords(v view, parts [register.Partitions]part, each func(register.Record) bool) (more bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	var ahead []chan batch
	n := len(v.txs) - 1
	orders := make([]order, n+1) // that they come to; the last is the index
	var indexed error
	readers.Go(func() { orders[n], indexed = s.indexOrder(ctx, v.txs[n]) })
	for i, tx := range v.txs[:n] {
		batches := make(chan batch, 1)
		ahead = append(ahead, batches)
		readers.Go(func() {
			defer close(batches)
			for number := i; number < register.Partitions; number += n {
				if !s.readPart(tx, number, parts[number], &orders[i], batches, ctx.Done()) {
					return
				}
			}
		})
	}
	for open := len(ahead); open > 0; {
		for i, batches := range ahead {
			if batches == nil {
				continue
			}
			b, ok := <-batches
			if !ok {
				ahead[i], open = nil, open-1
				continue
			}
			for _, r := range b.records {
				if !each(r) {
					return false, nil
				}
			}
			if b.err != nil {
				return false, b.err
			}
		}
	}
	readers.Wait()
	var sum order
	for _, o := range orders[:n] {
		sum.join(o)
	}
	if indexed == nil && sum != orders[n] {
		indexed = damaged(s.path, "the order of changes has %d keys of %d, or other ones", orders[n].keys, sum.keys)
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

// readPart sends a partition's records, which must come to what, and adds them
// to o. It returns whether the reader goes on.
func (s *Store) readPart(tx *sql.Tx, number int, what part, o *order, batches chan<- batch, stop <-chan struct{}) bool {
	send := func(b batch) bool {
		select {
		case batches <- b:
			return b.err == nil
		case <-stop:
			return false
		}
	}
	var b batch
	bytes := 0
	more := true
	b.err = s.eachRecord(tx, number, what, o, func(r register.Record, size int) bool {
		if b.records == nil {
			b.records = make([]register.Record, 0, aheadRecords)
		}
		b.records, bytes = append(b.records, r), bytes+size
		if len(b.records) == aheadRecords || bytes >= aheadBytes {
			more = send(b)
			b.records, bytes = nil, 0
		}
		return more
	})
	return more && send(b)
}

// eachRecord calls each with a partition's records, until it wants no more.
func (s *Store) eachRecord(tx *sql.Tx, number int, what part, o *order, each func(register.Record, int) bool) error {
	rows, err := tx.Query("SELECT key, seq, epoch, sum, body FROM records WHERE part = ? ORDER BY key", int64(number))
	if err != nil {
		return incomplete(s.path, err)
	}
	defer rows.Close()
	var found part
	var key, body sql.RawBytes
	var epoch, sum int64
	var seq register.Seq
	for rows.Next() {
		if err := rows.Scan(&key, &seq, &epoch, &sum, &body); err != nil {
			return unreadable(s.path, err)
		}
		r, err := s.codec.openRecord(key, seq, epoch, sum, body)
		if err != nil {
			return damaged(s.path, "save %d, the record of %q: %v", seq, key, err)
		}
		found.keys, found.digest = found.keys+1, found.digest+sum
		o.add(seq, sum)
		if !each(r, len(body)) {
			return nil
		}
	}
	if err := rows.Err(); err != nil {
		return explain(s.path, err)
	}
	if found != what {
		return damaged(s.path, "partition %d has %d records, digest %x, where %d were written, digest %x",
			number, found.keys, uint64(found.digest), what.keys, uint64(what.digest))
	}
	return nil
}
