package snapshot

import (
	"database/sql"
	"errors"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"gus/register"
)

// pass is the making of an epoch: of the log's rows up to target, the changes
// of the keys up to position are in the current records. Once all are, the
// epoch is complete and the rows are dropped. Since partitions come one after
// another in the order of places, position says of each whether it is complete.
type pass struct {
	number   int64        // of the epoch
	seq      register.Seq // the epoch covers what was saved up to it
	time     int64        // at its beginning, in ms since 1970, by the clock
	keys     int64        // that it has changed so far
	partKeys int64        // of those, in the partition that is under way
	target   int64        // id of the last row that it folds
	dropped  int64        // id of the last row that is gone
	position string       // place of the last key that is folded

	// What follows is not saved with the pass.
	begun      bool          // and not ended: rows are to be folded or dropped
	rows, size int64         // of the log, up to target
	ran        time.Duration // for how long the database was in use in all: see moment
	past       int64         // bytes of what it has superseded so far
	changes    []*change     // to be written, by partition
	ordered    int           // of those, are in order of their places
	parts      [register.Partitions]part
	marked     [register.Partitions]mark // of the epochs that have a row of their own, the last
}

// mark is what an epoch's row says of a partition.
type mark struct{ number, keys int64 }

// part is what a partition's current records come to.
type part struct {
	keys   int64
	digest int64 // the sum, modulo 2^64, of the sums of its rows
}

// end is above the place of any key.
const end = "\xff"

// keptEpochs is how many of a partition's epochs the database remembers.
const keptEpochs = 100

// covers says whether a record of the log is in the current ones.
func (p *pass) covers(id int64, place string) bool {
	return id <= p.target && place <= p.position
}

// complete says whether all partitions are.
func (p *pass) complete() bool { return p.position == end }

// beginPass makes all that is in the log the next epoch. Nothing is written
// yet: an epoch of which nothing was written never was.
func (s *Store) beginPass() {
	now := s.opts.now().UnixMilli()
	last := s.nextID - 1
	s.pass = pass{
		number:  max(s.pass.number+1, now/max(1, s.opts.Epoch.Milliseconds())),
		seq:     s.Last(),
		time:    now,
		target:  last,
		dropped: last - s.logRows.Load(),
		begun:   true,
		rows:    s.logRows.Load(),
		size:    s.logBytes.Load(),
		changes: s.changes.byPartition(),
		ran:     s.history.ran(),
		parts:   s.pass.parts,
		marked:  s.pass.marked,
	}
	s.changes = changes{}
	s.epochDue = time.Time{}
	s.show()
}

// foldKeys writes the next changes to the current records, in one transaction
// with the position that they reach and the epochs of the partitions that they
// complete.
func (s *Store) foldKeys() error {
	p := s.pass
	done, size := 0, int64(0)
	most := s.opts.bounds.step(s.owed)
	if s.easy() {
		most = max(1, most/4)
	}
	err := s.transact(func() error {
		for size < s.opts.bounds.piece && done < len(p.changes) && int64(done) < most {
			p.order(done)
			c := p.changes[done]
			n, err := s.foldKey(&p, c)
			if err != nil {
				return err
			}
			done, size = done+1, size+n
			ends := done == len(p.changes) || p.changes[done].place[0] != c.place[0]
			if err := s.leavePart(&p, int(c.place[0]), ends); err != nil {
				return err
			}
		}
		p.position, p.changes, p.ordered = p.changes[done-1].place, p.changes[done:], p.ordered-done
		switch {
		case len(p.changes) == 0:
			p.position = end
			if _, err := s.statements.passDrop.Exec(p.number); err != nil {
				return err
			}
		case p.changes[0].place[0] != p.position[0]:
			// All before the next partition is complete. No key stands there:
			// the empty one is in the first partition.
			p.position = p.changes[0].place[:1]
		default:
			if err := s.putPart(&p, int(p.position[0])); err != nil {
				return err
			}
		}
		if err := s.putMoment(&p); err != nil {
			return err
		}
		return s.putPass(&p)
	})
	if err != nil {
		return err
	}
	s.history.bytes += p.past - s.pass.past
	s.grown += int64(done)
	clear(s.pass.changes[:done]) // the array stays, let what it held be freed
	s.pass = p
	s.owed -= int64(done)
	if p.complete() {
		s.forget(p.seq)
		s.counted(p.number)
	}
	s.show()
	return nil
}

