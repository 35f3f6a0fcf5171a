package agent

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gus/agent/client"
	"gus/snapshot"
)

// A disk that takes half a minute for a sync is its own site's trouble: the others do not notice, and
// what they hold can be read there.
func TestADiskThatStalls(t *testing.T) {
	inEmptyWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		var stalls atomic.Bool
		ir.saving = func() {
			if stalls.Load() {
				time.Sleep(30 * time.Second)
			}
		}
		w.settle()
		w.want(ca.set("k", "before"), "")
		w.want(ir.get("k"), "before")
		stalls.Store(true)
		for range 10 {
			w.want(ca.set("k", "meanwhile"), "")
			w.want(va.set("k", "meanwhile"), "")
			w.want(va.get("k"), "meanwhile")
			w.want(ca.get("k"), "meanwhile")
			w.want(ir.get("k"), "meanwhile")
		}
		w.fails(ir.set("mine", "lost"), client.ErrNotSaved, "the disk of this site", "nothing changed")
		w.fails(ca.get("mine"), client.ErrNotFound)
		late := make(chan reply, 1)
		go func() { late <- ir.ask(w.t.Context(), "PUT", kvPath+"late", "10m", "v") }()
		w.await(func() bool { return slices.Equal(ir.codes(), []string{"save_stalled"}) })
		stalls.Store(false)
		w.want(<-late, "")
		w.want(ca.get("late"), "v")
		w.want(ir.set("mine", "kept"), "")
		w.want(va.get("mine"), "kept")
		w.await(func() bool { return len(ir.codes()) == 0 })
	})
}

// A database that is not what was written is refused by its name, and stays as it is.
func TestADamagedDatabase(t *testing.T) {
	d := newDoor(t)
	for _, key := range []string{"a", "b", "c"} {
		if _, err := d.client.Set(t.Context(), key, bytes.Repeat([]byte(key), 4096)); err != nil {
			t.Fatal(err)
		}
	}
	d.stop()
	path := filepath.Join(d.data, databaseFile)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int{"the header": 0, "the first value": bytes.Index(sound, []byte("aaaa")), "the last value": bytes.LastIndex(sound, []byte("cccc"))} {
		if at < 0 {
			t.Fatalf("%s is not in the file", name)
		}
		damaged := bytes.Clone(sound)
		damaged[at] ^= 0x40
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Run(t.Context(), Config{Data: d.data, Listen: "127.0.0.1:0"})
		if !errors.Is(err, snapshot.ErrDamaged) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: it ended with %v, want one line of ErrDamaged", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
			t.Errorf("%s: the file has changed, %v", name, err)
		}
	}
}
