package snapshot

import (
	"database/sql"
	"errors"
	"net/url"
	"testing"

	"gus/register"
)

// SQLite's log begins anew again and again, however long saving goes on, and no
// save is lost with it. While somebody reads it cannot, and does so afterwards.
func TestSQLiteLogBeginsAnew(t *testing.T) {
	dir := freshDir(t)
	s := begin(t, dir, small)
	// A save of the workload, and a step of folding, write a few dozen pages each.
	const bound = 12 * 40 * (4096 + walFrameHeader)
	seq := register.Seq(0)
	goOn := func(saves register.Seq) {
		s.fill(t, seq+1, seq+saves)
		seq += saves
	}
	goOn(150)
	if size := s.Stats().WALBytes; size > bound {
		t.Errorf("SQLite's log has %d bytes", size)
	}
	release := readingFrom(t, s.path)
	goOn(150)
	held := s.Stats().WALBytes
	if held <= bound {
		t.Errorf("SQLite's log has %d bytes, and a reader needs them", held)
	}
	release()
	goOn(150)
	if size := s.Stats().WALBytes; size > held+bound {
		t.Errorf("SQLite's log has grown from %d to %d bytes without a reader", held, size)
	}
	mustEqual(t, recovered(t, s.Records()), replayed(seq))
	s.end(t)
	mustEqual(t, recovered(t, begin(t, dir, small).Records()), replayed(seq))
}

// readingFrom begins to read the database at path and ends when it is released.
func readingFrom(t *testing.T, path string) (release func()) {
	t.Helper()
	db, conn, err := connect(path, url.Values{"mode": {"ro"}})
	must(t, err)
	tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	must(t, err)
	var n int
	must(t, tx.QueryRow("SELECT count(*) FROM records").Scan(&n))
	return func() { must(t, errors.Join(tx.Rollback(), conn.Close(), db.Close())) }
}

// Where pages could not be moved and it is not for want of space, nobody knows what
// the database holds of them: no save succeeds any more.
func TestAFailedMoveEndsSaving(t *testing.T) {
	s := begin(t, freshDir(t), small)
	must(t, s.mover.conn.Close())
	var err error
	seq := register.Seq(1)
	for ; err == nil && seq < 1000; seq++ {
		err = s.save(seq, workload(seq))
	}
	if err == nil || errors.Is(err, ErrRolledBack) {
		t.Fatalf("save %d ends with %v", seq, err)
	}
	if again := s.save(seq, workload(seq)); !errors.Is(again, sql.ErrConnDone) {
		t.Errorf("the next save ends with %v", again)
	}
	if err := s.Close(); !errors.Is(err, sql.ErrConnDone) {
		t.Errorf("closing ends with %v", err)
	}
}
