package membership

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// replaceFile writes b to path with mode 0600, durably and all or none, in
// place of what is there. One process at a time does it to one path.
func replaceFile(path string, b []byte) error {
	tmp := path + ".tmp" // one name, so that no crash leaves more than one behind
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = out.Write(b)
	err = errors.Join(err, out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(tmp))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes durable which files are in dir. Safe for concurrent use.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil && runtime.GOOS != "windows" {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
