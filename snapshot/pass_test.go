package snapshot

import (
	"fmt"
	"testing"
	"testing/synctest"

	"gus/register"
)

// The log stays within its bounds however long saving goes on, the database
// and SQLite's log grow with what is kept and not with what was written, and
// nothing is lost or older than it should be.
func TestLogIsBounded(t *testing.T) {
	dir := freshDir(t)
	s := beginWith(t, dir, Options{bounds: small, Retain: Retention{Epochs: 10}})
	var size int64
	for seq := register.Seq(1); seq <= 1000; seq++ {
		must(t, s.save(seq, workload(seq)))
		if st := s.Stats(); st.LogRows > 2*small.rows+2 {
			t.Fatalf("the log has %d rows after save %d", st.LogRows, seq)
		}
		if seq == 500 {
			size = s.Stats().DatabaseBytes
		}
	}
	st := s.Stats()
	if st.DatabaseBytes > 2*size {
		t.Errorf("the database has grown from %d to %d bytes", size, st.DatabaseBytes)
	}
	if st.WALBytes > 16<<20 {
		t.Errorf("SQLite's log has %d bytes", st.WALBytes)
	}
	mustEqual(t, recovered(t, s.Records()), replayed(1000))
	s.end(t)
	mustEqual(t, recovered(t, begin(t, dir, small).Records()), replayed(1000))
}

// Saves much larger than what is folded in a step do not outrun folding.
func TestLargeSavesDoNotOutrunFolding(t *testing.T) {
	b := bounds{rows: 4, bytes: 1 << 30, keys: 64, piece: 1 << 20}
	s := begin(t, freshDir(t), b)
	want := state{}
	for seq := register.Seq(1); seq <= 20; seq++ {
		var records []register.Record
		for i := range 3 * rowRecords { // three rows, twelve steps
			records = append(records, record(fmt.Sprint(i), uint64(seq), 1))
		}
		must(t, s.save(seq, records))
		want.apply(records...)
		if st := s.Stats(); st.LogRows > 2*b.rows+3 {
			t.Fatalf("the log has %d rows after save %d", st.LogRows, seq)
		}
	}
	mustEqual(t, recovered(t, s.Records()), want)
}

// What was handed to Save is the replica's to read, and is not written to.
func TestFoldDoesNotWriteToRecords(t *testing.T) {
	dir := freshDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, dir, bounds{keys: 10, piece: 1 << 20}) // folds at once
		r := record("k", 1, 10)
		mark := register.Record{Key: "k", Mark: r.Cur.Tag, Readable: true, Cur: register.Write{Decided: true}}
		must(t, s.save(1, []register.Record{r, mark}))
		synctest.Wait()
		if r.Recs[0].Write.Decided {
			t.Error("a record was written to")
		}
		want := state{}
		want.apply(record("k", 1, 10), mark)
		mustEqual(t, recovered(t, s.Records()), want)
		s.end(t)
	})
}

// Folding leaves each key's newest record, once, and no row of the log.
func TestFoldKeepsNewest(t *testing.T) {
	dir := freshDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, dir, small)
		s.fill(t, 1, 100)
		synctest.Wait() // the writer has no more to do
		if st := s.Stats(); st.LogRows > small.rows {
			t.Errorf("an idle log has %d rows", st.LogRows)
		}
		if n := ask(t, s.conn, "SELECT max(target - dropped) FROM passes"); n != 0 {
			t.Errorf("an idle pass has %d rows to drop", n)
		}
		folded := ask(t, s.conn, "SELECT max(seq) FROM passes")
		want := int64(len(replayed(register.Seq(folded))))
		if n := ask(t, s.conn, "SELECT count(*) FROM records"); n != want {
			t.Errorf("%d records of the %d keys up to save %d", n, want, folded)
		}
		if n := ask(t, s.conn, "SELECT max(seq) FROM records"); n > folded {
			t.Errorf("a record of save %d, folded up to %d", n, folded)
		}
		if n := ask(t, s.conn, "SELECT ifnull(min(seq), 1000) FROM log"); n <= folded {
			t.Errorf("save %d in the log, folded up to %d", n, folded)
		}
		s.end(t)
	})
}

// Last does not go down when the log is folded to nothing.
func TestLastAfterFolding(t *testing.T) {
	dir := freshDir(t)
	s := begin(t, dir, bounds{rows: 0, bytes: 1, keys: 1000, piece: 1 << 20}) // folds all at once
	s.fill(t, 1, 20)
	s.end(t)
	for boot := uint64(2); boot < 5; boot++ {
		s = begin(t, dir, bounds{rows: 0, bytes: 1, keys: 1000, piece: 1 << 20})
		if s.Last() != 20 || s.Boot() != boot {
			t.Fatalf("last is %d, boot is %d, want 20 and %d", s.Last(), s.Boot(), boot)
		}
		s.end(t)
	}
}
