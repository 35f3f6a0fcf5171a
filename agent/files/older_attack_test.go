package files

import (
	"testing"

	"gus/agent/client"
)

// A site that was put back has a lower version, and that is what is there: the file follows, as it
// does after the job's start.
func TestAnOlderVersionAfterARestart(t *testing.T) {
	s := newSite(t, "app/port", "1")
	dir := t.TempDir()
	start(t, s, Pull{Prefix: "app/", Dir: dir})
	s.set("app/port", "2")
	holds(t, dir, "port", "2")
	s.stop()
	s.mu.Lock()
	s.keys["app/port"] = held{value: "1", version: client.Version("1.1")}
	s.mu.Unlock()
	s.start()
	holds(t, dir, "port", "1")
}
