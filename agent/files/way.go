package files

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// put puts s in place, when what is in its way and is to go anyway has gone: a file where it needs a
// directory, or a directory where it is to be. dirs gets the directories that changed.
func (j *job) put(b *batch, s *staged, dirs map[string]bool) error {
	if err := j.makeWay(b, s, dirs); err != nil {
		j.tree.discard(s)
		return err
	}
	made, err := j.tree.place(s)
	if err != nil {
		return err
	}
	for _, name := range append(made, s.name) {
		dirs[path.Dir(name)] = true
	}
	return nil
}

func (j *job) makeWay(b *batch, s *staged, dirs map[string]bool) error {
	for _, dir := range s.needs {
		if _, is := slices.BinarySearch(b.gone, dir); is && j.gone[dir] {
			if err := j.remove(b, dir, dirs); err != nil {
				return err
			}
		}
	}
	if s.old != nil {
		return nil
	}
	below := s.name + "/"
	for i, _ := slices.BinarySearch(b.gone, below); i < len(b.gone) && strings.HasPrefix(b.gone[i], below); i++ {
		if err := j.remove(b, b.gone[i], dirs); err != nil {
			return err
		}
	}
	return j.prune(b, s.name, dirs)
}

// removeAll removes what is gone and is still there.
func (j *job) removeAll(b *batch, dirs map[string]bool) {
	for _, name := range b.gone {
		if !j.gone[name] {
			continue
		}
		if err := j.remove(b, name, dirs); err != nil {
			j.status.removal = "remove the file of a deleted key: " + err.Error()
		}
	}
}

// remove removes a file, and directories that this job made and that are empty then.
func (j *job) remove(b *batch, name string, dirs map[string]bool) error {
	if err := j.tree.remove(name); err != nil {
		return err
	}
	b.removed++
	delete(j.gone, name)
	b.lines = append(b.lines, "-"+name)
	j.Change(Change{Op: Remove, File: j.tree.path(name)})
	dir := path.Dir(name)
	for ; j.journal.names[dir+"/"] && j.tree.rmdir(dir) == nil; dir = path.Dir(dir) {
		b.lines = append(b.lines, "-"+dir+"/")
		delete(dirs, dir)
	}
	dirs[dir] = true
	return nil
}

// prune removes the directory at name, if there is one, with those below it, where all are this job's and empty.
func (j *job) prune(b *batch, name string, dirs map[string]bool) error {
	if fi, err := j.tree.root.Lstat(name); err != nil || !fi.IsDir() || !j.tree.emptied(name) {
		return ignoreAbsent(err)
	}
	entries, err := fs.ReadDir(j.tree.root.FS(), name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := j.prune(b, name+"/"+e.Name(), dirs); err != nil {
			return err
		}
	}
	if err := j.tree.rmdir(name); err != nil {
		return err
	}
	b.lines = append(b.lines, "-"+name+"/")
	delete(dirs, name)
	return nil
}

// emptied says whether the directory at name may go, and nothing is in it once what is leaving has gone.
func (t *tree) emptied(name string) bool {
	if !t.mine[name+"/"] {
		return false
	}
	entries, err := fs.ReadDir(t.root.FS(), name)
	if err != nil {
		return false
	}
	for _, e := range entries {
		switch below := name + "/" + e.Name(); {
		case e.IsDir() && t.emptied(below):
		case e.Type().IsRegular() && t.leaves(below):
		default:
			return false
		}
	}
	return true
}

// remove removes the file at name. Where a directory is by now, or something else on the way to it, there is
// none: a crash may have come between what took its place and the journal's line.
func (t *tree) remove(name string) error {
	for dir := range parents(name) {
		switch fi, err := t.root.Lstat(dir); {
		case err != nil:
			return ignoreAbsent(err)
		case fi.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a symbolic link, and none is followed: put a directory there", t.path(dir))
		case !fi.IsDir():
			return nil
		}
	}
	switch fi, err := t.root.Lstat(name); {
	case err != nil:
		return ignoreAbsent(err)
	case fi.IsDir():
		return nil
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is in the way and no regular file: remove it", t.path(name))
	}
	t.step()
	return t.root.Remove(name)
}

// rmdir removes the directory at name, if it is empty. Where a file is by now there is none.
func (t *tree) rmdir(name string) error {
	switch fi, err := t.root.Lstat(name); {
	case err != nil:
		return ignoreAbsent(err)
	case !fi.IsDir():
		return nil
	}
	t.step()
	return t.root.Remove(name)
}

// ignoreAbsent is nil for what is not there, nor a directory that it would be in.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}
