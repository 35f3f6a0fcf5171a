package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"gus/register"
)

// nobody is a user who owns nothing.
const nobody = 65534

// Each file that this user may not write is refused by name, and as it is.
func TestFilesOfAnotherUser(t *testing.T) {
	for _, name := range []string{databaseName, databaseName + "-wal", databaseName + "-shm", lockName} {
		t.Run(name, func(t *testing.T) {
			dir := givenAway(t)
			if err := os.Chown(filepath.Join(dir, name), 0, 0); err != nil {
				t.Fatal(err)
			}
			must(t, os.Chmod(filepath.Join(dir, name), 0o600))
			before := contents(t, dir)
			var err error
			as(t, nobody, func() { _, err = start(dir, small) })
			if !errors.Is(err, ErrPermission) {
				t.Fatalf("refused with %v", err)
			}
			for _, part := range []string{filepath.Join(dir, name), "uid", "mode 0600", "chown"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
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

// A directory of another user is refused by its own name.
func TestDirectoryOfAnotherUser(t *testing.T) {
	dir := givenAway(t)
	must(t, os.Chown(dir, 0, 0))
	var err error
	as(t, nobody, func() { _, err = start(dir, small) })
	if !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), dir+", mode 0700") {
		t.Fatalf("refused with %v", err)
	}
}

// givenAway returns a data directory as a crash leaves it, all of it nobody's.
func givenAway(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	s := begin(t, freshDir(t), small)
	s.fill(t, 1, 3)
	dir := freshDir(t)
	must(t, os.Mkdir(dir, 0o700))
	for name, data := range contents(t, filepath.Dir(s.path)) {
		write(t, filepath.Join(dir, name), []byte(data))
	}
	write(t, filepath.Join(dir, databaseName+"-shm"), nil)
	for name := range contents(t, dir) {
		must(t, os.Chown(filepath.Join(dir, name), nobody, nobody))
	}
	must(t, os.Chown(filepath.Join(dir, databaseName+"-shm"), nobody, nobody))
	must(t, os.Chown(dir, nobody, nobody))
	for parent := filepath.Dir(dir); parent != os.TempDir(); parent = filepath.Dir(parent) {
		must(t, os.Chmod(parent, 0o711))
	}
	return dir
}

// as runs do on a thread with another user's rights to files.
func as(t *testing.T, uid int, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		err := syscall.Setfsuid(uid)
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skip("cannot become another user:", err)
	}
}

// On a disk which really is full, what TestFullDisk has to pretend happens to
// SQLite's log as well.
func TestReallyFullDisk(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("cannot mount a small disk:", err)
	}
	t.Cleanup(func() { syscall.Unmount(mount, 0) })
	dir := filepath.Join(mount, "site")
	s := begin(t, dir, bounds{rows: 1 << 10, bytes: 64 << 10, keys: 64, piece: 64 << 10})

	seq, want := register.Seq(0), state{}
	save := func() error {
		seq++
		records := []register.Record{record(fmt.Sprint(seq), uint64(seq), 3000)}
		err := s.save(seq, records)
		if err == nil {
			want.apply(records...)
		}
		return err
	}
	var err error
	for err == nil && seq < 2000 {
		err = save()
	}
	for range 20 {
		if !errors.Is(err, ErrRolledBack) {
			t.Fatalf("save %d ends with %v", seq, err)
		}
		err = save()
		if err == nil { // a checkpoint may have made a little room
			err = ErrRolledBack
		}
	}
	mustEqual(t, recovered(t, s.Records()), want)

	must(t, syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_REMOUNT, "size=8m"))
	for range 50 {
		must(t, save())
	}
	mustEqual(t, recovered(t, s.Records()), want)
	s.end(t)
	s = begin(t, dir, small)
	mustEqual(t, recovered(t, s.Records()), want)
	if s.Last() != seq {
		t.Errorf("last is %d after save %d", s.Last(), seq)
	}
	s.end(t)
}

// The disk fills up while epochs are made one after another, stays full for a
// while, and has space again: saves succeed at once, epochs go on, and nobody
// has reopened anything.
func TestFullDiskWithEpochs(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("cannot mount a small disk:", err)
	}
	t.Cleanup(func() { syscall.Unmount(mount, 0) })
	s := beginWith(t, filepath.Join(mount, "site"), Options{
		bounds: bounds{rows: 1 << 10, bytes: 256 << 10, keys: 8, piece: 32 << 10},
		Epoch:  time.Millisecond,
	})
	seq, want := register.Seq(0), state{}
	save := func() error {
		seq++
		records := []register.Record{record(fmt.Sprint(seq%700), uint64(seq), 1000)}
		err := s.save(seq, records)
		if err == nil {
			want.apply(records...)
		}
		return err
	}
	failures := 0
	for tries := 0; failures < 50 && tries < 20000; tries++ {
		err := save()
		if err != nil {
			failures++
			if !errors.Is(err, ErrRolledBack) {
				t.Fatalf("save %d ends with %v", seq, err)
			}
		}
		if err != nil && failures%10 == 0 {
			mustEqual(t, recovered(t, s.Records()), want)
			taken(t, func(yield func(Change, error) bool) { changes, _ := s.Changes(0); changes(yield) }, s.Last())
		}
	}
	if failures == 0 {
		t.Fatal("the disk is not full")
	}
	full := s.Stats()
	must(t, syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_REMOUNT, "size=32m"))
	for range 50 {
		must(t, save())
	}
	for tries := 0; s.Stats().EpochHeldUp || s.Stats().Epoch <= full.Epoch; tries++ {
		if tries == 5000 {
			t.Fatalf("no epoch was made: %+v, when the disk was full: %+v", s.Stats(), full)
		}
		must(t, save())
	}
	mustEqual(t, recovered(t, s.Records()), want)
	if st := s.Stats(); st.WALBytes > 16<<20 {
		t.Errorf("SQLite's log has %d bytes", st.WALBytes)
	}
	dir := dirOf(s)
	s.end(t)
	s = begin(t, dir, small)
	mustEqual(t, recovered(t, s.Records()), want)
	s.end(t)
}
