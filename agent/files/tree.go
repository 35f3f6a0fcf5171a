package files

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
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
}

// openTree opens dir, and makes it where it is not there. A dry one changes
// nothing and may be opened beside a job that runs.
func openTree(dir string, dry bool) (*tree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &tree{dir: abs, unlock: func() {}}
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

// sweep removes what a crash left behind. Directories of other jobs are theirs.
func (t *tree) sweep() {
	_ = fs.WalkDir(t.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir // what cannot be read is nothing that a job wrote
		case err != nil:
			return nil
		case strings.HasPrefix(base, liftPrefix) && d.IsDir():
			_ = t.root.RemoveAll(name)
			return fs.SkipDir
		case d.IsDir() && name != ".":
			if _, err := t.root.Lstat(name + "/" + journalName); err == nil {
				return fs.SkipDir
			}
		case strings.HasPrefix(base, tempPrefix) && d.Type().IsRegular():
			_ = t.root.Remove(name)
		}
		return nil
	})
}

// look returns what is at name, nil where nothing is. What is neither a file nor
// nothing is an error, as is a way to it that does not lead through directories.
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
		case !fi.IsDir():
			return nil, fmt.Errorf("%s is in the way, where a directory is needed: remove it", t.path(dir))
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

// staged is a new file beside its place.
type staged struct {
	name, temp string
	old        fs.FileInfo // what it will replace; nil: nothing
	size       int
	made       []string // directories that were made for it
}

// stage writes value beside name, with the mode and the owner of old.
func (t *tree) stage(name string, old fs.FileInfo, value []byte) (s *staged, err error) {
	s = &staged{name: name, temp: path.Join(path.Dir(name), tempName(tempPrefix)), old: old, size: len(value)}
	defer func() {
		if err != nil {
			t.discard(s)
		}
	}()
	for dir := range parents(name) {
		switch err := t.root.Mkdir(dir, newDirMode); {
		case err == nil:
			s.made = append(s.made, dir)
			if err := t.root.Chmod(dir, newDirMode); err != nil { // whatever the umask
				return s, err
			}
		case !errors.Is(err, fs.ErrExist):
			return s, err
		}
	}
	f, err := t.root.OpenFile(s.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s, err
	}
	_, err = f.Write(value)
	if err == nil {
		err = dress(f, old)
	}
	return s, errors.Join(err, f.Close())
}

// manyFiles is from how many on a file system is synced as a whole first.
const manyFiles = 256

// settle makes what is staged durable, and returns what went wrong, by name.
func (t *tree) settle(stage map[string]*staged) map[string]error {
	if len(stage) >= manyFiles {
		if f, err := t.root.Open("."); err == nil {
			syncAll(f)
			f.Close()
		}
	}
	failed := map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	todo := make(chan *staged)
	for range min(workers, len(stage)) {
		wg.Go(func() {
			for s := range todo {
				if err := t.syncFile(s.temp); err != nil {
					mu.Lock()
					failed[s.name] = err
					mu.Unlock()
				}
			}
		})
	}
	for _, s := range stage {
		todo <- s
	}
	close(todo)
	wg.Wait()
	return failed
}

func (t *tree) syncFile(name string) error {
	f, err := t.root.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		f, err = t.root.Open(name)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// dress gives f the owner and the mode of old.
func dress(f *os.File, old fs.FileInfo) error {
	if old == nil {
		return f.Chmod(newFileMode)
	}
	if err := giveTo(f, old); err != nil {
		return err
	}
	return f.Chmod(old.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky))
}

// tempName returns prefix with something that is nowhere else.
func tempName(prefix string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return prefix + hex.EncodeToString(b[:])
}

// discard undoes a stage.
func (t *tree) discard(s *staged) {
	_ = t.root.Remove(s.temp) // what remains is swept at the next start
	for i := len(s.made) - 1; i >= 0; i-- {
		_ = t.root.Remove(s.made[i]) // not where another file is in it by now
	}
}

// place puts s where it belongs. A file that is mounted there by itself cannot be
// replaced: it is written in place.
func (t *tree) place(s *staged) error {
	err := t.rename(s.temp, s.name)
	if errors.Is(err, syscall.EBUSY) && s.old != nil {
		err = t.overwrite(s)
		_ = t.root.Remove(s.temp)
		return err
	}
	if err != nil {
		t.discard(s)
	}
	return err
}

// overwrite writes s into the file that is there. What is longer than that goes
// first: where the disk is full the file is as it was.
func (t *tree) overwrite(s *staged) (err error) {
	value, err := t.root.ReadFile(s.temp)
	if err != nil {
		return err
	}
	f, err := t.root.OpenFile(s.name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	old := min(s.old.Size(), int64(len(value)))
	if _, err := f.WriteAt(value[old:], old); err != nil {
		return errors.Join(err, f.Truncate(s.old.Size()))
	}
	if _, err := f.WriteAt(value[:old], 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(value))); err != nil {
		return err
	}
	return f.Sync()
}

// remove removes the file at name.
func (t *tree) remove(name string) error {
	fi, err := t.look(name)
	if err != nil || fi == nil {
		return err
	}
	return t.root.Remove(name)
}

// lift makes the directory that Check sees: all that is in the tree, with what is
// staged in place and without what is to go.
func (t *tree) lift(stage map[string]*staged, gone map[string]bool) (string, error) {
	top := tempName(liftPrefix)
	if err := t.root.Mkdir(top, newDirMode); err != nil {
		return "", err
	}
	err := fs.WalkDir(t.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case strings.HasPrefix(path.Base(name), ownPrefix) && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			return t.root.Mkdir(top+"/"+name, newDirMode)
		case strings.HasPrefix(path.Base(name), ownPrefix), stage[name] != nil, gone[name]:
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			to, err := t.root.Readlink(name)
			if err != nil {
				return err
			}
			return t.root.Symlink(to, top+"/"+name)
		case d.Type().IsRegular():
			return t.link(name, top+"/"+name)
		}
		return nil
	})
	for name, s := range stage {
		if err == nil {
			err = t.link(s.temp, top+"/"+name)
		}
	}
	if err != nil {
		_ = t.root.RemoveAll(top)
	}
	return top, err
}

// link makes newName the same file, or where that cannot be one with the same bytes.
func (t *tree) link(oldName, newName string) error {
	if t.root.Link(oldName, newName) == nil {
		return nil
	}
	from, err := t.root.Open(oldName)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := t.root.OpenFile(newName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, newFileMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
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
