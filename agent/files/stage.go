package files

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// staged is a new file beside its place.
type staged struct {
	name, temp string
	old        fs.FileInfo // what it will replace; nil: nothing
	size       int
	needs      []string // directories that are to be made for it, from the top
}

// stage writes value beside name, or in the nearest directory above that there is, with the mode and the owner
// of old. Directories are made when it is placed: a file may be in their way until then.
func (t *tree) stage(name string, old fs.FileInfo, value []byte) (s *staged, err error) {
	dir, needs, err := t.nearest(name)
	if err != nil {
		return nil, err
	}
	s = &staged{name: name, temp: path.Join(dir, tempName(tempPrefix)), old: old, size: len(value), needs: needs}
	defer func() {
		if err != nil {
			t.discard(s)
		}
	}()
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

// nearest returns the lowest directory on the way to name that there is, and those
// below it that there are not.
func (t *tree) nearest(name string) (dir string, needs []string, err error) {
	dir = "."
	for parent := range parents(name) {
		if len(needs) == 0 {
			fi, err := t.root.Lstat(parent)
			switch {
			case err == nil && fi.IsDir():
				dir = parent
				continue
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return "", nil, err
			}
		}
		needs = append(needs, parent)
	}
	return dir, needs, nil
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
}

// place puts s where it belongs, and returns the directories that it made. A file that is mounted there by
// itself cannot be replaced: it is written in place.
func (t *tree) place(s *staged) (made []string, err error) {
	defer func() {
		if err != nil {
			t.discard(s)
			for _, dir := range slices.Backward(made) {
				_ = t.rmdir(dir) // not where another file is in it by now
			}
		}
	}()
	for _, dir := range s.needs {
		t.step()
		switch err := t.root.Mkdir(dir, newDirMode); {
		case err == nil:
			made = append(made, dir)
			if err := t.root.Chmod(dir, newDirMode); err != nil { // whatever the umask
				return made, err
			}
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	t.step()
	err = t.rename(s.temp, s.name)
	if errors.Is(err, syscall.EBUSY) && s.old != nil {
		err = t.overwrite(s)
		_ = t.root.Remove(s.temp)
	}
	return made, err
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
		case d.IsDir() && (stage[name] != nil || t.isOther(name)):
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
		for _, dir := range s.needs {
			if err == nil {
				err = ignoreThere(t.root.Mkdir(top+"/"+dir, newDirMode))
			}
		}
		if err == nil {
			err = t.link(s.temp, top+"/"+name)
		}
	}
	if err != nil {
		_ = t.root.RemoveAll(top)
	}
	return top, err
}

func ignoreThere(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
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
