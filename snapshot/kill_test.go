package snapshot

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gus/register"
)

// victimVariable names the data directory in which a test binary that was
// started by another saves until it is killed.
const victimVariable = "GUS_SNAPSHOT_TEST_DIR"

// beVictim saves the workload for ever and prints the number of each save
// that was reported as done. It does not return.
func beVictim(dir string) {
	s, err := startWith(dir, Options{bounds: small, Epoch: time.Millisecond})
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	for seq := s.Last() + 1; ; seq++ {
		if err := s.save(seq, workload(seq)); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		fmt.Println(seq)
		s.SetCursor("peer", Cursor{1, seq}) // the next save takes it along
	}
}

// A process that saves, and folds most of the time, is killed again and again.
// Each start finds all that was reported, at most the one save more that was
// in flight, and exactly the state that a replay gives.
func TestKill(t *testing.T) {
	dir := freshDir(t)
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	var last register.Seq
	var boot uint64
	folding := 0
	for round := 0; round < rounds || folding == 0 && round < 10*rounds; round++ {
		reported := killAfter(t, dir, 1+rng.IntN(40))
		if position(t, dir) != "" {
			folding++
		}
		s := begin(t, dir, small)
		if s.Boot() <= boot {
			t.Fatalf("round %d: boot is %d after %d", round, s.Boot(), boot)
		}
		if s.Last() < last || s.Last() < reported || s.Last() > max(reported, last)+1 {
			t.Fatalf("round %d: last is %d after %d, and %d was reported", round, s.Last(), last, reported)
		}
		last, boot = s.Last(), s.Boot()
		mustEqual(t, recovered(t, s.Records()), replayed(last))
		mustShow(t, s.Store, modelled(last))
		mustRemember(t, s.Store, 5)
		if c := s.Cursors()["peer"]; last > 2 && c.Seq < last-2 || c.Seq > last {
			t.Fatalf("round %d: the cursor is %+v after save %d", round, c, last)
		}
		s.end(t)
	}
	t.Logf("%d of at least %d kills came while folding, %d saves", folding, rounds, last)
	if folding == 0 {
		t.Error("no kill came while the log was folded")
	}
}

// position reads how far the folding is in the closed database in dir, "" if
// none is under way.
func position(t *testing.T, dir string) (position string) {
	t.Helper()
	db, conn, err := connect(filepath.Join(dir, databaseName), url.Values{"mode": {"ro"}})
	must(t, err)
	const query = "SELECT iif(position = x'ff', '', position) FROM passes ORDER BY number DESC LIMIT 1"
	if err := conn.QueryRowContext(t.Context(), query).Scan(&position); !errors.Is(err, sql.ErrNoRows) {
		must(t, err)
	}
	must(t, errors.Join(conn.Close(), db.Close()))
	return position
}

// killAfter lets another process save in dir, kills it once it has reported
// that many saves, and returns the last one that it did report.
func killAfter(t *testing.T, dir string, saves int) (reported register.Seq) {
	t.Helper()
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimVariable+"="+dir)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 1; lines.Scan(); n++ {
		if _, err := fmt.Sscan(lines.Text(), &reported); err != nil {
			t.Fatalf("the victim says %q", lines.Text())
		}
		if n == saves {
			victim.Process.Kill() // what it has printed until then is read to the end
		}
	}
	if err := victim.Wait(); err == nil || victim.ProcessState.Exited() {
		t.Fatalf("the victim was not killed: %v", err)
	}
	return reported
}

// A power cut may leave any part of the last transactions. Wherever SQLite's
// log is cut, a start finds the state after some save, and nothing between.
func TestCutLog(t *testing.T) {
	dir := freshDir(t)
	b := small
	b.log = 1 << 40 // all stays in the log that is cut
	s := begin(t, dir, b)
	s.fill(t, 1, 60)
	rng := rand.New(rand.NewPCG(3, 4))
	wal := read(t, s.path+"-wal")
	database := read(t, s.path)
	s.end(t)
	var before register.Seq
	for range 40 {
		torn := freshDir(t)
		if err := os.Mkdir(torn, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(torn, databaseName), database)
		write(t, filepath.Join(torn, databaseName)+"-wal", wal[:rng.IntN(len(wal)+1)])
		s := begin(t, torn, small)
		mustEqual(t, recovered(t, s.Records()), replayed(s.Last()))
		before = max(before, s.Last())
		s.end(t)
	}
	if before == 0 {
		t.Error("no cut has left any save")
	}
}

// read returns the bytes of a file. Of a database that SQLite has open in this
// process it drops the locks, which does no harm where nobody else is.
func read(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
