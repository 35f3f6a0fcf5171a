package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gus/register"
)

// A story of a directory that was used, what has happened to it since, and why
// it is refused.
var refusals = []struct {
	name   string
	happen func(t *testing.T, dir string)
	want   error
	says   []string
}{
	{
		"a newer version ran here",
		func(t *testing.T, dir string) {
			tamper(t, dir, "PRAGMA user_version = 2")
			setMeta(t, dir, "schema", int64(2))
		},
		ErrNewer, []string{databaseName, "schema is 2", "run the newer version"},
	},
	{
		"it is another cluster's",
		func(t *testing.T, dir string) { setMeta(t, dir, "cluster", "f00d") },
		ErrOtherCluster, []string{databaseName, `"f00d"`, `"` + cluster + `"`},
	},
	{
		"others may read it",
		func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o750)) },
		ErrPermission, []string{"0750", "chmod 700"},
	},
	{
		"the database is empty",
		func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, databaseName), 0)) },
		ErrDamaged, []string{databaseName, "is empty"},
	},
	{
		"the database is cut off",
		func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, databaseName), 5000)) },
		ErrDamaged, []string{databaseName, "malformed"},
	},
	{
		"the database is something else",
		func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, databaseName), []byte(strings.Repeat("not a database", 1000)))
		},
		ErrDamaged, []string{databaseName, "not a database"},
	},
	{
		"the database is a directory",
		func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, databaseName)))
			must(t, os.Mkdir(filepath.Join(dir, databaseName), 0o700))
		},
		ErrDamaged, []string{databaseName, "not a regular file"},
	},
	{
		"the database is another program's",
		func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, databaseName)))
			write(t, filepath.Join(dir, databaseName), nil)
			tamper(t, dir, "CREATE TABLE meta (x)")
		},
		ErrDamaged, []string{databaseName, "not a database of gus"},
	},
	{
		"a row of meta is gone",
		func(t *testing.T, dir string) { tamper(t, dir, "DELETE FROM meta WHERE name = 'boot'") },
		ErrDamaged, []string{databaseName, "incomplete"},
	},
	{
		"a table is gone",
		func(t *testing.T, dir string) { tamper(t, dir, "DROP TABLE records") },
		ErrDamaged, []string{databaseName, "incomplete", "records"},
	},
	{
		"a bit of the version is another",
		func(t *testing.T, dir string) { tamper(t, dir, "PRAGMA user_version = 3") },
		ErrDamaged, []string{databaseName, "schema is 3"},
	},
	{
		"a bit of the cluster's id is another",
		func(t *testing.T, dir string) {
			tamper(t, dir, "UPDATE meta SET value = 'c0ffed' WHERE name = 'cluster'")
		},
		ErrDamaged, []string{databaseName, `meta "cluster"`, "checksum"},
	},
	{
		"a row of the log is gone",
		func(t *testing.T, dir string) { tamper(t, dir, "DELETE FROM log WHERE id = (SELECT min(id) FROM log)") },
		ErrDamaged, []string{databaseName, "the log has save"},
	},
	{
		"a bit of a pass is another",
		func(t *testing.T, dir string) { tamper(t, dir, "UPDATE passes SET seq = seq + 1") },
		ErrDamaged, []string{databaseName, "pass", "checksum"},
	},
	{
		"a bit of an epoch is another",
		func(t *testing.T, dir string) { tamper(t, dir, "UPDATE epochs SET time = time + 1") },
		ErrDamaged, []string{databaseName, "epoch", "checksum"},
	},
	{
		"a bit of the log is another",
		func(t *testing.T, dir string) { tamper(t, dir, "UPDATE log SET body = zeroblob(length(body))") },
		ErrDamaged, []string{databaseName, "save", "checksum"},
	},
	{
		"a row of the log is another's",
		func(t *testing.T, dir string) { tamper(t, dir, "UPDATE log SET seq = seq + 1") },
		ErrDamaged, []string{databaseName, "save", "checksum"},
	},
	{
		"the database is gone but its log is there",
		func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, databaseName)))
			write(t, filepath.Join(dir, databaseName+"-wal"), []byte("saves"))
		},
		ErrDamaged, []string{databaseName, "missing", "-wal"},
	},
}

