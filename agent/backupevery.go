package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"gus/agent/client"
	"gus/snapshot"
)

// DefaultBackupKeep is how many of its own backups an agent keeps unless it is told otherwise.
const DefaultBackupKeep = 7

// BackupPlan says where an agent saves backups by itself. The zero value: nowhere.
type BackupPlan struct {
	Every time.Duration // at least a minute; 0: never
	Dir   string        // made if need be, but not what it is in, which may be a disk that is not mounted
	Keep  int           // how many of its own files; 0: DefaultBackupKeep
}

// Validate says what is wrong with p, if anything.
func (p BackupPlan) Validate() error {
	switch {
	case p.Every == 0 && p.Dir == "":
		return nil
	case p.Every == 0:
		return fmt.Errorf("backups are to be saved in %s, and not how often: add --backup-every, as in --backup-every 24h", p.Dir)
	case p.Dir == "":
		return errors.New("backups are to be saved, and not where: add --backup-dir DIR")
	case p.Every < time.Minute:
		return fmt.Errorf("a backup every %v: a minute is the least", p.Every)
	case p.Keep < 0:
		return fmt.Errorf("%d backups are to be kept: 1 is the least", p.Keep)
	}
	return nil
}

// backupSchedule saves backups by a plan. It deletes nothing but older ones of its own, and those
// only after a newer one was read back. What fails is told in status, tried again, and harms nothing else.
type backupSchedule struct {
	plan    BackupPlan
	store   *snapshot.Store
	site    string
	version string
	log     *slog.Logger

	create func(dir, pattern string) (backupFile, error) // as in Saving
	hangs  <-chan struct{}                               // closed once what a disk has not answered has ended; nil: nothing

	mu    sync.Mutex
	state client.BackupSchedule
}

func newBackupSchedule(n *node) *backupSchedule {
	p := n.cfg.Backups
	if p.Keep == 0 {
		p.Keep = DefaultBackupKeep
	}
	return &backupSchedule{
		plan: p, store: n.store, site: n.id.Name, version: n.cfg.Version, log: n.log,
		state: client.BackupSchedule{Dir: p.Dir, Every: client.Duration(p.Every), Keep: p.Keep},
	}
}

// status is nil where there is no plan.
func (b *backupSchedule) status() *client.BackupSchedule {
	if b.plan.Every == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	return &s
}

// run saves backups until ctx ends: the first one when the newest that is there is old
// enough by the clock, and no later than one period from now. After that no clock counts.
func (b *backupSchedule) run(ctx context.Context) error {
	if b.plan.Every == 0 {
		<-ctx.Done()
		return nil
	}
	wait := b.firstWait(time.Now())
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		wait = b.plan.Every
		if !b.attempt(ctx) {
			wait = min(wait, max(time.Minute, wait/10), time.Hour)
		}
	}
}

func (b *backupSchedule) firstWait(now time.Time) time.Duration {
	own, err := b.own()
	if err != nil || len(own) == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Last, b.state.File, b.state.Kept = own[0].Time.UTC(), own[0].path, len(own)
	return min(max(own[0].Time.Add(b.plan.Every).Sub(now), 0), b.plan.Every)
}

