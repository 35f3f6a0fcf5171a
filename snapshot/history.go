package snapshot

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"

	"gus/register"
)

// Retention says how much of the past is kept. The newest epoch always is.
type Retention struct {
	// For is how long an epoch can be read, in time that the database was open (what
	// a clock says does not count); 0: a day.
	For time.Duration
	// Bytes is how much superseded versions may take, about; 0: no limit. A tenth more is
	// tolerated for a while.
	Bytes int64
	// Epochs is how many can be read; 0: no limit.
	Epochs int64
}

func (r *Retention) setDefaults() {
	if r.For <= 0 {
		r.For = 24 * time.Hour
	}
}

// history is what is kept of the past.
//
// A version is a settled write that was the newest one of its key at the end of an
// epoch. The current ones are in the records, with the epoch since which they are. What an
// epoch supersedes it moves to the table versions, with the epoch until which it was: so what is no more needed
// stands at the beginning of the table, and compaction need not look for it. The table
// timeline has a row for each epoch that can be read.
//
// Where the newest write of a key is not settled at the end of an epoch, the settled one before
// it is in versions, too, with no end, until a later epoch finds one that is settled.
//
// No clock says what may be deleted. An epoch's row has for how long the database was open
// until then in all, as the processor's timer counts it; while it is closed that stands
// still. So a clock that is wrong by years costs nothing, and a site that was off for
// a week still has the day before.
type history struct {
	base   time.Duration // for how long the database was open before this time
	opened time.Time
	oldest int64 // number of the oldest epoch that can be read, 0 if none
	epochs int64 // how many can be
	bytes  int64 // what versions take that ended after the oldest
	since  int64 // epochs since the last compaction
	looks  bool  // to see what may go
	limit  int64 // versions until this epoch go; 0: none do
	turn   bool  // compaction had the last step, and not a pass
}

const (
	// compactEach is after how many epochs there is a compaction.
	compactEach = 100
	// compactRows is how many versions one step of it deletes at most.
	compactRows = 128
	// forever is the end of a version that has none.
	forever int64 = math.MaxInt64
	// versionCost is what a version takes in tables beside its key, twice, and value: about.
	versionCost = 60
)

// ran is for how long the database was open in all.
func (h *history) ran() time.Duration { return h.base + time.Since(h.opened) }

// due says whether a compaction is under way.
func (h *history) due() bool { return h.looks || h.limit != 0 }

// counted takes note of a complete epoch.
func (s *Store) counted(number int64) {
	h := &s.history
	if h.oldest == 0 {
		h.oldest = number
	}
	h.epochs, h.since = h.epochs+1, h.since+1
	most := s.opts.Retain.Bytes
	if h.since >= compactEach || most > 0 && h.bytes > most+most/10 {
		h.since, h.looks = 0, true
	}
}

// since is the epoch from which on a write was the newest one of its key, as rows have it:
// negative where no version of the key is before it. So whoever finds none knows whether one
// is missing: see past.go.
type since int64

// sinceOf is the epoch of that number.
func sinceOf(number int64, first bool) since {
	if first {
		return since(-number)
	}
	return since(number)
}

func (s since) number() int64 { return int64(max(s, -s)) }
func (s since) first() bool   { return s <= 0 }

// version is a row of versions. Those of a key follow each other without a gap: each one's end is the
// next one's beginning.
type version struct {
	until, part int64
	key         []byte
	epoch       since
	write       register.Write
}

// sum is that of the row.
func (v *version) sum() int64 {
	b := make([]byte, 0, 64)
	for _, n := range []int64{v.until, v.part, int64(v.epoch), int64(v.write.Tag.TS), int64(v.write.Tag.Owner), flag(v.write.Deleted)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	sum := crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, v.key)
	return int64(crc32.Update(mix(uint64(sum)), castagnoli, v.write.Value))
}