func TestRefusals(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			dir := freshDir(t)
			s := begin(t, dir, small)
			s.fill(t, 1, 20)
			s.end(t)
			c.happen(t, dir)
			before := contents(t, dir)
			for range 2 { // a refusal changes nothing, so the next one is the same
				_, err := start(dir, small)
				if !errors.Is(err, c.want) {
					t.Fatalf("refused with %v, want %v", err, c.want)
				}
				for _, part := range append(c.says, dir) {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("more than a line: %q", err)
				}
			}
			for name, data := range contents(t, dir) {
				if before[name] != data {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}

// A refusal leaves SQLite's log as it is, too: it may be the only evidence.
func TestRefusalLeavesLog(t *testing.T) {
	dir := freshDir(t)
	must(t, os.Mkdir(dir, 0o700))
	s := begin(t, freshDir(t), small)
	s.fill(t, 1, 3)
	path := filepath.Join(dir, databaseName)
	write(t, path, read(t, s.path))
	write(t, path+"-wal", read(t, s.path+"-wal"))
	s.end(t)

	before := contents(t, dir)
	_, err := Open(dir, Options{Cluster: "another", Done: func(register.Seq, error) {}})
	if !errors.Is(err, ErrOtherCluster) {
		t.Fatal(err)
	}
	after := contents(t, dir)
	if before[databaseName] != after[databaseName] || before[databaseName+"-wal"] != after[databaseName+"-wal"] {
		t.Error("a refused database was changed")
	}
	s = begin(t, dir, small)
	mustEqual(t, recovered(t, s.Records()), replayed(3))
}

// A damaged record is found by its sum when it is read, whatever SQLite thinks
// of it.
func TestDamagedRecords(t *testing.T) {
	for _, set := range []string{"body = x'a0'", "body = x''", "seq = 7777", "sum = 0", "epoch = epoch + 1", "part = part + 1 WHERE part = 15"} {
		t.Run(set, func(t *testing.T) {
			dir := freshDir(t)
			s := begin(t, dir, small)
			s.fill(t, 1, 40)
			s.end(t)
			tamper(t, dir, "UPDATE records SET "+set)
			s = begin(t, dir, small)
			var last error
			for _, err := range s.Records() {
				if last != nil {
					t.Fatal("there is more after an error")
				}
				last = err
			}
			if !errors.Is(last, ErrDamaged) || !strings.Contains(last.Error(), s.path) {
				t.Fatalf("recovery ends with %v", last)
			}
		})
	}
}

// A mark cannot be folded into a damaged record, and then nothing is saved.
func TestDamagedRecordEndsSaving(t *testing.T) {
	dir := freshDir(t)
	s := begin(t, dir, small)
	s.fill(t, 1, 40)
	s.end(t)
	tamper(t, dir, "UPDATE records SET body = x'00'")
	s = begin(t, dir, small)
	var err error
	for seq := s.Last() + 1; err == nil && seq < 200; seq++ {
		err = s.save(seq, workload(seq))
	}
	if !errors.Is(err, ErrDamaged) || errors.Is(err, ErrRolledBack) {
		t.Fatalf("saving ends with %v", err)
	}
	if again := s.save(500, workload(500)); !errors.Is(again, ErrDamaged) {
		t.Errorf("and goes on with %v", again)
	}
	if err := s.Close(); !errors.Is(err, ErrDamaged) {
		t.Errorf("closing says %v", err)
	}
}

func TestOneAgentADirectory(t *testing.T) {
	dir := freshDir(t)
	first := begin(t, dir, small)
	_, err := start(dir, small)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("the second is told %v", err)
	}
	first.fill(t, 1, 3)
	first.end(t)
	second := begin(t, dir, small)
	if second.Boot() != 2 || second.Last() != 3 {
		t.Errorf("the second starts with boot %d after save %d", second.Boot(), second.Last())
	}
}

// A directory is closed to others from the start, and so is what is in it.
func TestDirectoryIsPrivate(t *testing.T) {
	dir := freshDir(t)
	s := begin(t, dir, small)
	s.fill(t, 1, 3)
	for _, path := range []string{dir, s.path, s.path + "-wal", s.path + "-shm", filepath.Join(dir, lockName)} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %#o", path, info.Mode().Perm())
		}
	}
}

// A disk that is not mounted must not become a new database.
func TestParentMustExist(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mount", "site")
	if _, err := start(dir, small); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a directory in nowhere: %v", err)
	}
}

// What a crash during the first start has left was never used.
func TestUnfinishedDatabaseIsMadeAnew(t *testing.T) {
	dir := freshDir(t)
	must(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, newName), []byte("half"))
	write(t, filepath.Join(dir, newName+"-journal"), []byte("half"))
	s := begin(t, dir, small)
	if s.Boot() != 1 {
		t.Errorf("boot is %d", s.Boot())
	}
	for name := range contents(t, dir) {
		if strings.HasPrefix(name, newName) {
			t.Errorf("%s is still there", name)
		}
	}
}

// Names that have a meaning in a URL are names.
func TestPathIsNotAnURL(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?mode=memory&x#%41ä")
	s := begin(t, dir, small)
	s.fill(t, 1, 30)
	s.end(t)
	s = begin(t, dir, small)
	mustEqual(t, recovered(t, s.Records()), replayed(30))
	if _, ok := contents(t, dir)[databaseName]; !ok {
		t.Error("the database is somewhere else")
	}
}

// tamper runs a statement on the closed database in dir.
func tamper(t testing.TB, dir, statement string) {
	t.Helper()
	db, conn, err := connect(filepath.Join(dir, databaseName), url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), statement); err != nil {
		t.Fatal(err)
	}
	must(t, errors.Join(conn.Close(), db.Close()))
}

// setMeta changes a value in the closed database in dir, and its sum.
func setMeta(t testing.TB, dir, name string, value any) {
	t.Helper()
	literal := fmt.Sprint(value)
	if _, ok := value.(string); ok {
		literal = "'" + literal + "'"
	}
	tamper(t, dir, fmt.Sprintf("UPDATE meta SET value = %s, sum = %d WHERE name = '%s'", literal, sumOf("meta", name, value), name))
}

// ask runs a pragma or query with one number as its result.
func ask(t testing.TB, conn *sql.Conn, query string) (n int64) {
	t.Helper()
	if err := conn.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// contents returns the files in dir by name, without SQLite's index of its log.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasSuffix(e.Name(), "-shm") {
			files[e.Name()] = string(read(t, filepath.Join(dir, e.Name())))
		}
	}
	return files
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
