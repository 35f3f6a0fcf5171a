package snapshot

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gus/register"
)

// Backup writes a backup of one state of the database to w: all that was reported as
// saved before the call is in it. Of o, the site and the program count; the rest is filled
// in. It reads beside saves, on a connection of its own, and holds in memory a row of each
// partition and what the log holds beyond the current records, which has a bound. While it
// runs, the file gus.db-wal cannot shrink. After an error that is not w's, w was told of it. Safe for
// concurrent use before Close.
func (s *Store) Backup(w io.Writer, o Origin) (sum Summary, err error) {
	v, err := s.look(1)
	if err != nil {
		return Summary{}, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	d, err := s.newDump(v.txs[0])
	if err != nil {
		return Summary{}, err
	}
	defer d.close()
	o.Cluster, o.Time, o.Epoch, o.Seq, o.Database = s.opts.Cluster, time.Now(), uint64(d.whole.number), d.last, s.database
	b, err := newBackupWriter(w, o)
	if err != nil {
		return Summary{}, err
	}
	if err := d.entries(b.add); err != nil {
		b.fail(err)
		return Summary{}, err
	}
	return b.finish()
}

// dump reads the current record of each key, in the order of keys.
type dump struct {
	s       *Store
	pass    pass
	whole   pass
	last    register.Seq
	changes []*change // beyond the records, by key
	parts   []*dumpPart
	plain   plainReader
}

// dumpPart is a partition that is read, with its next record at hand.
type dumpPart struct {
	number int
	rows   *sql.Rows
	key    []byte // nil: there is no further one
	record register.Record
	found  part
}

// newDump begins to read what tx shows. The caller closes it.
func (s *Store) newDump(tx *sql.Tx) (d *dump, err error) {
	d = &dump{s: s}
	if d.pass, d.whole, err = readPasses(tx, s.path); err != nil {
		return nil, err
	}
	if d.pass.parts, err = readParts(tx, s.path); err != nil {
		return nil, err
	}
	d.last = d.pass.seq
	beyond := changes{}
	for row, err := range s.readLog(tx) {
		if err != nil {
			return nil, err
		}
		for _, r := range row.records {
			if at := placeOf(r.Key); !d.pass.covers(row.id, at) {
				beyond.add(at, r)
			}
		}
		d.last = max(d.last, row.seq)
	}
	d.changes = beyond.inOrder()
	slices.SortFunc(d.changes, func(a, b *change) int { return strings.Compare(a.place[1:], b.place[1:]) })
	for number := range register.Partitions {
		const query = "SELECT key, seq, epoch, sum, body FROM records WHERE part = ? ORDER BY key"
		rows, err := tx.Query(query, int64(number))
		if err != nil {
			d.close()
			return nil, incomplete(s.path, err)
		}
		p := &dumpPart{number: number, rows: rows}
		d.parts = append(d.parts, p)
		if err := d.advance(p); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

func (d *dump) close() {
	for _, p := range d.parts {
		p.rows.Close() // nothing was written
	}
}

// advance reads the next record of a partition. At its end, what came must be what
// was written.
func (d *dump) advance(p *dumpPart) error {
	p.key, p.record = nil, register.Record{}
	if !p.rows.Next() {
		if err := p.rows.Err(); err != nil {
			return explain(d.s.path, err)
		}
		if want := d.pass.parts[p.number]; p.found != want {
			return damaged(d.s.path, "partition %d has %d records, digest %x, where %d were written, digest %x",
				p.number, p.found.keys, uint64(p.found.digest), want.keys, uint64(want.digest))
		}
		return nil
	}
	var seq register.Seq
	var epoch, sum int64
	var body []byte
	if err := p.rows.Scan(&p.key, &seq, &epoch, &sum, &body); err != nil {
		return unreadable(d.s.path, err)
	}
	if p.key == nil {
		p.key = []byte{} // the record of no key
	}
	if err := d.s.codec.openRecord(&d.plain, &p.record, p.key, seq, epoch, sum, body); err != nil {
		return damaged(d.s.path, "save %d, the record of %q: %v", seq, p.key, err)
	}
	p.found.keys, p.found.digest = p.found.keys+1, p.found.digest+sum
	return nil
}

// next returns the next record, and whether there is one.
func (d *dump) next() (r register.Record, ok bool, err error) {
	var first *dumpPart
	for _, p := range d.parts {
		if p.key != nil && (first == nil || string(p.key) < string(first.key)) {
			first = p
		}
	}
	if len(d.changes) > 0 {
		c := d.changes[0]
		key := c.place[1:]
		if first == nil || key <= string(first.key) {
			d.changes = d.changes[1:]
			if first == nil || key < string(first.key) {
				return c.foldOver(register.Record{}), true, nil
			}
			r = c.foldOver(first.record)
			return r, true, d.advance(first)
		}
	}
	if first == nil {
		return r, false, nil
	}
	r = first.record
	return r, true, d.advance(first)
}

// records calls each with the current record of each key.
func (d *dump) records(each func(register.Record) error) error {
	for {
		r, ok, err := d.next()
		if err != nil || !ok {
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
}

// entries calls each with each key that has a write.
func (d *dump) entries(each func(*Entry) error) error {
	return d.records(func(r register.Record) error {
		if e, ok := entryOf(r); ok {
			return each(&e)
		}
		return nil
	})
}

// entryOf is what a record comes to where its voter is the only one: its newest write,
// accepted or not. All that was reported to a client is in it, since the owner's own record of a
// write comes before that.
func entryOf(r register.Record) (Entry, bool) {
	w, settled := r.Cur, r.Cur.Decided || r.Readable
	for _, c := range r.Recs {
		if w.Tag.Less(c.Write.Tag) && !c.NoValue {
			w, settled = c.Write, c.Write.Decided
		}
	}
	if p := r.Pending; p != nil && w.Tag.Less(p.Write.Tag) {
		w, settled = p.Write, false
	}
	if r.Key == "" || w.Tag.IsZero() {
		return Entry{}, false
	}
	e := Entry{Key: r.Key, Tag: w.Tag, Value: w.Value, Deleted: w.Deleted, Unsettled: !settled}
	if e.Deleted {
		e.Value = nil
	}
	return e, true
}

// Dormant is the data directory of an agent that does not run: it can be looked at, and no
// agent can start meanwhile.
type Dormant struct {
	s *Store
}

// OpenDormant locks the data directory dir and checks its database, and writes nothing.
// It refuses as Open does. The caller closes it.
func OpenDormant(dir string) (*Dormant, error) {
	path := filepath.Join(dir, databaseName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: %w: name the data directory of a site that has run", path, err)
	}
	codec, err := newCodec()
	if err != nil {
		return nil, err
	}
	lock, err := enter(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, codec: codec, lock: lock, changes: changes{}}
	s.opts.setDefaults()
	s.log = s.opts.Logger
	d := &Dormant{s: s}
	if err := d.open(dir); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return d, nil
}

func (d *Dormant) open(dir string) error {
	if _, err := checkFiles(dir); err != nil {
		return err
	}
	return d.s.inspect()
}

// Cluster is the id of the cluster that the database belongs to.
func (d *Dormant) Cluster() string { return d.s.opts.Cluster }

// Cursors returns how far this site has read others' databases, by their names.
func (d *Dormant) Cursors() map[string]Cursor { return d.s.Cursors() }

// Epochs is as of a Store.
func (d *Dormant) Epochs() []Epoch { return d.s.Epochs() }

// Backup is as of a Store.
func (d *Dormant) Backup(w io.Writer, o Origin) (Summary, error) { return d.s.Backup(w, o) }

// Entries calls each with each key, in order, and returns what they come to, its first
// error, or its own.
func (d *Dormant) Entries(each func(Entry) error) (sum Summary, err error) {
	v, err := d.s.look(1)
	if err != nil {
		return Summary{}, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	x, err := d.s.newDump(v.txs[0])
	if err != nil {
		return Summary{}, err
	}
	defer x.close()
	err = x.entries(func(e *Entry) error {
		sum.count(e)
		return each(*e)
	})
	return sum, err
}

// Note returns the voter's note of what it has heard of voters, the record of no key; a zero
// one where there is none.
func (d *Dormant) Note() (note register.Record, err error) {
	v, err := d.s.look(1)
	if err != nil {
		return note, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	x, err := d.s.newDump(v.txs[0])
	if err != nil {
		return note, err
	}
	defer x.close()
	r, _, err := x.next() // it comes first
	if r.Key == "" {
		note = r
	}
	return note, err
}

// Close gives the directory free.
func (d *Dormant) Close() error { return d.s.lock.Unlock() }

// Lock locks the data directory dir, made if need be, so that no agent runs there and
// nobody else puts anything in place. It refuses as Open does.
func Lock(dir string) (unlock func() error, err error) {
	lock, err := enter(dir)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}
