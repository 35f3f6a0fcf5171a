package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gus/agent/client"
)

// fill makes a file that takes all the space that its disk has left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	piece := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(piece)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// smallDisk mounts 8 MiB, or skips the test.
func smallDisk(t *testing.T) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("cannot mount a small disk:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// One site's disk is really full: it refuses sets and says why, it reads, the others do not notice,
// and once there is space it goes on by itself.
func TestAFullDiskAtOneSite(t *testing.T) {
	disk := smallDisk(t)
	inEmptyWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		ir.disk = disk
		w.settle()
		w.want(ir.set("k", "before"), "")
		filler := filepath.Join(disk, "filler")
		fill(w.t, filler)
		value := strings.Repeat("v", 100<<10)
		r := ir.set("large", value)
		for range 100 { // what the database has taken before, it fills first
			if r.err() != nil {
				break
			}
			r = ir.set("large", value)
		}
		w.fails(r, client.ErrNotSaved, "the disk is full", "nothing changed")

		w.want(ca.set("k", "meanwhile"), "")
		w.want(va.get("k"), "meanwhile")
		w.want(ir.get("k"), "meanwhile")
		w.want(va.set("large", "small"), "")
		w.want(ir.get("large"), "small")
		if st := ir.status(); !strings.Contains(st.SaveError, "the disk is full") || !slices.Equal(ir.codes(), []string{"saves_fail"}) {
			t.Errorf("status says %q and warns of %v", st.SaveError, ir.codes())
		}
		if c := slices.Concat(ca.codes(), va.codes()); len(c) > 0 {
			t.Errorf("the others warn of %v", c)
		}
		time.Sleep(time.Minute)
		w.fails(ir.set("large", value), client.ErrNotSaved, "the disk is full", "nothing changed")

		if err := os.Remove(filler); err != nil {
			w.t.Fatal(err)
		}
		w.await(func() bool { return ir.set("large", value).err() == nil })
		w.want(ca.get("large"), value)
		w.await(func() bool { return len(ir.codes()) == 0 })
	})
}
