package membership

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gus/quic"
)

func TestInit(t *testing.T) {
	data := filepath.Join(t.TempDir(), "new", "data")
	conf, err := Init(data, "b", []string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(data, IdentityDir)
	id, err := quic.LoadIdentity(dir)
	if err != nil || id.Name != "b" || id.Number != 2 || id.Cluster != conf.Cluster {
		t.Fatalf("%+v: %v", id, err)
	}
	got, err := Load(dir, id.CA)
	if err != nil || got.Number != 1 || got.VoterOf("a") != 1 || got.VoterOf("c") != 3 || got.ReadQuorum != 2 {
		t.Errorf("%+v: %v", got, err)
	}
	if a, err := quic.LoadAuthority(dir); err != nil || a.Cluster() != conf.Cluster {
		t.Errorf("the authority: %v", err)
	}
	for name, mode := range map[string]fs.FileMode{data: 0o700, dir: 0o700, filepath.Join(dir, "ca.key"): 0o600, filepath.Join(dir, namesFile): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, want mode %v", name, info, mode)
		}
	}
	if _, err := Init(data, "b", []string{"b"}); !errors.Is(err, ErrHasIdentity) || !strings.Contains(err.Error(), "b (voter 2)") {
		t.Errorf("again: %v", err)
	}
	if again, err := quic.LoadIdentity(dir); err != nil || !again.Key.Equal(id.Key) {
		t.Errorf("the identity is another one: %v", err)
	}
}

func TestInitRefuses(t *testing.T) {
	data := t.TempDir()
	nine := strings.Split("a b c d e f g h i", " ")
	for what, c := range map[string]struct {
		name   string
		voters []string
		says   string
	}{
		"itself no voter": {"x", []string{"a", "b"}, "must be one of the voters, which are a, b"},
		"no voters":       {"a", nil, "must be one of"},
		"ten":             {"a", append(nine, "j"), "10 voters: at most 9"},
		"one twice":       {"a", []string{"a", "b", "b"}, "twice"},
		"a bad name":      {"A", []string{"A"}, "site name"},
		"another's":       {"a", []string{"a", "B"}, "site name"},
	} {
		if _, err := Init(data, c.name, c.voters); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", what, err, c.says)
		}
	}
	if entries, err := os.ReadDir(data); err != nil || len(entries) != 0 {
		t.Errorf("it left %v: %v", entries, err)
	}
	// A directory that holds something else, and one whose identity is broken.
	dir := filepath.Join(data, IdentityDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(data, "a", nine); err == nil || !strings.Contains(err.Error(), "move them away") {
		t.Errorf("over a key: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, "ca.key"), filepath.Join(dir, "site.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(data, "a", nine); !errors.Is(err, ErrHasIdentity) {
		t.Errorf("over a broken identity: %v", err)
	}
	if got := read(t, filepath.Join(dir, "site.key")); got != "precious" {
		t.Errorf("it was replaced: %q", got)
	}
}

// What a crash in the middle left is no obstacle, and an empty directory is
// none.
func TestInitAfterACrash(t *testing.T) {
	data := t.TempDir()
	for _, dir := range []string{IdentityDir, IdentityDir + ".new"} {
		if err := os.MkdirAll(filepath.Join(data, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(data, IdentityDir+".new", "ca.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(data, "a", []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(data); err != nil || len(entries) != 1 {
		t.Errorf("it left %v: %v", entries, err)
	}
}

func TestAdvice(t *testing.T) {
	for n, want := range map[int]string{1: "", 2: "2 voters go on without 0 of them, as 1 would", 3: "", 4: "4 voters go on without 1 of them, as 3 would", 9: ""} {
		conf := Configuration{Voters: make([]Voter, n)}
		if got := conf.Advice(); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%d: %q", n, got)
		}
	}
}

// A founding site whose books are gone signs nothing: it would not know which
// names are taken.
func TestTheBooksAreNeeded(t *testing.T) {
	data := t.TempDir()
	conf, err := Init(data, "a", []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(data, IdentityDir)
	names := filepath.Join(dir, namesFile)
	for what, change := range map[string]func() error{
		"empty":   func() error { return os.WriteFile(names, nil, 0o600) },
		"nothing": func() error { return os.WriteFile(names, []byte("null"), 0o600) },
		"missing": func() error { return os.Remove(names) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, err := loadSigner(dir, conf); err == nil || !strings.Contains(err.Error(), names) || !strings.Contains(err.Error(), "backup") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A name that could not be noted is nobody's, and the next one who asks waits
// for the disk again.
func TestANameIsNotedBeforeItIsGiven(t *testing.T) {
	dir := t.TempDir()
	b := nameBook{path: filepath.Join(dir, "gone", namesFile), keys: map[string][]byte{}}
	key, err := quic.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.give("b", key.Public()); err == nil {
			t.Error("given without a disk")
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "gone"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.give("b", key.Public()); err != nil {
		t.Error(err)
	}
	mustContain(t, "the book", read(t, b.path), `"b"`)
}
