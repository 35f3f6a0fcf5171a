package snapshot

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"gus/register"
)

// A batch of records that are decoded ahead has at most so many, and as soon
// as it has so many bytes, no more. One waits for each reader.
const (
	aheadRecords = 256
	aheadBytes   = 256 << 10
)

// batch is some records, or why there are no more.
type batch struct {
	records []register.Record
	err     error
}

// reader reads partitions, one after another, ahead of who takes the records.
//
// It asks SQLite's driver itself for the rows. What database/sql does for each
// of them, of which there are millions at a start, takes as long as SQLite does.
type reader struct {
	store   *Store
	conn    *sql.Conn
	stop    <-chan struct{}
	batches chan batch             // to who takes the records
	used    chan []register.Record // and back, to be filled again
	plain   plainReader
	order   order // what its records come to

	batch batch // the one that is being filled
	bytes int   // of it
}

func newReader(s *Store, conn *sql.Conn, stop <-chan struct{}) *reader {
	return &reader{
		store: s, conn: conn, stop: stop,
		batches: make(chan batch, 1),
		used:    make(chan []register.Record, 2),
		plain:   plainReader{ahead: aheadRecords},
	}
}

// inTurn calls each with the records of the readers' batches, and takes these
// in turn.
func inTurn(readers []*reader, each func(register.Record) bool) (more bool, err error) {
	open := make([]*reader, len(readers))
	for left := copy(open, readers); left > 0; {
		for i, r := range open {
			if r == nil {
				continue
			}
			b, ok := <-r.batches
			if !ok {
				open[i], left = nil, left-1
				continue
			}
			for i := range b.records {
				if !each(b.records[i]) {
					return false, nil
				}
			}
			if b.err != nil {
				return false, b.err
			}
			clear(b.records)
			select {
			case r.used <- b.records[:0]:
			default:
			}
		}
	}
	return true, nil
}

// readPart sends a partition's records, which must come to what. It returns
// whether the reader goes on.
func (r *reader) readPart(number int, what part) bool {
	more := true
	err := r.conn.Raw(func(conn any) (err error) {
		more, err = r.eachRow(conn, number, what)
		return err
	})
	if !more {
		return false
	}
	r.batch.err = err
	return r.send() && err == nil
}

// send sends the batch and begins the next one. It returns false where nobody
// takes it.
func (r *reader) send() bool {
	select {
	case r.batches <- r.batch:
	case <-r.stop:
		return false
	}
	r.batch, r.bytes = batch{}, 0
	return true
}

// room returns where the next record is to be.
func (r *reader) room() *register.Record {
	b := &r.batch
	if b.records == nil {
		select {
		case b.records = <-r.used:
		default:
			b.records = make([]register.Record, 0, aheadRecords)
		}
	}
	b.records = append(b.records, register.Record{})
	return &b.records[len(b.records)-1]
}

// eachRow reads a partition on a connection of the driver. It returns whether
// somebody still wants it.
func (r *reader) eachRow(conn any, number int, what part) (more bool, err error) {
	const query = "SELECT key, seq, epoch, sum, body FROM records WHERE part = ? ORDER BY key"
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return true, fmt.Errorf("%s: the driver of SQLite, %T, takes no queries", r.store.path, conn)
	}
	rows, err := q.QueryContext(context.Background(), query, []driver.NamedValue{{Ordinal: 1, Value: int64(number)}})
	if err != nil {
		return true, incomplete(r.store.path, err)
	}
	defer func() { err = errors.Join(err, explain(r.store.path, rows.Close())) }()
	var found part
	for columns := make([]driver.Value, 5); ; {
		err := rows.Next(columns)
		if err == io.EOF {
			break
		}
		if err != nil {
			return true, explain(r.store.path, err)
		}
		sum, err := r.take(columns)
		if err != nil {
			return true, err
		}
		found.keys, found.digest = found.keys+1, found.digest+sum
		if (len(r.batch.records) == aheadRecords || r.bytes >= aheadBytes) && !r.send() {
			return false, nil
		}
	}
	if found != what {
		return true, damaged(r.store.path, "partition %d has %d records, digest %x, where %d were written, digest %x",
			number, found.keys, uint64(found.digest), what.keys, uint64(what.digest))
	}
	return true, nil
}

// take adds the record of a row to the batch and returns the row's sum.
func (r *reader) take(columns []driver.Value) (sum int64, err error) {
	key, ok1 := columns[0].([]byte)
	seq, ok2 := columns[1].(int64)
	epoch, ok3 := columns[2].(int64)
	sum, ok4 := columns[3].(int64)
	body, ok5 := columns[4].([]byte)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return 0, damaged(r.store.path, "a record has a value that its table may not hold")
	}
	into := r.room()
	if err := r.store.codec.openRecord(&r.plain, into, key, register.Seq(seq), epoch, sum, body); err != nil {
		r.batch.records = r.batch.records[:len(r.batch.records)-1]
		return 0, damaged(r.store.path, "save %d, the record of %q: %v", seq, key, err)
	}
	r.bytes += len(body)
	r.order.add(register.Seq(seq), sum)
	return sum, nil
}
