package files

import "testing"

// What a job of another prefix has put in place is not this job's to remove.
func TestAnotherPrefixRemovesNothing(t *testing.T) {
	s := newSite(t, "app/port", "8080", "apq/x", "1")
	dir := t.TempDir()
	must(t, once(t, s, Pull{Prefix: "app/", Dir: dir, Delete: true}))
	holds(t, dir, "port", "8080")
	must(t, once(t, s, Pull{Prefix: "apq/", Dir: dir, Delete: true}))
	holds(t, dir, "port", "8080", "x", "1")
}
