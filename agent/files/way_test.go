package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shapes are pairs of sets of keys, of which the one becomes the other in one batch.
var shapes = []struct {
	name          string
	before, after []string // key, value, key, value
}{
	{"a file becomes a directory", []string{"a", "file", "c", "1"}, []string{"a/b", "below", "a/d/e", "deeper", "c", "1"}},
	{"a directory becomes a file", []string{"a/b", "below", "a/d/e", "deeper", "c", "1"}, []string{"a", "file", "c", "1"}},
	{"deep below", []string{"x/y/z", "file", "x/keep", "1"}, []string{"x/y/z/1/2", "below", "x/keep", "2"}},
	{"deep below, back", []string{"x/y/z/1/2", "below", "x/y/z/3", "4"}, []string{"x/y", "file"}},
	{"both at once", []string{"a", "1", "b/x", "2"}, []string{"a/x", "3", "b", "4"}},
	{"the last file of a directory gives way to another", []string{"d/e/old", "1"}, []string{"d/e/new", "2"}},
}

// become has s know the keys of after instead of those of before, and returns what files they are.
func become(s *site, before, after []string) (want []string) {
	for i := 0; i < len(before); i += 2 {
		if !slices.Contains(after, before[i]) {
			s.delete("p/" + before[i])
		}
	}
	for i := 0; i < len(after); i += 2 {
		s.set("p/"+after[i], after[i+1])
	}
	return after
}

// Where a file becomes a directory, or a directory a file, one batch does it: also while the job runs, and a Check sees what will be.
func TestFilesBecomeDirectories(t *testing.T) {
	for _, c := range shapes {
		t.Run(c.name, func(t *testing.T) {
			dir, seen := t.TempDir(), filepath.Join(t.TempDir(), "seen")
			s := newSite(t)
			p := Pull{Prefix: "p/", Dir: dir, Delete: true, Check: "find . -type f ! -name '.gus-*' | sort >" + seen}
			become(s, nil, c.before)
			must(t, once(t, s, p))
			holds(t, dir, c.before...)
			want := become(s, c.before, c.after)
			var names, did []string
			p.Change = func(ch Change) { did = append(did, string(ch.Op)) }
			must(t, once(t, s, p))
			holds(t, dir, want...)
			for i := 0; i < len(want); i += 2 {
				names = append(names, "./"+want[i])
			}
			if slices.Sort(names); !slices.Equal(lines(t, seen), names) {
				t.Errorf("the check saw %q, and there is %q", lines(t, seen), names)
			}
			if !slices.Contains(did, "delete") || !slices.Contains(did, "add") {
				t.Errorf("%q", did)
			}
			tidy(t, dir, want)

			r := start(t, s, p)
			r.await("good", good)
			s.mu.Lock() // the deletions come first, and all in one batch
			for i := 0; i < len(c.after); i += 2 {
				s.changeLocked("p/"+c.after[i], held{deleted: true})
			}
			for i := 0; i < len(c.before); i += 2 {
				s.changeLocked("p/"+c.before[i], held{value: c.before[i+1]})
			}
			s.mu.Unlock()
			holds(t, dir, c.before...)
			r.await("good", good)
		})
	}
}

// tidy checks that nothing is below dir but the files want, the directories they need, and a journal of just those.
func tidy(t *testing.T, dir string, want []string) {
	t.Helper()
	needs := map[string]bool{}
	for i := 0; i < len(want); i += 2 {
		needs[want[i]] = true
		for parent := range parents(want[i]) {
			needs[parent+"/"] = true
		}
	}
	got := map[string]bool{}
	must(t, filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, name)
		if d.IsDir() {
			rel += "/"
		}
		if rel != "./" && rel != journalName {
			got[rel] = true
		}
		return err
	}))
	tr, err := openTree(dir, true)
	must(t, err)
	defer tr.close()
	j, err := openJournal(tr, Pull{Prefix: "p/"}.owner(), true)
	must(t, err)
	if fmt.Sprint(got) != fmt.Sprint(needs) || fmt.Sprint(j.names) != fmt.Sprint(needs) {
		t.Errorf("there is %v, and the journal has %v; want %v", got, j.names, needs)
	}
}

type crash struct{}

// A crash before each single change of such a batch is made good by the next start, in one batch too.
func TestCrashesOnTheWay(t *testing.T) {
	for _, c := range shapes {
		t.Run(c.name, func(t *testing.T) {
			for at := 1; ; at++ {
				dir := t.TempDir()
				s := newSite(t)
				become(s, nil, c.before)
				must(t, once(t, s, Pull{Prefix: "p/", Dir: dir, Delete: true}))
				want := become(s, c.before, c.after)
				crashed := crashAt(t, s, dir, at)
				must(t, once(t, s, Pull{Prefix: "p/", Dir: dir, Delete: true}))
				holds(t, dir, want...)
				tidy(t, dir, want)
				if s.stop(); !crashed {
					if at < 4 {
						t.Errorf("a batch of %d steps", at)
					}
					return
				}
			}
		})
	}
}

// crashAt runs a job that ends before its step of that number, and says whether it had so many.
func crashAt(t *testing.T, s *site, dir string, at int) (crashed bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			crashed = true
		}
	}()
	p := Pull{Prefix: "p/", Dir: dir, Delete: true}
	p.step = func() {
		if at--; at == 0 {
			panic(crash{})
		}
	}
	must(t, once(t, s, p))
	return false
}

// A directory in which something else is, or that this job has not made, is not replaced, nor is anything in it removed
// before: what is in the way is named, and a file that is in the way and nobody's to remove stays as well.
func TestWhatIsInTheWayOfAFile(t *testing.T) {
	s := newSite(t, "p/a/b", "below", "p/made/b", "below", "p/f", "file")
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "made"), 0o755))
	p := Pull{Prefix: "p/", Dir: dir, Delete: true}
	must(t, once(t, s, p))
	write(t, filepath.Join(dir, "a/theirs"), "theirs")
	s.delete("p/a/b")
	s.delete("p/made/b")
	s.delete("p/f")
	s.together("p/a", "1", "p/made", "2", "p/f/x", "3")
	err := once(t, s, p)
	for _, says := range []string{`key "p/a": ` + dir + "/a is a directory", `key "p/made": ` + dir + "/made is a directory"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
	holds(t, dir, "a/theirs", "theirs", "f/x", "3")
	p.Delete = false
	s.delete("p/f/x")
	s.set("p/f", "file again")
	if err := once(t, s, p); err == nil || !strings.Contains(err.Error(), "/f is a directory") {
		t.Error(err)
	}
	holds(t, dir, "a/theirs", "theirs", "f/x", "3")
}
