package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mounted mounts a small disk, or skips the test.
func mounted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A full disk leaves the old files whole, says so, and all is well by itself once there is space.
func TestAFullDisk(t *testing.T) {
	disk := mounted(t)
	s := newSite(t, "a/1", "one", "a/2", "two")
	r := start(t, s, Pull{Prefix: "a/", Dir: disk, Exec: "true"})
	r.await("good", good)
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	big := strings.Repeat("b", 100<<10)
	s.set("a/1", big)
	s.set("a/new", big)
	st := r.await("an error", func(st State) bool { return st.Pending == 2 })
	if !strings.Contains(st.Error, "no space left on device") || !strings.Contains(st.Error, disk+"/1") || strings.Contains(st.Error, tempPrefix) {
		t.Error(st.Error)
	}
	got := filesOf(t, disk)
	if delete(got, "filler"); got["1"] != "one" || got["2"] != "two" || len(got) != 2 {
		t.Errorf("%.100q", got)
	}
	must(t, os.Remove(filler))
	holds(t, disk, "1", big, "2", "two", "new", big)
	r.await("good", good)
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for piece := make([]byte, 4096); err == nil; {
		_, err = f.Write(piece)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// A file system that turns read-only, likewise.
func TestAReadOnlyDisk(t *testing.T) {
	disk := mounted(t)
	s := newSite(t, "a/1", "one", "a/2", "two")
	r := start(t, s, Pull{Prefix: "a/", Dir: disk, Delete: true})
	r.await("good", good)
	r.stop() // an open journal keeps it writable
	must(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	s.set("a/1", "changed")
	s.delete("a/2")
	r = start(t, s, Pull{Prefix: "a/", Dir: disk, Delete: true})
	st := r.await("an error", func(st State) bool { return st.Error != "" })
	if !strings.Contains(st.Error, "read-only file system") {
		t.Error(st.Error)
	}
	holds(t, disk, "1", "one", "2", "two")
	must(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT, ""))
	holds(t, disk, "1", "changed")
	r.await("good", good)
}

// A single file that is mounted cannot be replaced: it is written in place, and is seen through the mount.
func TestAMountedFile(t *testing.T) {
	disk := mounted(t)
	source := filepath.Join(disk, "source")
	dir := t.TempDir()
	target := filepath.Join(dir, "conf")
	write(t, source, "a longer one")
	write(t, target, "")
	if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
		t.Skip("cannot mount:", err)
	}
	defer syscall.Unmount(target, 0)
	s := newSite(t, "a/conf", "short", "a/x", "1")
	r := start(t, s, Pull{Prefix: "a/", Dir: dir})
	holds(t, disk, "source", "short")
	big := strings.Repeat("b", 100<<10)
	s.set("a/conf", big)
	holds(t, disk, "source", big)
	holds(t, dir, "conf", big, "x", "1")
	r.await("good", good)

	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	s.set("a/conf", strings.Repeat("c", 200<<10))
	r.await("an error", func(st State) bool { return strings.Contains(st.Error, "no space left on device") })
	if b, err := os.ReadFile(source); err != nil || string(b) != big {
		t.Errorf("%d bytes, %v: it is not as it was", len(b), err)
	}
	must(t, os.Remove(filler))
	holds(t, disk, "source", strings.Repeat("c", 200<<10))
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 3 { // conf, x, the journal
		t.Errorf("%v", entries)
	}
}

// Where the name is in use the rename fails as for a mounted file.
func TestAFileThatIsBusy(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "conf"), "old and longer")
	before, err := os.Stat(filepath.Join(dir, "conf"))
	must(t, err)
	tr, err := openTree(dir, false)
	must(t, err)
	defer tr.close()
	tr.rename = func(oldName, newName string) error {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: syscall.EBUSY}
	}
	old, err := tr.look("conf")
	must(t, err)
	staged, err := tr.stage("conf", old, []byte("new"))
	must(t, err)
	_, err = tr.place(staged)
	must(t, err)
	holds(t, dir, "conf", "new")
	if after, err := os.Stat(filepath.Join(dir, "conf")); err != nil || !os.SameFile(before, after) {
		t.Error("it is another file:", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
}

// The owner of a file that is replaced stays; whoever cannot keep it leaves the file as it is.
func TestOwnerIsKept(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	const nobody = 65534
	s := newSite(t, "a/theirs", "new")
	dir := t.TempDir()
	path := filepath.Join(dir, "theirs")
	write(t, path, "old")
	must(t, os.Chown(path, nobody, nobody))
	must(t, os.Chmod(path, 0o640|os.ModeSetgid))
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir}))
	fi, err := os.Stat(path)
	must(t, err)
	if st := fi.Sys().(*syscall.Stat_t); st.Uid != nobody || st.Gid != nobody || fi.Mode() != 0o640|os.ModeSetgid {
		t.Errorf("%d:%d %v", st.Uid, st.Gid, fi.Mode())
	}
	holds(t, dir, "theirs", "new")
}
