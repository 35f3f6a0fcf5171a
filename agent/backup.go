package agent

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gus/agent/client"
	"gus/membership"
	"gus/snapshot"
)

const (
	snapshotPath = "/v1/snapshot"
	// maxBackups is how many may be made at once: while one is, the database's log grows.
	maxBackups = 2
	// backupStall is how long a client may leave a piece of a backup unread.
	backupStall = 30 * time.Second
)

// Backup says what a backup is.
type Backup struct {
	File      string    `json:"file,omitempty"`
	Cluster   string    `json:"cluster"`
	Site      string    `json:"site"`
	Epoch     uint64    `json:"epoch"` // the newest complete one in it
	Time      time.Time `json:"time"`  // when it was begun, by the site's clock; UTC
	Keys      int64     `json:"keys"`
	Deleted   int64     `json:"deleted"`   // deletions that are remembered
	Unsettled int64     `json:"unsettled"` // of both: the site did not know whether a quorum has them
	Size      int64     `json:"size"`      // of the file, in bytes
	Digest    string    `json:"digest"`    // SHA-256, of all but the trailer
	Program   string    `json:"program"`   // the version that made it
}

func backupOf(file string, s snapshot.Summary) Backup {
	return Backup{
		File: file, Cluster: s.Cluster, Site: s.Site, Epoch: s.Epoch, Time: s.Time.UTC(), Keys: s.Keys,
		Deleted: s.Deleted, Unsettled: s.Unsettled, Size: s.Size, Digest: hex.EncodeToString(s.Digest[:]), Program: s.Program,
	}
}

// VerifyBackup reads the backup in the file at path to its end, and says what it has, or in
// one line what is wrong with it. progress, if it is not nil, is told how many keys were read.
func VerifyBackup(path string, progress func(keys int)) (Backup, error) {
	s, err := snapshot.VerifyBackup(path, progress)
	if err != nil {
		return Backup{}, err
	}
	return backupOf(path, s), nil
}

