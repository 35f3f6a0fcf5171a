package snapshot

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The SQLite module is machine-made for one release of its C library and goes
// wrong with any other: we must build with the one that it asks for.
func TestLibcIsTheOneOfSQLite(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to ask")
	}
	theirs, err := os.ReadFile(module(t, "modernc.org/sqlite", "{{.GoMod}}"))
	must(t, err)
	ours := module(t, "modernc.org/libc", "{{.Version}}")
	if !strings.Contains(string(theirs), "modernc.org/libc "+ours+"\n") {
		t.Errorf("go.mod has modernc.org/libc %s, and SQLite asks for another", ours)
	}
}

// module asks the go command about a module that we build with.
func module(t *testing.T, path, format string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", format, path).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}
