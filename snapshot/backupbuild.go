package snapshot

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"gus/register"
)

// Build makes, in the directory dir, which is there and holds none, the database of a new
// cluster: with the given entries, whose keys ascend, each settled. It is durable when Build
// returns; after an error there is nothing of use. Nobody may use the directory meanwhile.
func Build(dir, cluster string, entries iter.Seq2[Entry, error]) (err error) {
	if err := create(dir, cluster); err != nil {
		return err
	}
	path := filepath.Join(dir, databaseName)
	// A crash leaves something that nobody takes for a database of theirs: see the
	// caller. So there is one sync, at the end.
	db, conn, err := connect(path, url.Values{"mode": {"rw"}, "_journal_mode": {"MEMORY"}, "_synchronous": {"OFF"}})
	if err != nil {
		return err
	}
	err = fillIn(conn, path, entries)
	if err := errors.Join(err, conn.Close(), db.Close()); err != nil {
		return explain(path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("sync the database: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync the database: %w", err)
	}
	return syncDirectory(dir)
}

// fillIn puts the entries into an empty database, as one epoch of one save.
func fillIn(conn *sql.Conn, path string, entries iter.Seq2[Entry, error]) error {
	ctx := context.Background()
	// An index that is made of all rows at once is sorted first.
	for _, text := range []string{"PRAGMA cache_size = -65536", "BEGIN IMMEDIATE", "DROP INDEX changed", "DROP INDEX keys"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	var st statements
	if err := st.prepare(conn); err != nil {
		return errors.Join(incomplete(path, err), st.close())
	}
	err := fillRecords(&st, entries)
	if err := errors.Join(err, st.close()); err != nil {
		return err
	}
	for _, text := range []string{changedIndex, keysIndex, "COMMIT"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// fillRecords writes the records, and the pass and the partitions that they come to.
func fillRecords(st *statements, entries iter.Seq2[Entry, error]) error {
	c, err := newCodec()
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	p := pass{number: max(1, now/defaultEpoch.Milliseconds()), seq: 1, time: now, position: end}
	var body bytes.Buffer
	for e, err := range entries {
		if err != nil {
			return err
		}
		body.Reset()
		if err := c.append(&body, e.record()); err != nil {
			return err
		}
		number, key := split(placeOf(e.Key))
		epoch := int64(sinceOf(p.number, true))
		sum := recordSum(key, p.seq, epoch, body.Bytes())
		if _, err := st.recordAdd.Exec(number, key, int64(p.seq), epoch, sum, body.Bytes()); err != nil {
			return err
		}
		part := &p.parts[number]
		part.keys, part.digest = part.keys+1, part.digest+sum
		p.keys++
	}
	s := &Store{statements: *st}
	for number, part := range p.parts {
		p.partKeys = part.keys
		if err := s.leavePart(&p, number, true); err != nil {
			return err
		}
	}
	if err := s.putMoment(&p); err != nil {
		return err
	}
	return s.putPass(&p)
}

// record is the entry as the only voter of a cluster knows it.
func (e Entry) record() register.Record {
	return register.Record{
		Key: e.Key, Readable: true,
		Cur: register.Write{Tag: e.Tag, Value: e.Value, Deleted: e.Deleted, Decided: true},
	}
}
