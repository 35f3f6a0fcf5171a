package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// fileStall is how long a disk may take for a piece of a backup, syncStall for syncing all of it, which
	// may be gigabytes on a slow one.
	fileStall = time.Minute
	syncStall = 10 * time.Minute
)

// backupFile is what of a file a backup is written by.
type backupFile interface {
	io.Writer
	Name() string
	Sync() error
	Close() error
}

// createFile makes a file for a backup beside the one at path.
func createFile(dir, pattern string) (backupFile, error) { return os.CreateTemp(dir, pattern) }

// patientFile writes to a file whose disk may stall for a while, and not for ever: while a backup is written
// the database cannot let go of anything. What the disk hangs on nobody can end. It is left to itself, and Stuck says until when.
type patientFile struct {
	backupFile
	ctx   context.Context // ends the waiting, too
	path  string          // what people know the file by
	piece []byte          // being written: the caller's may change after an error
	stuck chan struct{}   // closed once what has not ended in time has; nil: there is nothing
}

func (p *patientFile) Write(b []byte) (int, error) {
	if p.stuck != nil {
		return 0, p.stalled(fileStall)
	}
	p.piece = append(p.piece[:0], b...)
	err := p.do(fileStall, func() error {
		_, err := p.backupFile.Write(p.piece)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p *patientFile) Sync() error { return p.do(syncStall, p.backupFile.Sync) }

// do waits for f, and for no longer than patience.
func (p *patientFile) do(patience time.Duration, f func() error) error {
	done, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		done <- f()
	}()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-p.ctx.Done():
		p.stuck = ended
		return p.ctx.Err()
	case <-t.C:
		p.stuck = ended
		return p.stalled(patience)
	}
}

func (p *patientFile) stalled(patience time.Duration) error {
	return fmt.Errorf("%s: its disk has not answered for %v: see whether it is still there", p.path, patience)
}