// BackupKeys calls each with each key in the backup at path that was not deleted, in order,
// and its value. It returns an error of each, or what is wrong with the backup: only once it returns nil
// was the backup good.
func BackupKeys(path string, each func(key string, value []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open a backup: %w", err)
	}
	defer f.Close()
	r, err := snapshot.ReadBackup(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for e, err := range r.Entries() {
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if e.Deleted {
			continue
		}
		if err := each(e.Key, e.Value); err != nil {
			return err
		}
	}
	return nil
}

// FoundBackup is a file that seems to be a backup.
type FoundBackup struct {
	Backup
	Error string `json:"error,omitempty"` // it is not whole, or cannot be read
}

// ListBackups returns the backups in dir, the oldest first: what their two ends say. Files that are
// something else are left out.
func ListBackups(dir string) ([]FoundBackup, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	var all []FoundBackup
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		s, err := snapshot.GlanceBackup(path)
		switch {
		case errors.Is(err, snapshot.ErrNoBackup):
		case err != nil:
			all = append(all, FoundBackup{Backup{File: path}, err.Error()})
		default:
			all = append(all, FoundBackup{Backup: backupOf(path, s)})
		}
	}
	slices.SortStableFunc(all, func(a, b FoundBackup) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// Saving says where a backup goes.
type Saving struct {
	File string
	// Force replaces the file that is there, once the new one is verified.
	Force bool
	// Progress, if it is not nil, is told how many keys were written, and then read back.
	Progress func(step string, keys int)

	create func(dir, pattern string) (backupFile, error) // nil: createFile
	stuck  func(until <-chan struct{})                   // told of what hangs on the disk; nil: nobody is
}

// check refuses a file that is there.
func (s Saving) check() error {
	info, err := os.Lstat(s.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the file: %w", err)
	case info.IsDir():
		return fmt.Errorf("%w: %s is a directory: name a file", client.ErrRefused, s.File)
	case !s.Force:
		return fmt.Errorf("%w: %s is there: name another file, or replace it with --force", client.ErrRefused, s.File)
	}
	return nil
}

// keep has fill write a backup beside the file, reads it back, and gives it the
// file's name: after an error nothing has changed. Where the disk hangs what was written beside it stays there.
func (s Saving) keep(ctx context.Context, fill func(io.Writer) error) (b Backup, err error) {
	if err := s.check(); err != nil {
		return Backup{}, err
	}
	if s.create == nil {
		s.create = createFile
	}
	dir := filepath.Dir(s.File)
	f, err := s.create(dir, "."+filepath.Base(s.File)+".*.tmp")
	if err != nil {
		return Backup{}, fmt.Errorf("save a backup: %w", err)
	}
	p := &patientFile{backupFile: f, ctx: ctx, path: s.File}
	defer func() {
		if err != nil && p.stuck == nil {
			err = errors.Join(err, ignoreAbsent(os.Remove(f.Name())))
		}
	}()
	if err := s.fill(p, fill); err != nil {
		return Backup{}, fmt.Errorf("save a backup: %w", err)
	}
	sum, err := snapshot.VerifyBackup(f.Name(), s.step("verified"))
	if err != nil {
		return Backup{}, fmt.Errorf("save a backup: what was written reads back otherwise: %w", err)
	}
	if err := s.check(); err != nil { // it took a while
		return Backup{}, err
	}
	if err := os.Rename(f.Name(), s.File); err != nil {
		return Backup{}, fmt.Errorf("save a backup: %w", err)
	}
	return backupOf(s.File, sum), membership.SyncDir(dir)
}

// fill has a file written, synced and closed. One that hangs is closed by whatever hangs there.
func (s Saving) fill(p *patientFile, fill func(io.Writer) error) error {
	out := bufio.NewWriterSize(p, 256<<10)
	err := fill(out)
	if err == nil {
		err = cmp.Or(out.Flush(), p.Sync())
	}
	if until := p.stuck; until != nil {
		go func() {
			<-until
			_ = p.Close() // the error was told
		}()
		if s.stuck != nil {
			s.stuck(until)
		}
		return err
	}
	return errors.Join(err, p.Close())
}

// step returns what tells Progress of a step.
func (s Saving) step(name string) func(int) {
	if s.Progress == nil {
		return nil
	}
	return func(keys int) { s.Progress(name, keys) }
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// SaveRunning saves a backup of what the agent's site holds, and verifies it.
func SaveRunning(ctx context.Context, cl *client.Client, s Saving) (Backup, error) {
	return s.keep(ctx, func(w io.Writer) error {
		in, err := cl.Backup(ctx)
		if err != nil {
			return err
		}
		defer in.Close()
		out := &failingWriter{w: w}
		r, err := snapshot.ReadBackup(io.TeeReader(in, out))
		if err != nil {
			return cmp.Or(out.err, err)
		}
		n, progress := 0, s.step("saved")
		for _, err := range r.Entries() {
			if err != nil {
				return cmp.Or(out.err, err)
			}
			if n++; progress != nil {
				progress(n)
			}
		}
		return nil
	})
}

// failingWriter keeps the error of w, which is none of what is read and copied there.
type failingWriter struct {
	w   io.Writer
	err error
}

func (f *failingWriter) Write(p []byte) (n int, err error) {
	n, f.err = f.w.Write(p)
	return n, f.err
}

// SaveStopped saves a backup of what the stopped site with the data directory data
// holds, and verifies it. It changes nothing there, and no agent can start there meanwhile.
func SaveStopped(data string, s Saving, program string) (b Backup, err error) {
	id, _, err := identify(data)
	if err != nil {
		return Backup{}, err
	}
	d, err := snapshot.OpenDormant(data)
	if err != nil {
		return Backup{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return s.keep(context.Background(), func(w io.Writer) error {
		_, err := d.Backup(w, snapshot.Origin{Site: id.Name, Program: program})
		return err
	})
}

// serveBackup streams a backup. What goes wrong once it has begun, the stream itself says.
func (n *node) serveBackup(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery != "" {
		return fmt.Errorf("%w: GET %s has no parameters", client.ErrRefused, r.URL.Path)
	}
	select {
	case n.backups <- struct{}{}:
		defer func() { <-n.backups }()
	default:
		return fmt.Errorf("%w: %d backups are being made, which is the limit: wait for one", client.ErrNotSent, maxBackups)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	out := &patientWriter{w: w, c: http.NewResponseController(w), ctx: r.Context()}
	defer out.c.SetWriteDeadline(time.Time{}) // the connection may serve again
	sum, err := n.store.Backup(out, snapshot.Origin{Site: n.id.Name, Program: n.cfg.Version})
	switch {
	case err == nil:
		n.log.Info("sent a backup", "keys", sum.Keys, "bytes", sum.Size, "epoch", sum.Epoch)
	case out.err != nil:
		n.log.Info("a backup was given up: its client reads no more", "err", out.err)
	default:
		n.log.Warn("a backup could not be made", "err", err)
	}
	return nil
}

// patientWriter writes to a client that may stall for a while, and not for ever: what is
// sent is one state of the database, which cannot let go of anything meanwhile.
type patientWriter struct {
	w   io.Writer
	c   *http.ResponseController
	ctx context.Context
	err error // of the client
}

func (p *patientWriter) Write(b []byte) (int, error) {
	if p.err = p.ctx.Err(); p.err != nil {
		return 0, p.err
	}
	_ = p.c.SetWriteDeadline(time.Now().Add(backupStall)) // no deadline, as in a test's recorder: no limit
	n, err := p.w.Write(b)
	p.err = err
	return n, err
}