// attempt saves a backup, and says whether that went well.
func (b *backupSchedule) attempt(ctx context.Context) bool {
	path, err := b.save(ctx)
	if ctx.Err() != nil {
		return false
	}
	kept, perr := 0, error(nil)
	if err == nil {
		kept, perr = b.prune(path)
		err = perr
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if path != "" {
		b.state.Last, b.state.File = time.Now().UTC(), path
	}
	if err == nil {
		b.state.Kept = kept
		if b.state.Error != "" {
			b.log.Info("backups are saved again", "file", path, "failed_since", b.state.Since)
		}
		b.state.Error, b.state.Since = "", time.Time{}
		return true
	}
	if b.state.Error == "" {
		b.state.Since = time.Now().UTC()
		b.log.Warn("a backup failed and is tried again", "dir", b.plan.Dir, "err", err)
	}
	b.state.Error = err.Error()
	return false
}

// save saves a backup and returns where it is. Where nothing was saved in the database since the newest
// one, that is read again in its place: copies of the same would push out what is older.
func (b *backupSchedule) save(ctx context.Context) (string, error) {
	if b.stuck() {
		return "", fmt.Errorf("%s: the disk still hangs on an earlier backup: see whether it is still there", b.plan.Dir)
	}
	if err := os.Mkdir(b.plan.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the directory for backups: %w", err)
	}
	own, err := b.own()
	if err != nil {
		return "", err
	}
	if len(own) > 0 && own[0].Database == b.store.Database() && own[0].Seq == b.store.Last() {
		if _, err := snapshot.VerifyBackup(own[0].path, nil); err == nil {
			return own[0].path, nil
		}
	}
	if err := b.tidy(); err != nil {
		return "", err
	}
	path := b.freeName(time.Now())
	b.mu.Lock()
	saving := Saving{File: path, create: b.create, stuck: func(until <-chan struct{}) { b.hangs = until }}
	b.mu.Unlock()
	made, err := saving.keep(ctx, func(w io.Writer) error {
		_, err := b.store.Backup(&stoppableWriter{w, ctx}, snapshot.Origin{Site: b.site, Program: b.version})
		return err
	})
	if err != nil {
		return "", err
	}
	b.log.Info("saved a backup", "file", path, "keys", made.Keys, "bytes", made.Size, "epoch", made.Epoch)
	return path, nil
}

// stuck says whether an earlier backup still hangs on its disk: there is one such at most.
func (b *backupSchedule) stuck() bool {
	if b.hangs == nil {
		return false
	}
	select {
	case <-b.hangs:
		b.hangs = nil
		return false
	default:
		return true
	}
}

// stoppableWriter writes until ctx ends.
type stoppableWriter struct {
	io.Writer
	ctx context.Context
}

func (s *stoppableWriter) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.Writer.Write(p)
}

// freeName is SITE-20261130T120000Z.backup, or one like it that is free.
func (b *backupSchedule) freeName(now time.Time) string {
	base := filepath.Join(b.plan.Dir, b.site+"-"+now.UTC().Format("20060102T150405Z"))
	path := base + ".backup"
	for i := 2; exists(path); i++ {
		path = fmt.Sprintf("%s-%d.backup", base, i)
	}
	return path
}

var backupName = regexp.MustCompile(`^-[0-9]{8}T[0-9]{6}Z(-[0-9]+)?\.backup$`)

// ownBackup is a file that this site's agent has made.
type ownBackup struct {
	path string
	snapshot.Summary
}

// own returns the backups that this site's agents have made by a plan, the newest first: they have
// its names and say that they are of the site and its cluster. Of those of its database the number of the save says
// which is newer, and not the clock, which may have jumped.
func (b *backupSchedule) own() ([]ownBackup, error) {
	entries, err := os.ReadDir(b.plan.Dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("list backups: %w", err)
	}
	var own []ownBackup
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), b.site)
		if !ok || !e.Type().IsRegular() || !backupName.MatchString(rest) {
			continue
		}
		path := filepath.Join(b.plan.Dir, e.Name())
		s, err := snapshot.GlanceBackup(path)
		if err == nil && s.Site == b.site && s.Cluster == b.store.Cluster() {
			own = append(own, ownBackup{path, s})
		}
	}
	here := b.store.Database()
	slices.SortStableFunc(own, func(x, y ownBackup) int {
		switch {
		case (x.Database == here) != (y.Database == here):
			if x.Database == here {
				return -1
			}
			return 1
		case x.Database == here && x.Seq != y.Seq:
			if x.Seq > y.Seq {
				return -1
			}
			return 1
		}
		return y.Time.Compare(x.Time)
	})
	return own, nil
}

// tidy removes what a backup of this site's that was cut off has left.
func (b *backupSchedule) tidy() error {
	left, err := filepath.Glob(filepath.Join(escapeGlob(b.plan.Dir), "."+b.site+"-*T*Z*.backup.*.tmp"))
	if err != nil {
		return fmt.Errorf("look for what an earlier backup left: %w", err)
	}
	for _, path := range left {
		if err := os.Remove(path); ignoreAbsent(err) != nil {
			return fmt.Errorf("remove what an earlier backup left: %w", err)
		}
	}
	return nil
}

// escapeGlob makes a pattern of a path that stands for it alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// prune removes the oldest of the site's own backups beyond those that are kept, and
// never the file at newest. It returns how many there are.
func (b *backupSchedule) prune(newest string) (int, error) {
	own, err := b.own()
	if err != nil {
		return 0, err
	}
	kept := 1
	for _, o := range own {
		if o.path == newest {
			continue
		}
		if kept < b.plan.Keep {
			kept++
			continue
		}
		if err := os.Remove(o.path); ignoreAbsent(err) != nil {
			return kept, fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return kept, nil
}
