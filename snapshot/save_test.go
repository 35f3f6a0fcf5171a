package snapshot

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
)

// A full disk fails saves, which leave nothing behind; what was saved can be
// read; and with room again, saving and folding go on by themselves.
func TestFullDisk(t *testing.T) {
	dir := freshDir(t)
	s := begin(t, dir, small)
	s.fill(t, 1, 30)
	ask(t, s.conn, fmt.Sprintf("PRAGMA max_page_count = %d", ask(t, s.conn, "PRAGMA page_count")+3))

	want := replayed(30)
	seq, last := register.Seq(31), register.Seq(30)
	failures := 0
	for ; failures < 5; seq++ {
		err := s.save(seq, workload(seq))
		if err == nil {
			want.apply(workload(seq)...)
			last = seq
			continue
		}
		failures++
		if !errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), s.path+": the disk is full") {
			t.Fatalf("save %d fails with %v", seq, err)
		}
		if s.Last() != last {
			t.Fatalf("last is %d after %d", s.Last(), last)
		}
		mustEqual(t, recovered(t, s.Records()), want)
	}

	ask(t, s.conn, "PRAGMA max_page_count = 1000000")
	for range 50 {
		must(t, s.save(seq, workload(seq)))
		want.apply(workload(seq)...)
		seq++
	}
	mustEqual(t, recovered(t, s.Records()), want)
	s.end(t)
	s = begin(t, dir, small)
	mustEqual(t, recovered(t, s.Records()), want)
	if s.Last() != seq-1 {
		t.Errorf("last is %d, want %d", s.Last(), seq-1)
	}
}

// Where there is room for the log but not for folding it, saves go on, the
// logger is told once, and once more when there is room.
func TestFullDiskForFolding(t *testing.T) {
	// All is folded in one transaction, which has no room: smaller ones would
	// take what room the log has left.
	s := begin(t, freshDir(t), bounds{rows: 30, bytes: 1 << 30, keys: 1 << 20, piece: 1 << 30})
	s.fill(t, 1, 30)
	ask(t, s.conn, fmt.Sprintf("PRAGMA max_page_count = %d", ask(t, s.conn, "PRAGMA page_count")+4))
	want := replayed(30)
	for seq := register.Seq(31); seq <= 60; seq++ {
		if seq == 50 {
			ask(t, s.conn, "PRAGMA max_page_count = 1000000")
		}
		records := []register.Record{record("k", uint64(seq), 1)}
		must(t, s.save(seq, records))
		want.apply(records...)
	}
	mustEqual(t, recovered(t, s.Records()), want)
	s.end(t)
	for _, line := range []string{"epochs are held up", "epochs are made again"} {
		if n := strings.Count(s.logged.String(), line); n != 1 {
			t.Errorf("%q was logged %d times", line, n)
		}
	}
}

// What "durable" rests on: a killed process could not tell.
func TestCommitsAreSynced(t *testing.T) {
	s := begin(t, freshDir(t), bounds{})
	if n := ask(t, s.conn, "PRAGMA synchronous"); n != 2 {
		t.Errorf("synchronous is %d, want 2: FULL", n)
	}
	var mode string
	must(t, s.conn.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	if mode != "wal" {
		t.Errorf("the journal's mode is %s", mode)
	}
}

// Another program may hold the database for a while: that save is rolled back,
// and the next one succeeds.
func TestHeldDatabase(t *testing.T) {
	s := begin(t, freshDir(t), small)
	ask(t, s.conn, "PRAGMA busy_timeout = 0")
	db, other, err := connect(s.path, map[string][]string{"mode": {"rw"}})
	must(t, err)
	defer db.Close()
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if err := s.save(1, workload(1)); !errors.Is(err, ErrRolledBack) {
		t.Fatalf("the save ends with %v", err)
	}
	if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	must(t, s.save(2, workload(2)))
}

// The writer's connection lost its file: nobody can say what became of the
// save, and nothing is saved any more.
func TestUnknownOutcome(t *testing.T) {
	s := begin(t, freshDir(t), small)
	s.fill(t, 1, 3)
	must(t, s.conn.Close())
	err := s.save(4, workload(4))
	if err == nil || errors.Is(err, ErrRolledBack) {
		t.Fatalf("the save ends with %v", err)
	}
	if again := s.save(5, workload(5)); again == nil || errors.Is(again, ErrRolledBack) {
		t.Fatalf("the next one ends with %v", again)
	}
	if err := s.Close(); err == nil {
		t.Error("closing says nothing")
	}
}

func TestSavePanics(t *testing.T) {
	for name, do := range map[string]func(s *session){
		"number used before": func(s *session) { s.Save(3, workload(3)) },
		"nothing to save":    func(s *session) { s.Save(4, nil) },
		"closed":             func(s *session) { s.Close(); s.Save(4, workload(4)) },
		"two in flight":      func(s *session) { s.busy.Store(true); s.Save(4, workload(4)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, freshDir(t), small)
			s.fill(t, 1, 3)
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			do(s)
		})
	}
}

