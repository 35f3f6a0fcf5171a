package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	tempPrefix  = ownPrefix + "tmp-"   // of a file that is being written
	liftPrefix  = ownPrefix + "check-" // of a directory that Check sees
	newFileMode = 0o644
	newDirMode  = 0o755
)

// tree is a directory with files, by slash-separated names below it. Symbolic
// links below it are not followed.
type tree struct {
	root   *os.Root // nil: the directory is not there, and is not to be made
	dir    string   // absolute
	unlock func()
	fold   bool                                // names that differ in case alone are one file
	rename func(oldName, newName string) error // root.Rename, but for tests
	step   func()                              // called before each change of what is in place; nothing, but for tests

	plan
}

// plan is what a batch is about to do to the tree, and what was seen on the way.
type plan struct {
	leaving map[string]bool // files that are to be removed, by id
	mine    map[string]bool // directories that may go once they are empty, with a slash behind each

	mu     *sync.Mutex
	others map[string]bool // whether directories are those of other jobs
}

// begin begins a batch that removes the files of the names leaving. mine are the names of
// the journal where directories that are empty may go.
func (t *tree) begin(leaving []string, mine map[string]bool) {
	t.plan = plan{leaving: map[string]bool{}, mine: mine, mu: &sync.Mutex{}, others: map[string]bool{}}
	for _, name := range leaving {
		t.leaving[foldName(name, t.fold)] = true
	}
}

func (t *tree) leaves(name string) bool { return t.leaving[foldName(name, t.fold)] }

// openTree opens dir, and makes it where it is not there. A dry one changes
// nothing and may be opened beside a job that runs.
func openTree(dir string, dry bool) (*tree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &tree{dir: abs, unlock: func() {}, step: func() {}}
	t.begin(nil, nil)
	if err := checkParents(abs); err != nil {
		return nil, err
	}
	if !dry {
		if err := os.MkdirAll(abs, newDirMode); err != nil {
			return nil, fmt.Errorf("make the directory: %w", err)
		}
	}
	t.root, err = os.OpenRoot(abs)
	switch {
	case dry && errors.Is(err, fs.ErrNotExist):
		t.root = nil
		return t, nil
	case err != nil:
		return nil, err
	}
	t.rename = t.root.Rename
	if dry {
		return t, nil
	}
	if t.unlock, err = lock(abs); err != nil {
		t.root.Close()
		return nil, err
	}
	return t, nil
}

func (t *tree) close() {
	t.unlock()
	if t.root != nil {
		t.root.Close()
	}
}

// moved says whether the directory of that path is another one by now, or gone.
func (t *tree) moved() bool {
	here, err := t.root.Stat(".")
	if err != nil {
		return true
	}
	there, err := os.Stat(t.dir)
	return err != nil || !os.SameFile(here, there)
}

// sweep removes what a crash left behind. Directories of other jobs are theirs: it returns them.
func (t *tree) sweep() (others []string) {
	_ = fs.WalkDir(t.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir // what cannot be read is nothing that a job wrote
		case err != nil:
			return nil
		case strings.HasPrefix(base, liftPrefix) && d.IsDir():
			_ = t.root.RemoveAll(name)
			return fs.SkipDir
		case d.IsDir() && name != "." && t.isOther(name):
			others = append(others, t.path(name))
			return fs.SkipDir
		case strings.HasPrefix(base, tempPrefix) && d.Type().IsRegular():
			_ = t.root.Remove(name)
		}
		return nil
	})
	return others
}

// look returns what is at name, nil where nothing is, or nothing will be once what is leaving has gone. What is
// neither a file nor nothing is an error, as is a way to it that does not lead through directories of this job.
func (t *tree) look(name string) (fs.FileInfo, error) {
	if t.root == nil {
		return nil, nil
	}
	for dir := range parents(name) {
		fi, err := t.root.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, err
		case fi.Mode()&fs.ModeSymlink != 0:
			return nil, fmt.Errorf("%s is a symbolic link, and none is followed: put a directory there", t.path(dir))
		case fi.Mode().IsRegular() && t.leaves(dir):
			return nil, nil
		case !fi.IsDir():
			return nil, fmt.Errorf("%s is in the way, where a directory is needed: remove it", t.path(dir))
		case t.isOther(dir):
			return nil, nestedError(t.dir, t.path(dir), t.path(dir))
		}
	}
	fi, err := t.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case fi.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("%s is a symbolic link, and none is followed or replaced: remove it", t.path(name))
	case fi.IsDir() && t.emptied(name):
		return nil, nil
	case fi.IsDir():
		return nil, fmt.Errorf("%s is a directory, where a file is to be: remove it", t.path(name))
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("%s is in the way and no regular file: remove it", t.path(name))
	}
	return fi, nil
}

// parents yields the directories on the way to name, from the top.
func parents(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range len(name) {
			if name[i] == '/' && !yield(name[:i]) {
				return
			}
		}
	}
}

// path is what people know name by.
func (t *tree) path(name string) string { return filepath.Join(t.dir, filepath.FromSlash(name)) }

// same says whether the file at name, which look returned, holds value.
func (t *tree) same(name string, fi fs.FileInfo, value []byte) (bool, error) {
	if fi == nil || fi.Size() != int64(len(value)) {
		return false, nil
	}
	f, err := t.root.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	piece := make([]byte, min(len(value)+1, 32<<10))
	for {
		n, err := f.Read(piece)
		if n > len(value) || !bytes.Equal(piece[:n], value[:n]) {
			return false, nil
		}
		value = value[n:]
		switch {
		case errors.Is(err, io.EOF):
			return len(value) == 0, nil
		case err != nil:
			return false, err
		}
	}
}

// endsAll says whether err is none of one file alone: to try the next is of no use.
func endsAll(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EDQUOT, syscall.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