// foldKey writes the current record of a key and returns its size. Its number in
// the order of changes is that of the pass: a pass writes, and the next one
// takes out, what is neighbours in the index. What it supersedes goes into the history.
func (s *Store) foldKey(p *pass, c *change) (size int64, err error) {
	number, key := split(c.place)
	older, found, err := s.current(number, key)
	if err != nil || !found && c.records[0].IsMark() {
		return 0, err // a mark on nothing says nothing
	}
	newer := c.foldOver(older.Record)
	epoch, err := s.supersede(p, c, older, newer)
	if err != nil {
		return 0, err
	}
	s.body.Reset()
	if err := s.codec.append(&s.body, newer); err != nil {
		return 0, err
	}
	body := s.body.Bytes()
	part, put := &p.parts[number], s.statements.recordPut
	if found {
		part.digest -= older.sum
	} else {
		part.keys++
		put = s.statements.recordAdd
	}
	sum := recordSum(key, p.seq, int64(epoch), body)
	part.digest += sum
	p.keys, p.partKeys = p.keys+1, p.partKeys+1
	_, err = put.Exec(number, key, int64(p.seq), int64(epoch), sum, body)
	if code, ok := resultCode(err); ok && code == sqlite3.SQLITE_CONSTRAINT {
		err = damaged(s.path, "the record of %q: %v", key, errHidden)
	}
	return int64(len(body)), err
}

// errHidden says that a record is there and was not found: a page has gone bad since the start.
var errHidden = errors.New("its page does not lead to it")

// folded is a current record with what its row says of it.
type folded struct {
	register.Record
	epoch since // 0: there is no such record
	sum   int64
}

// current returns the current record of a key, as folded so far.
func (s *Store) current(part int64, key []byte) (f folded, ok bool, err error) {
	var seq register.Seq
	var body []byte
	err = s.statements.recordGet.QueryRow(part, key).Scan(&seq, &f.epoch, &f.sum, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return f, false, nil
	}
	if err != nil {
		return f, false, err
	}
	if err := s.codec.openRecord(new(plainReader), &f.Record, key, seq, int64(f.epoch), f.sum, body); err != nil {
		return f, false, damaged(s.path, "the record of %q: %v", key, err)
	}
	return f, true, nil
}

// leavePart marks, where the last change of a partition was written, the epoch
// complete for it. A partition in which nothing changed has no such mark:
// that position has passed it says as much.
func (s *Store) leavePart(p *pass, number int, ends bool) error {
	if !ends {
		return nil
	}
	if err := s.putPart(p, number); err != nil {
		return err
	}
	n := p.partKeys
	p.partKeys = 0
	if n == 0 {
		return nil // there were only marks on nothing
	}
	p.marked[number] = mark{p.number, n}
	_, err := s.statements.epochPut.Exec(int64(number), p.number, int64(p.seq), p.time, n,
		sumOf("epochs", int64(number), p.number, int64(p.seq), p.time, n))
	if err == nil {
		_, err = s.statements.epochTrim.Exec(int64(number), keptEpochs)
	}
	return err
}

// putPart saves what a partition's records come to, within a transaction.
func (s *Store) putPart(p *pass, number int) error {
	part := p.parts[number]
	_, err := s.statements.partPut.Exec(int64(number), part.keys, part.digest,
		sumOf("parts", int64(number), part.keys, part.digest))
	return err
}

// putPass saves how far a pass is, within a transaction.
func (s *Store) putPass(p *pass) error {
	_, err := s.statements.passPut.Exec(p.number, int64(p.seq), p.time, p.keys, p.partKeys, p.target, p.dropped,
		[]byte(p.position), p.sum())
	return err
}

func (p *pass) sum() int64 {
	return sumOf("passes", p.number, int64(p.seq), p.time, p.keys, p.partKeys, p.target, p.dropped, p.position)
}

// dropRows drops the next of the log's rows that are folded, in one
// transaction; with the last one, the pass ends.
func (s *Store) dropRows() error {
	p := s.pass
	most := 4 * s.opts.bounds.keys
	if s.easy() {
		most = max(1, most/4)
	}
	p.dropped = min(p.target, p.dropped+most)
	err := s.transact(func() error {
		if _, err := s.statements.logDrop.Exec(p.dropped); err != nil {
			return err
		}
		return s.putPass(&p)
	})
	if err != nil {
		return err
	}
	s.owed -= s.opts.bounds.keys
	if p.dropped == p.target {
		s.logRows.Add(-p.rows)
		s.logBytes.Add(-p.size)
		p.begun = false
	}
	s.pass = p
	s.show()
	return nil
}

// foldSome does the next step of a pass, or begins one. Nobody waits for an
// answer: if the disk is full, it is tried again; any other failure is reported
// with the next save.
func (s *Store) foldSome() {
	s.step("make an epoch", s.foldStep)
}

func (s *Store) foldStep() error {
	if !s.pass.begun {
		s.beginPass()
	}
	if len(s.pass.changes) > 0 {
		return s.foldKeys()
	}
	return s.dropRows()
}

// step does something that no save waits for, and leaves saves their time after it.
func (s *Store) step(what string, does func() error) {
	begun, easy := time.Now(), s.easy()
	err := does()
	s.nextStep = time.Time{}
	if now := time.Now(); easy {
		s.nextStep = now.Add(easyPace * now.Sub(begun))
	} else if s.saving {
		s.nextStep = now.Add(pace * now.Sub(begun))
	} else {
		s.nextStep = now.Add(idlePace * now.Sub(begun))
	}
	s.saving = false
	s.settle(what, err)
}