// Close waits for the save in flight, which is reported before it returns.
func TestCloseFinishesSave(t *testing.T) {
	dir := freshDir(t)
	var reported []register.Seq
	s, err := Open(dir, Options{Cluster: cluster, Done: func(seq register.Seq, err error) {
		if err == nil {
			reported = append(reported, seq)
		}
	}})
	must(t, err)
	s.Save(1, workload(1))
	must(t, s.Close())
	must(t, s.Close())
	if len(reported) != 1 || reported[0] != 1 {
		t.Fatalf("reported %v", reported)
	}
	mustEqual(t, recovered(t, begin(t, dir, small).Records()), replayed(1))
}

// Whoever is told may save at once, in the Store's own goroutine; and what
// anybody may call is called meanwhile: each reader sees the state after one
// save.
func TestReadersBesideWriter(t *testing.T) {
	const saves = 150
	var s *Store
	finished := make(chan error, 1)
	s, err := Open(freshDir(t), Options{Cluster: cluster, bounds: small, Done: func(seq register.Seq, err error) {
		if err != nil || seq == saves {
			finished <- err
			return
		}
		s.Save(seq+1, workload(seq+1))
	}})
	must(t, err)
	s.Save(1, workload(1))
	for low := register.Seq(0); low < saves; {
		low = s.Last()
		got := recovered(t, s.Records())
		if high := s.Last() + 1; !oneOf(got, low, high) {
			t.Fatalf("a reader between saves %d and %d saw the state after none", low, high)
		}
		if s.Stats().DatabaseBytes == 0 || s.Boot() != 1 {
			t.Fatalf("stats are %+v, boot is %d", s.Stats(), s.Boot())
		}
	}
	must(t, <-finished)
	must(t, s.Close())
}

// oneOf says whether got is the state after one of the saves from low to high.
func oneOf(got state, low, high register.Seq) bool {
	for seq := low; seq <= high; seq++ {
		want := replayed(seq)
		same := len(want) == len(got)
		for key, r := range want {
			same = same && got[key].Cur.Tag == r.Cur.Tag && got[key].Readable == r.Readable
		}
		if same {
			return true
		}
	}
	return false
}

// An idle Store writes nothing, however long it is idle; and it works in a
// bubble, whose time passes at once.
func TestIdleWritesNothing(t *testing.T) {
	dir := freshDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, dir, small)
		s.fill(t, 1, 30)
		time.Sleep(time.Minute) // what was saved becomes an epoch
		synctest.Wait()
		before := touched(t, dir)
		time.Sleep(30 * 24 * time.Hour)
		synctest.Wait()
		if after := touched(t, dir); after != before {
			t.Errorf("files were written:\n%s\nbefore:\n%s", after, before)
		}
		s.end(t)
	})
}

// touched lists the files of dir with their sizes and the times of their last
// changes.
func touched(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var list strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		fmt.Fprintln(&list, info.Name(), info.Size(), info.ModTime().UnixNano())
	}
	return list.String()
}
