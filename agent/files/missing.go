package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"time"
)

const (
	// quietAfter is for how long a directory's time has to stay before it proves that nothing has changed there since:
	// two changes may have the same one, of a second or two on some file systems. It is read once more then.
	quietAfter = 3 * time.Second
	// fullLook is how often directories are read whatever their times say: times can be set.
	fullLook = time.Minute
)

// place is a directory with files in place.
type place struct {
	files int         // that are in place, or were and are to be others
	seen  fs.FileInfo // as it was when it was first seen so; nil: not yet
	since time.Time   // when that was
	quiet bool        // it was read quietAfter after that, too
}

// markMissing marks what somebody has removed since it was put in place: a Check sees all files, or would
// fail for the lack of one until that one's key changes. It reads the directories that have changed, and no others.
func (j *job) markMissing() {
	now := time.Now()
	full := now.Sub(j.looked) > fullLook
	if full {
		j.looked = now
	}
	lacking := map[string]bool{}
	for dir, p := range j.places {
		if (p.changed(j.tree.path(dir), now) || full) && j.countIn(dir) != p.files {
			lacking[dir] = true
		}
	}
	if len(lacking) == 0 {
		return
	}
	for key, e := range j.known {
		if !e.placed || !lacking[path.Dir(e.name)] {
			continue
		}
		if _, err := os.Lstat(j.tree.path(e.name)); errors.Is(err, fs.ErrNotExist) {
			j.dirty[key] = struct{}{}
		}
	}
}

// changed says whether what is in the directory at path may have changed since it was read.
func (p *place) changed(path string, now time.Time) bool {
	fi, err := os.Lstat(path)
	switch {
	case err != nil:
		p.seen = nil
	case p.seen == nil || !os.SameFile(fi, p.seen) || !fi.ModTime().Equal(p.seen.ModTime()):
		p.seen, p.since, p.quiet = fi, now, false
	case p.quiet || now.Sub(p.since) < quietAfter:
		return false
	default:
		p.quiet = true
	}
	return true
}

// countIn returns how many files of those that are in place, or were, are in dir.
func (j *job) countIn(dir string) (n int) {
	f, err := os.Open(j.tree.path(dir))
	if err != nil {
		return -1
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if e := j.known[j.index.keys[j.index.id(path.Join(dir, name))]]; e != nil && e.part != 0 {
				n++
			}
		}
		if err != nil {
			return n // at the end; or what could not be read is looked at one by one
		}
	}
}

// count notes that one more file is in place below name's directory, or one less.
func (j *job) count(name string, more int) {
	dir := path.Dir(name)
	p := j.places[dir]
	if p == nil {
		p = &place{}
		j.places[dir] = p
	}
	if p.files += more; p.files == 0 {
		delete(j.places, dir)
	}
}
