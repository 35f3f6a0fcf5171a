package snapshot

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gus/register"
)

// ErrNoEpoch says that an epoch cannot be read: it is not kept any more, or not there yet.
var ErrNoEpoch = errors.New("no such epoch")

// Moment is an epoch that can be read.
type Moment struct {
	Number uint64
	Seq    register.Seq // it covers all that was saved up to it
	Time   time.Time    // at its end, by the clock
	Keys   int64        // that it has changed
	Bytes  int64        // about, of the versions that it has superseded
}

// Version is a settled write that was the newest one of its key at the end of an epoch.
type Version struct {
	Key     string
	Epoch   uint64 // the first one at whose end it was
	Tag     register.Tag
	Deleted bool
	Size    int    // of Value
	Value   []byte // nil in lists
}

// Timeline returns the epochs that can be read, the newest first: those with numbers
// below before (0: all), and at most limit. Safe for concurrent use before Close.
func (s *Store) Timeline(before uint64, limit int) ([]Moment, error) {
	const query = selectMoments + " WHERE number < ? AND number <= ? ORDER BY number DESC LIMIT ?"
	newest := s.newest()
	if before == 0 {
		before = newest + 1
	}
	return s.moments(query, bounded(before), bounded(newest), limit)
}

// MomentAt returns the last epoch that the clock dates up to t, or ErrNoEpoch. Safe for
// concurrent use before Close.
func (s *Store) MomentAt(t time.Time) (Moment, error) {
	const query = selectMoments + " WHERE time <= ? AND number <= ? ORDER BY number DESC LIMIT 1"
	list, err := s.moments(query, t.UnixMilli(), bounded(s.newest()))
	if err != nil {
		return Moment{}, err
	}
	if len(list) == 0 {
		return Moment{}, noEpoch{"at " + t.UTC().Format(time.RFC3339), s.kept()}
	}
	return list[0], nil
}

// MomentAtNumber returns the epoch of that number, or ErrNoEpoch. Safe for concurrent use
// before Close.
func (s *Store) MomentAtNumber(number uint64) (Moment, error) {
	list, err := s.Timeline(number+1, 1)
	if err == nil && (len(list) == 0 || list[0].Number != number) {
		err = noEpoch{fmt.Sprint(number), s.kept()}
	}
	if err != nil {
		return Moment{}, err
	}
	return list[0], nil
}

// bounded is n as SQLite can have it.
func bounded(n uint64) int64 { return int64(min(n, 1<<63-1)) }

// newest is the number of the newest epoch that is complete.
func (s *Store) newest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.stats.Epoch
}

// kept says which epochs can be read.
func (s *Store) kept() string {
	const query = selectMoments + " WHERE number >= ? ORDER BY number LIMIT 1"
	s.mu.Lock()
	st := s.shown.stats
	s.mu.Unlock()
	if st.OldestEpoch == 0 {
		return "there is none yet"
	}
	of := ""
	if list, err := s.moments(query, bounded(st.OldestEpoch)); err == nil && len(list) == 1 {
		of = ", of " + list[0].Time.UTC().Format(time.RFC3339) + ","
	}
	return fmt.Sprintf("there are %d%s to %d", st.OldestEpoch, of, st.Epoch)
}

func (s *Store) moments(query string, args ...any) (list []Moment, err error) {
	err = s.read(query, args, func(rows *sql.Rows) error {
		var m moment
		if err := m.scan(rows); err != nil {
			return err
		}
		list = append(list, Moment{uint64(m.number), m.seq, time.UnixMilli(m.time), m.keys, m.bytes})
		return nil
	})
	return list, err
}

// past is one state of the database as an epoch has left it.
type past struct {
	store *Store
	tx    *sql.Tx
	epoch int64     // 0: the newest
	older *sql.Stmt // of superseded; nil: not prepared yet
}

// lookAt calls f with the past at an epoch that can be read, or, where epoch is 0, with the present one.
func (s *Store) lookAt(epoch uint64, f func(*past) error) (err error) {
	newest := s.newest() // before the transaction: what is complete later, it may see half of
	tx, err := s.readers.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(s.path, err)
	}
	missing := false
	defer func() {
		if err = errors.Join(err, tx.Rollback()); missing {
			err = noEpoch{fmt.Sprint(epoch), s.kept()} // which reads, too: its turn is after the rollback
			return
		}
		err = unreadable(s.path, err)
	}()
	p := &past{store: s, tx: tx, epoch: bounded(epoch)}
	if epoch != 0 {
		var number int64
		err := tx.QueryRow("SELECT ifnull(max(number), 0) FROM timeline WHERE number <= ?", p.epoch).Scan(&number)
		if err != nil {
			return err
		}
		if missing = number == 0 || epoch > newest; missing {
			return nil
		}
	}
	return f(p)
}

// noEpoch is an ErrNoEpoch, which is nothing that was read.
type noEpoch struct{ which, kept string }

func (e noEpoch) Error() string { return fmt.Sprintf("%v: %s: %s", ErrNoEpoch, e.which, e.kept) }
func (e noEpoch) Unwrap() error { return ErrNoEpoch }

