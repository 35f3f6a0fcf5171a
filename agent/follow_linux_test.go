package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gus/register"
)

// A site whose disk is full has heard of a write and cannot save it. It looks at what
// the others have saved, is killed, and comes back with room: it lacks the write, and
// must not have noted that it has looked at it.
func TestAFullDiskAndAKill(t *testing.T) {
	disk := smallDisk(t)
	inEmptyWorld(t, three, func(w *world) {
		ca, ir := w.sites[0], w.sites[2]
		ir.disk = disk
		w.settle()
		w.want(ir.set("k", "before"), "")
		time.Sleep(3 * epochLength)
		filler := filepath.Join(disk, "filler")
		fill(w.t, filler)
		// A little room is left: enough for a cursor, too little for the write.
		info, err := os.Stat(filler)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := os.Truncate(filler, info.Size()-200<<10); err != nil {
			w.t.Fatal(err)
		}
		w.want(ca.set("large", strings.Repeat("v", 900<<10)), "")
		time.Sleep(3 * epochLength)
		var before register.Shown
		_ = ir.loop.visit(w.t.Context(), func(r *register.Replica) { before = r.Show([]string{"large"})[0] })
		t.Logf("shown %+v, cursors %v", before, ir.store.Cursors())
		ir.kill()
		if err := os.Remove(filler); err != nil {
			w.t.Fatal(err)
		}
		ir.restart()
		w.await(func() bool { return w.connected(3) && ir.caughtUp() })
		if r := ir.local("large"); r.status != 200 {
			t.Errorf("it has caught up, cursors %v, and does not hold it: %d", ir.store.Cursors(), r.status)
		}
		for range 60 {
			time.Sleep(time.Second)
			for _, s := range w.sites {
				if d := s.disagreements(); len(d) > 0 {
					t.Fatalf("a false alarm at %s: %v", s.name, d)
				}
			}
		}
	})
}
