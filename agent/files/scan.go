package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"gus/agent/client"
)

// scan returns the names of the files to be pushed, in order, when it has seen that
// each can be a key and be read. What cannot be one is an error, before anything is written.
func (x *push) scan() (names []string, err error) {
	var wrong []error
	bad := func(name, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%s: "+format, append([]any{name}, args...)...))
	}
	err = fs.WalkDir(x.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case name == ".":
			return err
		case left(path.Base(name)):
			if !strings.HasPrefix(path.Base(name), ownPrefix) {
				x.Skipped = append(x.Skipped, name)
			}
			if d.IsDir() {
				return fs.SkipDir
			}
		case err != nil:
			bad(name, "%w", err)
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir():
		case d.Type()&fs.ModeSymlink != 0:
			bad(name, "it is a symbolic link, and none is followed: put a copy there")
		case !d.Type().IsRegular():
			bad(name, "it is no regular file: take it away")
		default:
			if err := x.checkFile(name); err != nil {
				bad(name, "%w", err)
			} else {
				names = append(names, name)
			}
		}
		return nil
	})
	if err == nil && len(wrong) > 0 {
		err = tooMany(wrong)
	}
	return names, err
}

// left says whether a file or a directory of that name is left out: this program's own, what editors
// leave beside a file, and what git keeps.
func left(base string) bool {
	return strings.HasPrefix(base, ownPrefix) || base == ".git" || strings.HasSuffix(base, "~") ||
		strings.HasSuffix(base, ".swp") || strings.HasSuffix(base, ".swo") || strings.HasPrefix(base, ".#") ||
		len(base) > 1 && strings.HasPrefix(base, "#") && strings.HasSuffix(base, "#")
}

// checkFile says why the file name cannot be pushed.
func (x *push) checkFile(name string) error {
	key := x.Prefix + name
	if err := checkKey(key); err != nil {
		return fmt.Errorf("%w: %w", client.ErrRefused, err)
	}
	if strings.HasPrefix(key, systemKeys) {
		return fmt.Errorf("%w: keys below %s are the system's", client.ErrRefused, systemKeys)
	}
	f, err := x.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err == nil && fi.Size() > client.MaxValue {
		err = client.TooLarge(fi.Size())
	}
	return err
}

// read returns what the file holds now.
func (x *push) read(name string) ([]byte, error) {
	f, err := x.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	value, err := io.ReadAll(io.LimitReader(f, client.MaxValue+1))
	if err == nil && len(value) > client.MaxValue {
		err = fmt.Errorf("%s: %w", name, client.TooLarge(int64(len(value))))
	}
	return value, err
}

// tooMany names the first few of what is wrong.
func tooMany(wrong []error) error {
	const most = 5
	n := len(wrong)
	err := errors.Join(wrong[:min(n, most)]...)
	if n > most {
		return fmt.Errorf("%w; and %d more: nothing was changed", err, n-most)
	}
	return fmt.Errorf("%w: nothing was changed", err)
}
