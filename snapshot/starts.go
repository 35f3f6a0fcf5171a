package snapshot

import (
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"slices"

	"gus/register"
)

// life is one opening of the database: a number drawn at random, and the highest
// save that there was. Cursors name the start that gave them out, so that one that was
// given out in a time that a restored image knows nothing of is told from a good one, also
// where the number that it has has been used again since.
type life struct {
	id  int64
	seq register.Seq
}

// keptStarts is how many are remembered: a cursor from before them is none.
const keptStarts = 64

func (a life) sum(boot int64) int64 { return sumOf("starts", boot, a.id, int64(a.seq)) }

// Database identifies this start of the database: a random number above 0. The numbers
// of saves mean something to Resume only together with it. Safe for concurrent use.
func (s *Store) Database() uint64 { return s.database }

// Resume says from which save on there is something new for who has all up to the
// cursor: after that of the cursor, where it was given out by this database, and by nothing
// that was undone since; else 0, which means all, and false. Safe for concurrent use.
func (s *Store) Resume(c Cursor) (after register.Seq, ok bool) {
	i := slices.IndexFunc(s.lives, func(a life) bool { return uint64(a.id) == c.Database })
	switch {
	case i < 0:
		return 0, false
	case i < len(s.lives)-1 && c.Seq > s.lives[i+1].seq || c.Seq > s.Last():
		return 0, false
	}
	return c.Seq, true
}

// addStart notes this start, within the transaction that counts it.
func (s *Store) addStart(boot int64) error {
	var id [8]byte
	rand.Read(id[:])                                                     // never fails
	a := life{int64(binary.LittleEndian.Uint64(id[:])>>1 | 1), s.Last()} // not negative, for people
	if _, err := s.statements.startPut.Exec(boot, a.id, int64(a.seq), a.sum(boot)); err != nil {
		return err
	}
	if _, err := s.statements.startTrim.Exec(boot - keptStarts); err != nil {
		return err
	}
	s.lives, s.database = append(s.lives, a), uint64(a.id)
	return nil
}

// loadStarts reads those before this one.
func (s *Store) loadStarts(tx *sql.Tx) error {
	rows, err := tx.Query("SELECT boot, id, seq, sum FROM starts ORDER BY boot")
	if err != nil {
		return incomplete(s.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var boot, seq, sum int64
		var a life
		if err := rows.Scan(&boot, &a.id, &seq, &sum); err != nil {
			return unreadable(s.path, err)
		}
		if a.seq = register.Seq(seq); a.sum(boot) != sum {
			return damaged(s.path, "start %d: %v", boot, errChecksum)
		}
		s.lives = append(s.lives, a)
	}
	return explain(s.path, rows.Err())
}
