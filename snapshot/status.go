package snapshot

import (
	"database/sql"
	"os"
	"slices"
	"time"

	"gus/register"
)

// Epoch is a partition's newest complete epoch.
type Epoch struct {
	Part   int          // the partition, 0 to 15
	Number uint64       // the same for all partitions of one pass; 0: there was none yet
	Seq    register.Seq // it covers all that was saved up to it
	Keys   int64        // of the partition that it has changed, 0 if none
	Time   time.Time    // at its beginning, by the clock; for people only
}

// Epochs returns the newest complete epoch of each partition, in the order of
// the partitions. A partition is behind by what Last is above Seq. A pass in
// which nothing changed in a partition counts as its epoch: it covers that
// pass's saves too. Safe for concurrent use.
func (s *Store) Epochs() []Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shown.epochs[:])
}

// Stats are what the data takes on the disk, and how epochs go on.
type Stats struct {
	LogRows       int64 // saved and not yet folded and dropped; a large save has several rows
	LogBytes      int64 // of those rows, encoded
	DatabaseBytes int64 // gus.db
	WALBytes      int64 // gus.db-wal
	Records       int64 // keys in the folded records

	Epoch         uint64       // number of the newest epoch that is complete in all partitions, 0 if none
	EpochSeq      register.Seq // it covers all that was saved up to it
	EpochTime     time.Time    // at its beginning, by the clock; zero if there is none
	EpochKeys     int64        // that it has changed
	EpochUnderWay bool         // a newer one is being made
	EpochHeldUp   bool         // for want of space on the disk

	OldestEpoch  uint64 // that can be read, 0 if none
	KeptEpochs   int64  // that can be read
	HistoryBytes int64  // about what superseded versions take of the database
}

// Stats measures s. It costs two system calls. Safe for concurrent use.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	st := s.shown.stats
	s.mu.Unlock()
	st.LogRows = s.logRows.Load()
	st.LogBytes = s.logBytes.Load()
	st.DatabaseBytes = fileSize(s.path)
	st.WALBytes = fileSize(s.path + "-wal")
	return st
}

// fileSize returns the size of the file at path, 0 if there is none.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// shown is what Stats and Epochs say of epochs.
type shown struct {
	stats  Stats
	epochs [register.Partitions]Epoch
}

// show brings what is shown up to date with the pass.
func (s *Store) show() {
	p := &s.pass
	if p.complete() {
		s.whole = *p
		s.whole.changes = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.stats = Stats{
		Epoch:         uint64(s.whole.number),
		EpochSeq:      s.whole.seq,
		EpochKeys:     s.whole.keys,
		EpochUnderWay: p.number > s.whole.number,
		EpochHeldUp:   s.held,
		OldestEpoch:   uint64(s.history.oldest),
		KeptEpochs:    s.history.epochs,
		HistoryBytes:  s.history.bytes,
	}
	for _, part := range p.parts {
		s.shown.stats.Records += part.keys
	}
	if s.whole.number > 0 {
		s.shown.stats.EpochTime = time.UnixMilli(s.whole.time)
	}
	for i := range s.shown.epochs {
		newest := &s.whole
		if p.position >= string([]byte{byte(i + 1)}) {
			newest = p
		}
		e := Epoch{Part: i}
		if newest.number > 0 {
			e.Number, e.Seq, e.Time = uint64(newest.number), newest.seq, time.UnixMilli(newest.time)
		}
		if k := p.marked[i]; k.number == newest.number {
			e.Keys = k.keys
		}
		s.shown.epochs[i] = e
	}
}

// loadEpochs reads what the newest epochs have changed, and checks all.
func (s *Store) loadEpochs(tx *sql.Tx) error {
	rows, err := tx.Query("SELECT part, number, seq, time, keys, sum FROM epochs ORDER BY part, number")
	if err != nil {
		return incomplete(s.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var part, number, seq, at, keys, sum int64
		if err := rows.Scan(&part, &number, &seq, &at, &keys, &sum); err != nil {
			return unreadable(s.path, err)
		}
		if sumOf("epochs", part, number, seq, at, keys) != sum {
			return damaged(s.path, "epoch %d of partition %d: %v", number, part, errChecksum)
		}
		s.pass.marked[part] = mark{number, keys}
	}
	return explain(s.path, rows.Err())
}
