package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errWithin is of a directory that cannot be put in order, as it is within that of another job.
var errWithin = errors.New("one is within the other")

// nestedError says that other, which is within dir or the other way round, belongs to another job. owner is
// the one of the two whose journal is there.
func nestedError(dir, other, owner string) error {
	return fmt.Errorf("of the directories %s and %s, which is that of another sync, %w: each needs its own; where that sync is no more, remove %s",
		dir, other, errWithin, filepath.Join(owner, journalName))
}

// checkParents refuses the directory dir, which need not be there, where one above it is that of another job: with
// Delete that one would remove the files of this one.
func checkParents(dir string) error {
	at, real := dir, ""
	for {
		var err error
		if real, err = filepath.EvalSymlinks(at); err == nil {
			break
		}
		above := filepath.Dir(at)
		if above == at {
			return nil // whoever opens it says why
		}
		at = above
	}
	if at == dir {
		if real == filepath.Dir(real) {
			return nil
		}
		real = filepath.Dir(real)
	}
	for {
		if fi, err := os.Lstat(filepath.Join(real, journalName)); err == nil && fi.Mode().IsRegular() {
			return nestedError(dir, real, real)
		}
		above := filepath.Dir(real)
		if above == real {
			return nil
		}
		real = above
	}
}

// isOther says whether the directory dir below t is that of another job.
func (t *tree) isOther(dir string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	is, known := t.others[dir]
	if !known {
		_, err := t.root.Lstat(dir + "/" + journalName)
		is = err == nil
		t.others[dir] = is
	}
	return is
}

// otherOf returns the directory on the way to name that is another job's, if there is one.
func (t *tree) otherOf(name string) string {
	for dir := range parents(name) {
		if t.root != nil && t.isOther(dir) {
			return dir
		}
	}
	return ""
}

// leaveToOthers gives up the files that are to be removed and are in the directory of another job by now: they
// are that one's.
func (j *job) leaveToOthers(b *batch) {
	var dirs []string
	b.gone = slices.DeleteFunc(b.gone, func(name string) bool {
		dir := j.tree.otherOf(name)
		if dir == "" {
			return false
		}
		delete(j.gone, name)
		b.lines = append(b.lines, "-"+name)
		dirs = append(dirs, j.tree.path(dir))
		return true
	})
	j.noteOthers(dirs)
}

// noteOthers says once of each directory that it is another job's.
func (j *job) noteOthers(dirs []string) {
	const most = 5
	slices.Sort(dirs)
	var fresh []string
	for _, dir := range slices.Compact(dirs) {
		if !j.others[dir] {
			j.others[dir] = true
			fresh = append(fresh, dir)
		}
	}
	if n := len(fresh); n > most {
		fresh = append(fresh[:most], fmt.Sprintf("and %d more", n-most))
	}
	if len(fresh) > 0 {
		j.log.Warn("directories within this one are those of other syncs and are left alone, and those do not start again: give each its own", "within", strings.Join(fresh, ", "))
	}
}
