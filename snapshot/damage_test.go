package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gus/register"
)

// A database in which any one bit is another either says so, with the name of
// the file, or has the same in it: never another value, and never less.
func TestAnyWrongBit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	s := begin(t, freshDir(t), small)
	s.fill(t, 1, 60)
	s.SetCursor("a", Cursor{1, 2})
	dir := dirOf(s)
	s.end(t)
	whole := contents(t, dir)
	const flips = 300
	rng := rand.New(rand.NewPCG(11, 12))
	want, m := replayed(60), modelled(60)
	found := 0
	for range flips {
		data := []byte(whole[databaseName])
		at := rng.IntN(len(data))
		if rng.IntN(8) == 0 {
			at = rng.IntN(4096) // the header, the schema
		}
		bit := byte(1) << rng.IntN(8)
		data[at] ^= bit
		err := inspected(t, map[string]string{databaseName: string(data)}, func(s *session) error {
			if c := s.Cursors(); c["a"] != (Cursor{1, 2}) || s.Last() != 60 {
				t.Fatalf("bit %#x of byte %d: last is %d, cursors are %v", bit, at, s.Last(), c)
			}
			return unlike(s, want, m, 60)
		})
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), databaseName) {
			t.Fatalf("bit %#x of byte %d: %v", bit, at, err)
		}
		found++
	}
	t.Logf("%d of %d wrong bits were found, the others do no harm", found, flips)
}

// The same in SQLite's log, as a crash has left it. A wrong bit in the last
// commit cannot be told from a power cut in it: then the state is that before it.
func TestAnyWrongBitInLog(t *testing.T) {
	s := begin(t, freshDir(t), small)
	s.fill(t, 1, 60)
	files := contents(t, crashed(t, s))
	flips := 300
	if testing.Short() {
		flips = 50
	}
	rng := rand.New(rand.NewPCG(13, 14))
	m := modelled(60)
	const name = databaseName + "-wal"
	found, lost := 0, 0
	for i := range flips {
		data := []byte(files[name])
		at := rng.IntN(len(data))
		if i < 64 {
			at = i / 2 // the header
		}
		bit := byte(1) << rng.IntN(8)
		data[at] ^= bit
		damagedFiles := maps.Clone(files)
		damagedFiles[name] = string(data)
		err := inspected(t, damagedFiles, func(s *session) error {
			if s.Last() < 59 {
				t.Fatalf("bit %#x of byte %d: last is %d", bit, at, s.Last())
			}
			if s.Last() < 60 {
				lost++
			}
			return unlike(s, replayed(s.Last()), m, s.Last())
		})
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), databaseName) {
			t.Fatalf("bit %#x of byte %d: %v", bit, at, err)
		}
		found++
	}
	t.Logf("%d of %d wrong bits were found, %d were in the last commit", found, flips, lost)
	if found == 0 {
		t.Error("none was found")
	}
}

// inspected opens a directory with files and lets look have a look, if it opens.
func inspected(t *testing.T, files map[string]string, look func(*session) error) error {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	must(t, err)
	defer os.RemoveAll(dir)
	for name, data := range files {
		write(t, filepath.Join(dir, name), []byte(data))
	}
	s, err := startWith(dir, Options{bounds: never, Epoch: time.Hour})
	if err != nil {
		return err
	}
	defer s.Close()
	return look(s)
}

var errUnlike = errors.New("another value")

// unlike returns why what s has is not what it should have.
func unlike(s *session, want state, m model, last register.Seq) error {
	got := state{}
	for r, err := range s.Records() {
		if err != nil {
			return err
		}
		got.apply(r)
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%w: %d records", errUnlike, len(got))
	}
	changes, _ := s.Changes(0)
	order := map[string]register.Seq{}
	for c, err := range changes {
		if err != nil {
			return err
		}
		order[c.Key] = c.Seq
	}
	if wrong := m.agrees(order, 0, last); wrong != "" {
		return fmt.Errorf("%w: in the order of changes %s", errUnlike, wrong)
	}
	return nil
}

// A page that goes bad beneath a running store: the save whose turn it is then
// says so, and nothing is saved any more.
func TestDamageWhileRunning(t *testing.T) {
	dir := freshDir(t)
	s := begin(t, dir, small)
	s.fill(t, 1, 200)
	s.end(t)
	s = begin(t, dir, small)
	if _, err := s.conn.ExecContext(t.Context(), "PRAGMA cache_size = 1"); err != nil { // nothing is remembered
		t.Fatal(err)
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	size := fileSize(s.path)
	for at := int64(4096); at < size; at += 4096 {
		_, err := f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, at)
		must(t, err)
	}
	for seq := s.Last() + 1; err == nil && seq < 400; seq++ {
		err = s.save(seq, workload(seq))
	}
	if !errors.Is(err, ErrDamaged) || errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), s.path) {
		t.Fatalf("saving ends with %v", err)
	}
	if again := s.save(500, workload(500)); !errors.Is(again, ErrDamaged) {
		t.Errorf("and goes on with %v", again)
	}
	last := error(nil)
	for _, err := range s.Records() {
		last = err
	}
	if !errors.Is(last, ErrDamaged) {
		t.Errorf("reading ends with %v", last)
	}
}

// The quick check says which page, and is cut short where it takes too long.
func TestQuickCheck(t *testing.T) {
	dir := freshDir(t)
	s := begin(t, dir, small)
	s.fill(t, 1, 200)
	s.end(t)
	s, err := startWith(dir, Options{bounds: small, checkTime: time.Nanosecond})
	must(t, err)
	s.end(t)
	if n := strings.Count(s.logged.String(), "was not checked to its end"); n != 1 {
		t.Errorf("a check that was cut short was logged %d times", n)
	}
	data := read(t, s.path)
	for at := len(data) - 2*4096; at < len(data); at += 4096 {
		data[at+4] ^= 1 // how many cells the page has
	}
	write(t, s.path, data)
	before := contents(t, dir)
	_, err = start(dir, small)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), s.path) || !strings.Contains(err.Error(), "page") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("damaged pages are refused with %v", err)
	}
	if contents(t, dir)[databaseName] != before[databaseName] {
		t.Error("the database was changed")
	}
}
