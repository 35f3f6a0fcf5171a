package cli

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// dirsum prints the digest of the directory that it runs in: what a job's command says of
// its files.
func dirsum() {
	sum, err := digest(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "dirsum:", err)
		os.Exit(1)
	}
	fmt.Println(sum)
}

// digest is a sum over the names and bytes of all files below dir but gus's own.
func digest(dir string) (string, error) {
	h := sha256.New()
	err := walkFiles(dir, func(name string) error {
		b, err := os.ReadFile(filepath.Join(dir, name))
		fmt.Fprintf(h, "%q %d %x\n", name, len(b), sha256.Sum256(b))
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// walkFiles calls f with the names below dir of all files but gus's own, in order.
func walkFiles(dir string, f func(name string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(d.Name(), ".gus-") && d.IsDir():
			return filepath.SkipDir
		case strings.HasPrefix(d.Name(), ".gus-"), d.IsDir():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return f(name)
	})
}