// At returns the version that key had at the end of an epoch; false: none. An epoch
// between two that there are is the first of these. Where that epoch cannot be read it returns
// ErrNoEpoch. Safe for concurrent use before Close.
func (s *Store) At(epoch uint64, key string) (v Version, ok bool, err error) {
	err = s.lookAt(epoch, func(p *past) error {
		part := int64(register.Partition(key))
		e, found, err := p.record(part, key)
		if err != nil || !found {
			return err
		}
		v, ok, err = p.of(part, e, true)
		return err
	})
	return v, ok, err
}

// entry is a row of the records.
type entry struct {
	key     []byte
	current Version // with no epoch: it is not settled
	first   bool    // no version is before it
}

// until is where the version before it ends, if there is one.
func (e *entry) until() int64 {
	if e.current.Epoch == 0 {
		return forever
	}
	return int64(e.current.Epoch)
}

// errNoVersion says that the index on versions, or the table, does not have what must be there.
var errNoVersion = errors.New("an older version is missing")

// record reads the record of a key; false: there is none.
func (p *past) record(part int64, key string) (e entry, ok bool, err error) {
	list, err := p.records(true, "part = ? AND key = ?", part, []byte(key))
	if err != nil || len(list) == 0 {
		return e, false, err
	}
	return list[0], true, nil
}

