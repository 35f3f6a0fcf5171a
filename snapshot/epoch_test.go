package snapshot

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
)

// seldom lets the length of epochs alone begin them.
var seldom = bounds{rows: 1 << 30, bytes: 1 << 40, keys: 6, piece: 4 << 10}

// An epoch's length after the first save, what was saved becomes one: it covers
// all partitions, those in which nothing changed too. An idle store makes none.
func TestEpochs(t *testing.T) {
	dir := freshDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := beginWith(t, dir, Options{bounds: seldom, Epoch: time.Minute})
		if st := s.Stats(); st.Epoch != 0 || st.EpochUnderWay || !st.EpochTime.IsZero() {
			t.Errorf("a new store says %+v", st)
		}
		s.fill(t, 1, 20)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Epoch != 0 {
			t.Errorf("the first epoch is there early: %+v", st)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		first := s.Stats()
		if want := uint64(time.Now().UnixMilli() / time.Minute.Milliseconds()); first.Epoch != want {
			t.Errorf("the epoch's number is %d, want %d", first.Epoch, want)
		}
		if n := int64(len(replayed(20))); first.EpochKeys != n || first.EpochSeq != 20 || first.LogRows != 0 || first.EpochUnderWay {
			t.Errorf("the first epoch, of %d keys, is %+v", n, first)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if st := s.Stats(); st.Epoch != first.Epoch || st.EpochTime != first.EpochTime {
			t.Errorf("an idle store has made an epoch: %+v", st)
		}

		must(t, s.save(21, []register.Record{record("k", 1, 1)}))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		mustCover := func() {
			t.Helper()
			for _, e := range s.Epochs() {
				want := int64(0)
				if e.Part == register.Partition("k") {
					want = 1
				}
				if e.Seq != 21 || e.Number != s.Stats().Epoch || e.Number <= first.Epoch || e.Keys != want || e.Time.IsZero() {
					t.Errorf("the second epoch is %+v", e)
				}
			}
		}
		mustCover()
		before := s.Stats()
		s.end(t)
		s = beginWith(t, dir, Options{bounds: seldom, Epoch: time.Minute})
		mustCover()
		if after := s.Stats(); after.Epoch != before.Epoch || !after.EpochTime.Equal(before.EpochTime) || after.EpochKeys != 1 {
			t.Errorf("after a start the epoch is %+v, it was %+v", after, before)
		}
		s.end(t)
	})
}

// A clock that has jumped ahead and come back costs nothing: numbers go up.
func TestEpochsWithAnotherClock(t *testing.T) {
	dir := freshDir(t)
	synctest.Test(t, func(t *testing.T) {
		var last uint64
		for i, length := range []time.Duration{time.Hour, time.Millisecond, time.Hour} { // a clock 3.6 million times ahead
			s := beginWith(t, dir, Options{bounds: seldom, Epoch: length})
			seq := register.Seq(i + 1)
			must(t, s.save(seq, workload(seq)))
			time.Sleep(2 * length)
			synctest.Wait()
			st := s.Stats()
			if st.Epoch <= last || st.EpochSeq != seq || i == 2 && st.Epoch != last+1 {
				t.Errorf("after epoch %d comes %+v", last, st)
			}
			last = st.Epoch
			mustEqual(t, recovered(t, s.Records()), replayed(seq))
			s.end(t)
		}
	})
}

// Of each partition the newest epochs are remembered.
func TestOldEpochsAreForgotten(t *testing.T) {
	dir := freshDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := beginWith(t, dir, Options{bounds: seldom, Epoch: time.Second})
		for seq := register.Seq(1); seq <= keptEpochs+20; seq++ {
			must(t, s.save(seq, []register.Record{record("k", uint64(seq), 1)}))
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		if n := ask(t, s.conn, "SELECT count(*) FROM epochs"); n != keptEpochs {
			t.Errorf("%d epochs are kept", n)
		}
		if n := ask(t, s.conn, "SELECT max(seq) FROM epochs"); n != keptEpochs+20 {
			t.Errorf("the newest covers save %d", n)
		}
		if n := ask(t, s.conn, "SELECT count(*) FROM passes"); n != 1 {
			t.Errorf("%d passes are kept", n)
		}
		s.end(t)
	})
}

// Each transaction of the writer may be the last one before a crash. From what
// it leaves, a start finds the state after the last save, goes on with the
// epoch, and ends it with the same state.
func TestCrashAfterEachTransaction(t *testing.T) {
	dir := freshDir(t)
	var crashes []string
	const saves = register.Seq(45)
	every := 2
	if testing.Short() {
		every = 10
	}
	s := beginWith(t, dir, Options{bounds: bounds{rows: 20, bytes: 1 << 20, keys: 3, piece: 4 << 10}, committed: func() {
		into := filepath.Join(filepath.Dir(dir), fmt.Sprint("crash", len(crashes)))
		must(t, os.Mkdir(into, 0o700))
		for _, name := range []string{databaseName, databaseName + "-wal"} {
			write(t, filepath.Join(into, name), read(t, filepath.Join(dir, name)))
		}
		crashes = append(crashes, into)
	}})
	s.fill(t, 1, saves)
	s.end(t)

	m := modelled(saves + 12)
	phases := map[string]int{}
	var was struct {
		at   string
		rows int64
	}
	var last register.Seq
	for i, crash := range crashes {
		at, rows := phase(t, crash)
		if at == "complete" && was.at == at && was.rows > rows {
			phases["dropping"]++
		}
		phases[at]++
		was.at, was.rows = at, rows
		s := begin(t, crash, never)
		if s.Last() < last {
			t.Fatalf("crash %d: last is %d after %d", i, s.Last(), last)
		}
		last = s.Last()
		mustEqual(t, recovered(t, s.Records()), replayed(last))
		mustRemember(t, s.Store, 2)
		if i%every == 0 {
			mustShow(t, s.Store, m)
			s.end(t)
			s = begin(t, crash, small)
			s.fill(t, last+1, last+12)
			mustEqual(t, recovered(t, s.Records()), replayed(last+12))
			mustRemember(t, s.Store, 5)
			mustShow(t, s.Store, m)
		}
		s.end(t)
		must(t, os.RemoveAll(crash))
	}
	if last != saves {
		t.Errorf("the last crash left save %d", last)
	}
	t.Logf("%d crashes: %v", len(crashes), phases)
	for _, phase := range []string{"none under way", "in a partition", "between partitions", "complete", "dropping"} {
		if phases[phase] == 0 {
			t.Errorf("there was no crash with an epoch %s", phase)
		}
	}
}

// phase says how far the pass is in the closed database in dir, and how many of
// its rows are not dropped.
func phase(t *testing.T, dir string) (phase string, rows int64) {
	t.Helper()
	db, conn, err := connect(filepath.Join(dir, databaseName), url.Values{"mode": {"ro"}})
	must(t, err)
	defer func() { must(t, errors.Join(conn.Close(), db.Close())) }()
	var position []byte
	const query = "SELECT position, target - dropped FROM passes ORDER BY number DESC LIMIT 1"
	err = conn.QueryRowContext(t.Context(), query).Scan(&position, &rows)
	switch {
	case errors.Is(err, sql.ErrNoRows) || rows == 0:
		return "none under way", 0
	case err != nil:
		t.Fatal(err)
	case string(position) == end:
		return "complete", rows
	case len(position) == 1:
		return "between partitions", rows
	}
	return "in a partition", rows
}
