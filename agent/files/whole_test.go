package files

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Whoever reads a file at any moment finds a whole one, while it changes and while jobs are started
// and stopped in the middle of it.
func TestFilesAreWholeAtEachMoment(t *testing.T) {
	const size = 200 << 10
	s := newSite(t, "a/x", strings.Repeat("a", size))
	dir := t.TempDir()
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir}))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			b, err := os.ReadFile(filepath.Join(dir, "x"))
			if err != nil || len(b) != size || strings.Trim(string(b), string(b[:1])) != "" {
				t.Errorf("a file of %d bytes, %v", len(b), err)
				return
			}
		}
	})
	defer wg.Wait()
	defer close(done)
	for range 20 {
		r := start(t, s, Pull{Prefix: "a/", Dir: dir, Exec: "true"})
		for _, letter := range []string{"b", "c", "d"} {
			s.set("a/x", strings.Repeat(letter, size))
		}
		r.await("a state", func(st State) bool { return st.Version != "" })
		s.set("a/x", strings.Repeat("e", size))
		r.stop()
	}
	must(t, once(t, s, Pull{Prefix: "a/", Dir: dir}))
	holds(t, dir, "x", strings.Repeat("e", size))
	entries, err := os.ReadDir(dir)
	if must(t, err); len(entries) != 2 { // it, and the journal
		t.Error(entries)
	}
}