// records reads rows of the records, and lets values go that nobody wants. That SQLite finds none is no
// proof: a page that has gone bad can hide rows, and lead past them. So it must find the same keys in the
// index on them, which has pages of its own.
func (p *past) records(values bool, where string, args ...any) (list []entry, err error) {
	if list, err = p.rows(values, where, args...); err != nil {
		return nil, err
	}
	rows, err := p.tx.Query("SELECT key FROM records INDEXED BY keys WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var key sql.RawBytes
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		if n >= len(list) || !bytes.Equal(list[n].key, key) {
			return nil, fmt.Errorf("the record of %q: %w", key, errHidden)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if n < len(list) {
		return nil, fmt.Errorf("the record of %q: %w", list[n].key, errHidden)
	}
	return list, nil
}

func (p *past) rows(values bool, where string, args ...any) (list []entry, err error) {
	rows, err := p.tx.Query("SELECT key, seq, epoch, sum, body FROM records NOT INDEXED WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	d := new(plainReader)
	for rows.Next() {
		var seq register.Seq
		var epoch since
		var sum int64
		var body sql.RawBytes
		var e entry
		var r register.Record
		if err := rows.Scan(&e.key, &seq, &epoch, &sum, &body); err != nil {
			return nil, err
		}
		if err := p.store.codec.openRecord(d, &r, e.key, seq, int64(epoch), sum, body); err != nil {
			return nil, fmt.Errorf("the record of %q: %w", e.key, err)
		}
		e.first = epoch.first()
		if isVersion(r) {
			e.current = versionOf(r.Key, epoch, r.Cur)
		}
		if !values {
			e.current.Value = nil
		}
		list = append(list, e)
	}
	return list, rows.Err()
}

func versionOf(key string, epoch since, w register.Write) Version {
	return Version{Key: key, Epoch: uint64(epoch.number()), Tag: w.Tag, Deleted: w.Deleted, Size: len(w.Value), Value: w.Value}
}

// of returns what e's key was then. In lists, the values are let go.
func (p *past) of(part int64, e entry, value bool) (v Version, ok bool, err error) {
	v = e.current
	if v.Epoch == 0 || p.epoch != 0 && int64(v.Epoch) > p.epoch {
		v, ok, err = p.superseded(part, e)
	} else {
		ok = true
	}
	if !value {
		v.Value = nil
	}
	return v, ok, err
}

// superseded returns the version of e's key, older than the current one, that ended after the
// epoch, where it had begun by then. Where there is none, the sum of a row says so: that of the
// key's first version, or of its record if that has replaced nothing. That the index finds none is no
// proof, since a wrong bit in it can hide a row, or lead to another one.
func (p *past) superseded(part int64, e entry) (Version, bool, error) {
	const query = "SELECT until, epoch, ts, owner, deleted, sum, value FROM versions INDEXED BY of_key WHERE part = ? AND key = ? AND until > ? ORDER BY until LIMIT 1"
	after := p.epoch
	if after == 0 {
		after = forever - 1
	}
	if e.first {
		return Version{}, false, nil
	}
	if p.older == nil {
		var err error
		if p.older, err = p.tx.Prepare(query); err != nil { // closed with the transaction
			return Version{}, false, err
		}
	}
	v := version{part: part, key: e.key}
	err := v.scan(p.older.QueryRow(part, e.key, after).Scan, &v.until)
	was := p.epoch == 0 || v.epoch.number() <= p.epoch
	if errors.Is(err, sql.ErrNoRows) || err == nil && (v.until <= after || !was && !v.epoch.first()) {
		err = errNoVersion
	}
	if err != nil {
		return Version{}, false, fmt.Errorf("a version of %q: %w", e.key, err)
	}
	return versionOf(string(e.key), v.epoch, v.write), was, nil
}

// History returns the versions of key, the newest first, without values: those that
// began before an epoch (0: all), and at most limit. Safe for concurrent use before Close.
func (s *Store) History(key string, before uint64, limit int) (list []Version, err error) {
	err = s.versions(key, before, func(v Version) (more bool) {
		v.Value = nil
		list = append(list, v)
		return len(list) < limit
	})
	return list, err
}

// Find returns the version of key that has that tag; false: it is not kept. Safe for concurrent use before Close.
func (s *Store) Find(key string, tag register.Tag) (found Version, ok bool, err error) {
	err = s.versions(key, 0, func(v Version) (more bool) {
		if v.Tag == tag {
			found, ok = v, true
		}
		return !ok
	})
	return found, ok, err
}

// versions calls each with the versions of key that began before an epoch, until it wants no more.
func (s *Store) versions(key string, before uint64, each func(Version) (more bool)) error {
	const query = "SELECT until, epoch, ts, owner, deleted, sum, value FROM versions INDEXED BY of_key WHERE part = ? AND key = ? ORDER BY until DESC"
	part := int64(register.Partition(key))
	return s.lookAt(0, func(p *past) error {
		e, found, err := p.record(part, key)
		if err != nil || !found {
			return err
		}
		fits := func(v Version) bool { return before == 0 || v.Epoch < before }
		until, first := e.until(), e.first
		if v := e.current; v.Epoch != 0 && fits(v) && !each(v) {
			return nil
		}
		rows, err := p.tx.Query(query, part, []byte(key))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			v := version{part: part, key: []byte(key)}
			if err := v.scan(rows.Scan, &v.until); err != nil {
				return fmt.Errorf("a version of %q: %w", key, err)
			}
			if first || v.until != until {
				return fmt.Errorf("a version of %q: %w", key, errNoVersion)
			}
			until, first = v.epoch.number(), v.epoch.first()
			if at := versionOf(key, v.epoch, v.write); fits(at) && !each(at) {
				return nil
			}
		}
		if err := rows.Err(); err != nil || first {
			return err
		}
		return p.gone(key, until)
	})
}

// gone returns an error where a version of key that ended with that epoch would still be kept.
func (p *past) gone(key string, until int64) error {
	var oldest int64
	err := p.tx.QueryRow("SELECT ifnull(min(number), 0) FROM timeline").Scan(&oldest)
	if err == nil && until > oldest {
		err = fmt.Errorf("a version of %q: %w", key, errNoVersion)
	}
	return err
}

// PageAt returns what keys were at the end of an epoch, without values: of those that begin with prefix
// and are above after, in order, deleted ones left out, at most limit. It looks at limit
// keys in all; next is where it goes on after, and empty at the end. Where the epoch
// cannot be read it returns ErrNoEpoch. Safe for concurrent use before Close.
func (s *Store) PageAt(epoch uint64, prefix, after string, limit int) (list []Version, next string, err error) {
	err = s.lookAt(epoch, func(p *past) error {
		m := merged{past: p, prefix: prefix, chunk: limit/register.Partitions + 16}
		for i := range m.parts {
			m.parts[i].from = max(prefix, after+"\x00")
			if after == "" {
				m.parts[i].from = prefix
			}
		}
		for range limit {
			part, e, err := m.next()
			if err != nil || e == nil {
				next = ""
				return err
			}
			next = string(e.key)
			v, ok, err := p.of(part, *e, false)
			if err != nil {
				return err
			}
			if ok && !v.Deleted {
				list = append(list, v)
			}
		}
		return nil
	})
	return list, next, err
}

// merged reads the records of all partitions in the order of keys.
type merged struct {
	*past
	prefix string
	chunk  int
	parts  [register.Partitions]struct {
		ahead []entry
		from  string // the least key that is still to be read
		ended bool
	}
}

// next returns the next record, nil at the end.
func (m *merged) next() (part int64, e *entry, err error) {
	for i := range m.parts {
		p := &m.parts[i]
		if len(p.ahead) == 0 && !p.ended {
			if err := m.fill(i); err != nil {
				return 0, nil, err
			}
		}
		if len(p.ahead) > 0 && (e == nil || string(p.ahead[0].key) < string(e.key)) {
			part, e = int64(i), &p.ahead[0]
		}
	}
	if e != nil {
		m.parts[part].ahead = m.parts[part].ahead[1:]
	}
	return part, e, nil
}

// fill reads the next records of a partition.
func (m *merged) fill(i int) (err error) {
	p := &m.parts[i]
	if p.ahead, err = m.records(false, "part = ? AND key >= ? AND key <> x'' ORDER BY key LIMIT ?", i, []byte(p.from), m.chunk); err != nil {
		return err
	}
	p.ended = len(p.ahead) < m.chunk
	for n := range p.ahead {
		if !strings.HasPrefix(string(p.ahead[n].key), m.prefix) {
			p.ahead, p.ended = slices.Clip(p.ahead[:n]), true
			return nil
		}
	}
	if n := len(p.ahead); n > 0 {
		p.from = string(p.ahead[n-1].key) + "\x00"
	}
	return nil
}
