package snapshot

import (
	"database/sql"
	"errors"
	"fmt"

	"gus/register"
)

// fold is a folding under way: of the log's rows up to target, the changes of
// the keys up to position are in the current records. Once all are, the rows
// are dropped. There is no folding where target is 0.
type fold struct {
	target   int64        // id of the last row that it folds
	seq      register.Seq // of that row; it stays when the folding has ended
	position string       // place of the last key that is folded

	// What follows is not saved: it is known from the log.
	rows, size int64     // of the log, up to target
	dropped    int64     // id of the last row that is gone
	changes    []*change // to be written, by place
}

// end is above the place of any key.
const end = "\xff"

// covers says whether a record of the log is in the current ones.
func (f *fold) covers(id int64, place string) bool {
	return id <= f.target && place <= f.position
}

// foldable says whether there is folding to do: a folding to end, or one to
// begin because the log is over its bound. Below that the log is left alone, so
// that what is written again and again is folded once for many times, and in
// the order of the table, where neighbours share their pages.
func (s *Store) foldable() bool {
	if s.stalled || s.broken != nil {
		return false
	}
	b := s.opts.bounds
	return s.fold.target != 0 || s.logRows.Load() > b.rows || s.logBytes.Load() > b.bytes
}

// foldSome does the next step of folding. Nobody waits for an answer: if the
// disk is full, it is tried again after the next save that succeeds; any other
// failure is reported with the next save.
func (s *Store) foldSome() {
	if s.fold.target == 0 {
		s.beginFold()
	}
	var err error
	if len(s.fold.changes) > 0 {
		err = s.foldKeys()
	} else {
		err = s.dropRows()
	}
	if err != nil {
		err = s.failed(fmt.Errorf("fold the log: %w", err))
	}
	if s.broken != nil {
		return
	}
	s.stalled = err != nil
	switch {
	case s.stalled && !s.grows:
		s.log.Warn("the log cannot be folded and grows", "error", err)
	case !s.stalled && s.grows:
		s.log.Info("the log is folded again", "path", s.path)
	}
	s.grows = s.stalled
}

// beginFold makes all that is in the log the next folding.
func (s *Store) beginFold() {
	s.fold = fold{
		target:  s.nextID - 1,
		seq:     s.Last(),
		rows:    s.logRows.Load(),
		size:    s.logBytes.Load(),
		dropped: s.nextID - 1 - s.logRows.Load(),
		changes: s.changes.inOrder(),
	}
	s.changes = changes{}
}

// foldKeys writes the next changes to the current records, in one transaction
// with the position that they reach.
func (s *Store) foldKeys() error {
	f := s.fold
	done, size := 0, int64(0)
	err := s.statements.transact(func() error {
		for size < s.opts.bounds.piece && done < len(f.changes) && int64(done) < s.opts.bounds.keys {
			n, err := s.foldKey(f.changes[done])
			if err != nil {
				return err
			}
			done, size = done+1, size+n
		}
		f.position, f.changes = f.changes[done-1].place, f.changes[done:]
		if len(f.changes) == 0 {
			f.position = end
		}
		return s.putFold(f)
	})
	if err == nil {
		clear(s.fold.changes[:done]) // the array stays, let what it held be freed
		s.fold = f
		s.owed -= int64(done)
	}
	return err
}

// foldKey writes the current record of a key and returns its size.
func (s *Store) foldKey(c *change) (size int64, err error) {
	var older register.Record
	if c.records[0].IsMark() {
		var ok bool
		older, ok, err = s.current(c.place)
		if err != nil || !ok {
			return 0, err // a mark on nothing says nothing
		}
	}
	s.body.Reset()
	if err := s.codec.append(&s.body, c.foldOver(older)); err != nil {
		return 0, err
	}
	body := s.body.Bytes()
	part, key := split(c.place)
	_, err = s.statements.recordPut.Exec(part, key, int64(c.seq), s.codec.checksum(c.seq, body), body)
	return int64(len(body)), err
}

// current returns the current record of the key at place, as folded so far.
func (s *Store) current(place string) (r register.Record, ok bool, err error) {
	var seq register.Seq
	var sum int64
	var body []byte
	part, key := split(place)
	err = s.statements.recordGet.QueryRow(part, key).Scan(&seq, &sum, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	records, err := s.codec.open(seq, sum, body)
	if err != nil || len(records) != 1 {
		return r, false, damaged(s.path, "the record of %q: %v", key, err)
	}
	return records[0], true, nil
}

// dropRows drops the next of the log's rows that are folded, in one
// transaction; with the last one, the folding ends.
func (s *Store) dropRows() error {
	f := s.fold
	f.dropped = min(f.target, f.dropped+4*s.opts.bounds.keys)
	err := s.statements.transact(func() error {
		if _, err := s.statements.logDrop.Exec(f.dropped); err != nil {
			return err
		}
		if f.dropped < f.target {
			return nil
		}
		return s.putFold(fold{seq: f.seq})
	})
	if err != nil {
		return err
	}
	s.fold = f
	s.owed -= s.opts.bounds.keys
	if f.dropped == f.target {
		s.logRows.Add(-f.rows)
		s.logBytes.Add(-f.size)
		s.fold = fold{seq: f.seq}
	}
	return nil
}

// putFold saves how far a folding is, within a transaction.
func (s *Store) putFold(f fold) error {
	_, err := s.statements.foldPut.Exec(int64(f.seq), f.target, []byte(f.position))
	return err
}
