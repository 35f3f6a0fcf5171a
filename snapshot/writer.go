package snapshot

import (
	"fmt"
	"time"

	"gus/register"
)

// A save of more records or bytes than these has several rows, so that no
// folding transaction and no decoding is much larger.
const (
	rowRecords = 256
	rowBytes   = 1 << 20
)

// job is one save.
type job struct {
	seq     register.Seq
	records []register.Record
}

// Save begins to save records, which are not none, under seq, all or nothing,
// and returns at once; Options.Done is told how it ended. It panics where
// another save is in flight, where seq is not above all that were saved, or
// after Close: the caller has then lost track of what is durable. Only the
// goroutine that owns the replica calls it.
func (s *Store) Save(seq register.Seq, records []register.Record) {
	if len(records) == 0 {
		panic(fmt.Sprintf("snapshot: save %d is empty", seq))
	}
	if !s.busy.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("snapshot: save %d while another is in flight", seq))
	}
	if last := s.Last(); seq <= last {
		panic(fmt.Sprintf("snapshot: save %d after %d", seq, last))
	}
	s.jobs <- job{seq, records}
}

// run is the writer. It performs saves as they come and makes epochs between
// them, one small transaction at a time.
func (s *Store) run() {
	defer close(s.stopped)
	for {
		j, ok := s.next()
		if !ok {
			break
		}
		err := s.save(j)
		s.busy.Store(false) // before Done: its receiver may save at once
		s.opts.Done(j.seq, err)
	}
	s.timer.Stop()
	close(s.mover.begin)
	for range s.mover.ended { // until it has ended
	}
	if s.broken == nil && !s.cursorsDue().IsZero() {
		s.settle("save cursors", s.transact(func() error { return nil }))
	}
}

// save performs j in one transaction.
func (s *Store) save(j job) error {
	if s.broken != nil {
		return fmt.Errorf("save %d: %w", j.seq, s.broken)
	}
	var rows, size int64
	err := s.transact(func() (err error) {
		rows, size, err = s.appendLog(j)
		return err
	})
	if err != nil {
		return fmt.Errorf("save %d: %w", j.seq, s.failed(err))
	}
	s.nextID += rows
	s.logRows.Add(rows)
	s.logBytes.Add(size)
	s.grown += size / pageSize
	s.owed += 2 * int64(len(j.records))
	s.remember(j)
	s.saving = true
	s.stalled = time.Time{} // there may be room again
	if s.epochDue.IsZero() {
		s.epochDue = time.Now().Add(s.opts.Epoch)
	}
	return nil
}

// remember takes note of what is durable now.
func (s *Store) remember(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range j.records {
		s.note(s.changes.add(placeOf(r.Key), r), j.seq, !r.IsMark())
	}
	if len(s.recent) > 2*s.compact {
		s.recent = compacted(s.recent)
		s.compact = max(minCompact, len(s.recent))
	}
	s.last.Store(uint64(j.seq))
}

// appendLog adds the rows of j to the log and returns how many, and their
// size.
func (s *Store) appendLog(j job) (rows, size int64, err error) {
	inRow := 0
	flush := func() error {
		body := s.body.Bytes()
		_, err := s.statements.logInsert.Exec(s.nextID+rows, int64(j.seq), logSum(j.seq, body), body)
		rows, size, inRow = rows+1, size+int64(len(body)), 0
		s.body.Reset()
		return err
	}
	s.body.Reset()
	for _, r := range j.records {
		if err := s.codec.append(&s.body, r); err != nil {
			return rows, size, err
		}
		if inRow++; inRow == rowRecords || s.body.Len() >= rowBytes {
			if err := flush(); err != nil {
				return rows, size, err
			}
		}
	}
	if inRow > 0 {
		err = flush()
	}
	return rows, size, err
}
