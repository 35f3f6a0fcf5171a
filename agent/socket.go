package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// maxSocketPath is what the kernel takes of a unix socket's path, in bytes.
const maxSocketPath = 107

// ErrSocketInUse: another agent answers at the socket.
var ErrSocketInUse = errors.New("another agent answers at the socket")

// listen binds the socket of the local API, for its owner alone. A socket file
// that a killed agent left behind is removed; one at which somebody answers,
// and anything that is not a socket, is left alone.
func listen(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the socket's path %s is %d bytes long and the system takes %d: name a shorter one by --socket", path, len(path), maxSocketPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make the socket: %w", err), l.Close())
	}
	return l, nil
}

func removeStale(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at the socket: %w", err)
	case st.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is not a socket: move it away, or name another by --socket", path)
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("%w %s: stop it first, or name another socket by --socket", ErrSocketInUse, path)
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove the socket of an agent that is gone: %w", err)
		}
		return nil
	}
	return fmt.Errorf("ask who listens at the socket %s: %w", path, err)
}