func (v *version) bytes() int64 {
	return versionCost + int64(2*len(v.key)+len(v.write.Value))
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// supersede moves what the fold of a change supersedes into the history, and returns since
// which epoch the newer record's write is the current one.
func (s *Store) supersede(p *pass, c *change, older folded, newer register.Record) (epoch since, err error) {
	was, is := isVersion(older.Record), isVersion(newer)
	had := was || !older.epoch.first() // there is, or was, a version of the key
	part, key := split(c.place)
	v := version{part: part, key: key, until: p.number}
	if older.Cur.Tag == newer.Cur.Tag {
		switch {
		case was:
			return older.epoch, nil
		case is && had:
			return sinceOf(p.number, false), s.endVersion(p, v)
		}
		return sinceOf(p.number, !had), nil
	}
	between := c.settled // it was the newest one within the epoch
	switch {
	case between != nil && was && between.Tag == older.Cur.Tag:
		between = nil
	case between == nil && !was && !c.marked.IsZero() && older.Cur.Tag == c.marked:
		between = &older.Cur
	}
	switch {
	case was:
		v.epoch, v.write = older.epoch, older.Cur
		if !is && between == nil {
			v.until = forever
		}
		err = s.putVersion(p, v)
	case had && (is || between != nil):
		err = s.endVersion(p, v)
	}
	if err == nil && !is && between != nil {
		v.until, v.epoch, v.write = forever, sinceOf(p.number, !had), *between
		err, had = s.putVersion(p, v), true
	}
	return sinceOf(p.number, !had), err
}

// isVersion says whether a record's write may be one: it is settled.
func isVersion(r register.Record) bool { return isSettled(r) && !r.Cur.Tag.IsZero() }

// putVersion saves a version, within a transaction.
func (s *Store) putVersion(p *pass, v version) error {
	if v.until != forever {
		p.past += v.bytes()
	}
	value := v.write.Value
	if value == nil {
		value = []byte{} // not NULL
	}
	_, err := s.statements.versionPut.Exec(v.until, v.part, v.key, int64(v.epoch),
		int64(v.write.Tag.TS), int64(v.write.Tag.Owner), flag(v.write.Deleted), v.sum(), value)
	return err
}

// endVersion gives the version of v's key that has no end that of v, if there is one.
func (s *Store) endVersion(p *pass, v version) error {
	found, until := v, v.until
	found.until = forever
	err := found.scan(s.statements.versionTake.QueryRow(forever, v.part, v.key).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return unreadable(s.path, err)
	}
	found.until = until
	return s.putVersion(p, found)
}

// scan reads the columns from epoch on, and checks the sum.
func (v *version) scan(scan func(...any) error, before ...any) error {
	var ts, owner, deleted, sum int64
	if err := scan(append(before, &v.epoch, &ts, &owner, &deleted, &sum, &v.write.Value)...); err != nil {
		return err
	}
	v.write.Tag = register.Tag{TS: uint64(ts), Owner: register.Voter(owner)}
	v.write.Deleted = deleted != 0
	if v.sum() != sum || flag(v.write.Deleted) != deleted {
		return errChecksum
	}
	return nil
}

// moment is a row of timeline.
type moment struct {
	number int64
	seq    register.Seq
	time   int64         // by the clock, for people
	ran    time.Duration // for how long the database was open
	keys   int64         // that the epoch has changed
	bytes  int64         // of the versions that the epoch has superseded
}

func (m *moment) sum() int64 {
	var b []byte
	for _, n := range []int64{m.number, int64(m.seq), m.time, int64(m.ran), m.keys, m.bytes} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return int64(crc32.Checksum(b, castagnoli))
}

// selectMoments begins a query of what scan takes.
const selectMoments = "SELECT number, seq, time, ran, keys, bytes, sum FROM timeline"

func (m *moment) scan(rows *sql.Rows) error {
	var sum int64
	if err := rows.Scan(&m.number, &m.seq, &m.time, &m.ran, &m.keys, &m.bytes, &sum); err != nil {
		return err
	}
	if m.sum() != sum {
		return errChecksum
	}
	return nil
}

// putMoment saves what a pass is in the timeline, within a transaction of it. While
// the pass is not complete, nobody looks at it.
func (s *Store) putMoment(p *pass) error {
	m := moment{p.number, p.seq, p.time, p.ran, p.keys, p.past}
	_, err := s.statements.timePut.Exec(m.number, int64(m.seq), m.time, int64(m.ran), m.keys, m.bytes, m.sum())
	return err
}

// loadTimeline reads and checks what is kept.
func (s *Store) loadTimeline(tx *sql.Tx) error {
	h := &s.history
	h.opened = time.Now()
	rows, err := tx.Query(selectMoments + " ORDER BY number")
	if err != nil {
		return incomplete(s.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var m moment
		if err := m.scan(rows); err != nil {
			return damaged(s.path, "the row of epoch %d: %v", m.number, err)
		}
		h.base = max(h.base, m.ran)
		if m.number == s.pass.number {
			s.pass.ran, s.pass.past = m.ran, m.bytes
		}
		if h.oldest != 0 {
			h.bytes += m.bytes
		}
		if m.number <= s.whole.number {
			h.epochs++
			if h.oldest == 0 {
				h.oldest = m.number
			}
		}
	}
	h.since = compactEach - 1 // a site that starts often compacts, too
	return explain(s.path, rows.Err())
}
