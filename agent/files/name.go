package files

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// ownPrefix begins the names of this package's own files. No key becomes one.
	ownPrefix = ".gus-"
	// templateSuffix is what a file's name loses that was rendered.
	templateSuffix = ".tmpl"
	// systemKeys are below this: they tell how jobs are, and are no files.
	systemKeys = "_gus/"
	// maxName is what file systems take for a name within a directory, in bytes.
	maxName = 255
	// maxKey is the limit of keys, in bytes.
	maxKey = 1024
)

// fileName returns the slash-separated name below the directory of the file that
// key becomes, or says why it cannot be one. key begins with p.Prefix.
func (p Pull) fileName(key string) (string, error) {
	name := strings.TrimPrefix(key, p.Prefix)
	if p.isTemplate(key) {
		name = strings.TrimSuffix(name, templateSuffix)
	}
	return name, checkName(name)
}

// isTemplate says whether key's value is rendered.
func (p Pull) isTemplate(key string) bool {
	return p.Template && strings.HasSuffix(key, templateSuffix)
}

// checkName says why name cannot be a file below a directory.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("leaves no name for a file")
	case strings.HasPrefix(name, "/"):
		return errors.New("would be an absolute path")
	case strings.ContainsRune(name, 0):
		return errors.New("has a NUL")
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return errors.New("has an empty name between two slashes, or after the last")
		case part == "." || part == "..":
			return fmt.Errorf("has %q as a name, which is a way and no file", part)
		case strings.HasPrefix(part, ownPrefix):
			return fmt.Errorf("has a name that begins with %s: those are gus's own files", ownPrefix)
		case len(part) > maxName:
			return fmt.Errorf("has a name of %d bytes: file systems take %d", len(part), maxName)
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return errors.New("is no name for a file on this system")
	}
	return nil
}

// checkKey says why key cannot be one: the agent would refuse it.
func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key) > maxKey:
		return fmt.Errorf("the key has %d bytes: the limit is %d", len(key), maxKey)
	case !utf8.ValidString(key):
		return errors.New("the name is not UTF-8")
	case strings.ContainsFunc(key, unicode.IsControl):
		return errors.New("the name has a control character")
	}
	return nil
}

// checkPrefix says why prefix cannot be that of files.
func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return nil
	case !strings.HasSuffix(prefix, "/"):
		return fmt.Errorf("the prefix %q has to end with a slash, as in %q: the keys below it are the files", prefix, prefix+"/")
	case strings.HasPrefix(prefix, systemKeys):
		return fmt.Errorf("the prefix %q: the system's keys, below %s, are no files", prefix, systemKeys)
	}
	if err := checkKey(prefix); err != nil {
		return fmt.Errorf("the prefix %q: %w", prefix, err)
	}
	return nil
}
