package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gus/agent/client"
)

// below returns what the keys below prefix hold.
func (s *site) below(prefix string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := map[string]string{}
	for key, h := range s.keys {
		if strings.HasPrefix(key, prefix) && !h.deleted {
			got[key] = h.value
		}
	}
	return got
}

// Files become keys, only where they differ; what is not to be pushed is left out.
func TestFilesBecomeKeys(t *testing.T) {
	s := newSite(t, "a/same", "same", "a/changed", "1234", "a/longer", "1", "a/gone", "1", "b/x", "1")
	dir := t.TempDir()
	for name, content := range map[string]string{
		"same": "same", "changed": "abcd", "longer": "12", "new/deep": "\x00\xff", "empty": "", ".hidden": "h",
		"notes~": "x", ".x.swp": "x", ".#lock": "x", "#x#": "x", ".git/config": "x", ".gus-sync": "x",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	version := s.keys["a/same"].version
	var did []string
	p := Push{Dir: dir, Prefix: "a/", DryRun: true, Delete: true, Change: func(c Change) {
		did = append(did, fmt.Sprintf("%s %s %d %q %q", c.Op, c.Key, c.Size, c.Old, c.New))
	}}
	sum, err := p.Run(t.Context(), s.client())
	must(t, err)
	if want := (Summary{Added: 3, Changed: 2, Deleted: 1, Same: 1}); fmt.Sprint(sum.Added, sum.Changed, sum.Deleted, sum.Same) != fmt.Sprint(want.Added, want.Changed, want.Deleted, want.Same) {
		t.Errorf("%+v", sum)
	}
	if got := strings.Join(sum.Skipped, " "); got != "#x# .#lock .git .x.swp notes~" {
		t.Error(got)
	}
	want := []string{
		`add a/.hidden 1 "" "h"`, `change a/changed 4 "1234" "abcd"`, `add a/empty 0 "" ""`, `change a/longer 2 "1" "12"`,
		`add a/new/deep 2 "" "\x00\xff"`, `delete a/gone 0 "" ""`,
	}
	if !slices.Equal(did, want) {
		t.Errorf("%q", did)
	}
	if got := s.below("a/"); len(got) != 4 || got["a/changed"] != "1234" {
		t.Errorf("a dry run made %q", got)
	}

	p.DryRun = false
	no := errors.New("no")
	p.Confirm = func(n int) error { return no }
	if _, err := p.Run(t.Context(), s.client()); !errors.Is(err, no) || len(s.below("a/")) != 4 {
		t.Error(err)
	}
	p.Confirm = nil
	sum, err = p.Run(t.Context(), s.client())
	must(t, err)
	got := s.below("")
	if fmt.Sprintf("%q", got) != `map["a/.hidden":"h" "a/changed":"abcd" "a/empty":"" "a/longer":"12" "a/new/deep":"\x00\xff" "a/same":"same" "b/x":"1"]` {
		t.Errorf("%q", got)
	}
	if s.keys["a/same"].version != version {
		t.Error("what was the same was written")
	}
	sum, err = p.Run(t.Context(), s.client())
	if must(t, err); sum.Same != 6 || sum.Added+sum.Changed+sum.Deleted != 0 {
		t.Errorf("%+v", sum)
	}
}

// There and back again, byte for byte.
func TestThereAndBackAgain(t *testing.T) {
	s := newSite(t)
	from, to := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "a b/ü"), "x\n\n")
	write(t, filepath.Join(from, "zero"), strings.Repeat("\x00", client.MaxValue))
	_, err := Push{Dir: from, Prefix: "p/"}.Run(t.Context(), s.client())
	must(t, err)
	must(t, once(t, s, Pull{Prefix: "p/", Dir: to}))
	holds(t, to, "a b/ü", "x\n\n", "zero", strings.Repeat("\x00", client.MaxValue))
}

// What cannot be pushed is named before anything is written.
func TestFilesThatCannotBeKeys(t *testing.T) {
	for _, c := range []struct {
		says string
		is   error
		make func(dir string) error
	}{
		{"link: it is a symbolic link", nil, func(dir string) error { return os.Symlink("good", filepath.Join(dir, "link")) }},
		{"a value of 1048577 bytes is too large", client.ErrTooLarge, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "large"), make([]byte, client.MaxValue+1), 0o644)
		}},
		{"the name has a control character", client.ErrRefused, func(dir string) error { return os.WriteFile(filepath.Join(dir, "a\nb"), nil, 0o644) }},
		{"the name is not UTF-8", client.ErrRefused, func(dir string) error { return os.WriteFile(filepath.Join(dir, "a\xffb"), nil, 0o644) }},
		{"the key has 1", client.ErrRefused, func(dir string) error {
			deep := filepath.Join(dir, strings.Repeat(strings.Repeat("d", 200)+"/", 6))
			return errors.Join(os.MkdirAll(deep, 0o755), os.WriteFile(filepath.Join(deep, "x"), nil, 0o644))
		}},
	} {
		t.Run(c.says, func(t *testing.T) {
			s := newSite(t)
			dir := t.TempDir()
			write(t, filepath.Join(dir, "good"), "1")
			must(t, c.make(dir))
			_, err := Push{Dir: dir, Prefix: "a/"}.Run(t.Context(), s.client())
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasSuffix(err.Error(), "nothing was changed") || c.is != nil && !errors.Is(err, c.is) {
				t.Error(err)
			}
			if got := s.below(""); len(got) != 0 {
				t.Errorf("%q", got)
			}
		})
	}
}

// Without a quorum nothing is written; an empty directory, as of a mount that failed, deletes nothing.
func TestPushesThatAreRefused(t *testing.T) {
	s := newSite(t, "a/1", "1")
	dir := t.TempDir()
	if _, err := (Push{Dir: dir, Prefix: "a/", Delete: true}).Run(t.Context(), s.client()); err == nil || !strings.Contains(err.Error(), "has no files") {
		t.Error(err)
	}
	if _, err := (Push{Dir: filepath.Join(dir, "none"), Prefix: "a/"}).Run(t.Context(), s.client()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	write(t, filepath.Join(dir, "2"), "2")
	s.quorum(false)
	if _, err := (Push{Dir: dir, Prefix: "a/"}).Run(t.Context(), s.client()); !errors.Is(err, client.ErrNoQuorum) || !strings.Contains(err.Error(), "before the first change: ") {
		t.Error(err)
	}
	for _, prefix := range []string{"a", "_gus/", "_gus/x/"} {
		if _, err := (Push{Dir: dir, Prefix: prefix}).Run(t.Context(), s.client()); err == nil {
			t.Error(prefix)
		}
	}
	if got := s.below(""); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
