package files

import (
	"fmt"
	"testing"

	"gus/agent/client"
)

// The last of a batch may be one of the system's keys, which are no files: the others of the batch
// become files all the same.
func TestASystemKeyAtTheEndOfABatch(t *testing.T) {
	s := newSite(t, "a", "1")
	dir := t.TempDir()
	r := start(t, s, Pull{Dir: dir})
	r.await("all", func(st State) bool { return st.Keys == 1 })
	s.mu.Lock()
	for _, key := range []string{"_gus/x", "Z"} { // told in the order of the keys: Z, _gus/x
		s.clock++
		s.keys[key] = held{value: "2", version: version(s.clock)}
		for w := range s.watches {
			w.todo[key] = true
		}
	}
	for w := range s.watches {
		w.wake <- struct{}{}
	}
	s.mu.Unlock()
	holds(t, dir, "a", "1", "Z", "2")
}

func version(n int) client.Version { return client.Version(fmt.Sprintf("%d.1", n)) }
