package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gus/agent/client"
)

// workers is how many values are read and written at a time: it bounds what of
// them is in memory.
const workers = 8

// batch is what a commit changes.
type batch struct {
	stage   map[string]*staged  // by name
	done    map[string]*outcome // what was looked at and is no error, by key
	gone    []string            // names of files to be removed, in order
	lines   []string            // of the journal, once all is done
	changed int                 // files that were written
	removed int
}

// outcome is what came of looking at a key.
type outcome struct {
	key, name string
	version   client.Version
	deps      *deps // of a template
	staged    *staged
	change    *Change // nil: the file is as it should be
	err       error
}

// commit puts in place all that is not as it should be, as far as it can be. It returns an error
// where a session is of no use any more, and with Once and DryRun where anything is wrong.
func (j *job) commit(ctx context.Context) error {
	if !j.DryRun && j.tree.moved() {
		return errMoved
	}
	j.fresh, j.first, j.last = false, time.Time{}, time.Time{}
	j.retry.at = time.Time{}
	b := batch{stage: map[string]*staged{}, done: map[string]*outcome{}}
	j.markMissing()
	j.goners(ctx, &b)
	j.prepare(ctx, &b)
	if j.DryRun {
		j.rehearse(&b)
	} else {
		j.swap(ctx, &b)
		j.exec(ctx, b.changed+b.removed > 0)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	j.status.session = "" // it does answer
	j.committed = true
	if len(j.dirty)+len(j.unsure)+len(j.gone) > 0 || j.status.journal != "" {
		j.retry.failed()
	} else {
		j.retry.over()
	}
	j.tell()
	if j.Once || j.DryRun {
		return j.troubled()
	}
	return nil
}

// prepare looks at all dirty keys, and stages those whose files differ.
func (j *job) prepare(ctx context.Context, b *batch) {
	keys := slices.Sorted(maps.Keys(j.dirty))
	todo, outcomes := make(chan *outcome), make(chan *outcome)
	var full atomic.Pointer[error] // ends the writing of all
	var wg sync.WaitGroup
	for range min(workers, len(keys)) {
		wg.Go(func() {
			for o := range todo {
				j.look(ctx, o, &full)
				outcomes <- o
			}
		})
	}
	wg.Go(func() {
		defer close(todo)
		for _, key := range keys {
			e := j.known[key]
			if e == nil || e.name == "" {
				continue
			}
			if why := j.index.conflict(e.name, key); why != "" {
				outcomes <- &outcome{key: key, err: permanent(why)}
				continue
			}
			todo <- &outcome{key: key, name: e.name, version: e.version}
		}
	})
	go func() { // ends when the others have
		wg.Wait()
		close(outcomes)
	}()
	all := make([]*outcome, 0, min(len(keys), 1024))
	for o := range outcomes { // j is read by the goroutines until the last has ended
		all = append(all, o)
	}
	clear(j.dirty)
	for _, o := range all {
		j.sort(o, b)
	}
	for name, err := range j.tree.settle(b.stage) {
		s := b.stage[name]
		j.tree.discard(s)
		delete(b.stage, name)
		for key, o := range b.done {
			if o.staged == s {
				delete(b.done, key)
				j.fails(key, j.cannotWrite(name, err))
			}
		}
	}
}

// sort notes what came of looking at a key.
func (j *job) sort(o *outcome, b *batch) {
	if o.deps != nil {
		j.deps[o.key] = *o.deps
	}
	var p permanent
	switch {
	case o.err == nil:
		b.done[o.key] = o
		if o.staged != nil {
			b.stage[o.name] = o.staged
		}
	case errors.As(o.err, &p):
		j.problems[o.key] = o.err.Error()
	default:
		j.fails(o.key, o.err)
	}
}

// fails notes that key is to be tried again.
func (j *job) fails(key string, err error) {
	j.problems[key] = err.Error()
	j.dirty[key] = struct{}{}
}

// permanent is an error that lasts until some key changes.
type permanent string

func (p permanent) Error() string { return string(p) }

// look reads o's key, compares, and stages. It runs beside others.
func (j *job) look(ctx context.Context, o *outcome, full *atomic.Pointer[error]) {
	r, err := j.read(ctx, o.key, o.version)
	if err != nil {
		o.err = err
		return
	}
	o.version = r.Version
	value := r.Value
	if j.isTemplate(o.key) {
		var d deps
		value, d, err = j.render(ctx, o.key, string(value))
		if o.deps = &d; err != nil {
			o.err = err
			if ctx.Err() == nil && !errors.Is(err, client.ErrNotRunning) {
				o.err = permanent(err.Error())
			}
			return
		}
	}
	old, err := j.tree.look(o.name)
	same := false
	if err == nil {
		same, err = j.tree.same(o.name, old, value)
	}
	if err != nil || same {
		o.err = err
		return
	}
	o.change = &Change{Op: Modify, Key: o.key, File: j.tree.path(o.name), Size: len(value)}
	if old == nil {
		o.change.Op = Add
	}
	if j.DryRun {
		return
	}
	if err := full.Load(); err != nil {
		o.err = j.cannotWrite(o.name, *err)
		return
	}
	if o.staged, err = j.tree.stage(o.name, old, value); err != nil {
		o.staged, o.err = nil, j.cannotWrite(o.name, err)
		if endsAll(err) {
			full.CompareAndSwap(nil, &err)
		}
	}
}

// cannotWrite names the file, where the system would name the one beside it.
func (j *job) cannotWrite(name string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	} else if l, ok := errors.AsType[*os.LinkError](err); ok {
		err = l.Err
	}
	return fmt.Errorf("write %s: %w", j.tree.path(name), err)
}

// read returns what this site knows of key, which the watch has told of. For a
// moment that may be older.
func (j *job) read(ctx context.Context, key string, version client.Version) (r client.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.Ask)
	defer cancel()
	for range 5 {
		r, err = j.c.GetLocal(ctx, key)
		switch {
		case err == nil && r.Version.Compare(version) >= 0:
			return r, nil
		case err != nil && !errors.Is(err, client.ErrNotFound):
			return r, err
		}
		pause(ctx, 20*time.Millisecond)
	}
	return r, fmt.Errorf("this site does not know its version %s yet", version)
}

// goners finds the files to be removed. Of a key that this site does not know a
// quorum has to say that it is not there: a site may know little for a while.
func (j *job) goners(ctx context.Context, b *batch) {
	j.status.removal = ""
	if len(j.unsure) > 0 {
		if err := j.makeSure(ctx); err != nil && ctx.Err() == nil {
			j.status.removal = fmt.Sprintf("%d files without a key known here are kept until a quorum says that it is deleted: %v", len(j.unsure), err)
		}
	}
	for name := range j.gone {
		if j.journal.names[name] && !j.index.holds(name) {
			b.gone = append(b.gone, name)
		} else {
			delete(j.gone, name)
		}
	}
	slices.Sort(b.gone)
	var mine map[string]bool
	if j.Delete {
		mine = j.journal.names
	}
	j.tree.begin(b.gone, mine)
	j.leaveToOthers(b)
}

// makeSure asks a quorum for the keys there are.
func (j *job) makeSure(ctx context.Context) error {
	for e, err := range j.c.List(ctx, client.Listing{Prefix: j.Prefix, Timeout: j.Ask}) {
		if err != nil {
			return err
		}
		if name, err := j.fileName(e.Key); err == nil {
			delete(j.unsure, name) // the watch will tell of it
		}
	}
	maps.Copy(j.gone, j.unsure)
	clear(j.unsure)
	return nil
}

// rehearse tells what would be done.
func (j *job) rehearse(b *batch) {
	for _, key := range slices.Sorted(maps.Keys(b.done)) {
		if o := b.done[key]; o.change != nil {
			j.Change(*o.change)
		}
	}
	for _, name := range b.gone {
		j.Change(Change{Op: Remove, File: j.tree.path(name)})
	}
	clear(j.gone)
}

// swap puts what is staged in place, and removes what is gone.
func (j *job) swap(ctx context.Context, b *batch) {
	j.status.journal = ""
	err := j.journal.note(j.found(b))
	if err == nil {
		err = j.check(ctx, b)
	}
	owed := j.journal.owed
	if err == nil {
		err = j.journal.note(j.claims(b))
	}
	if err != nil {
		if ctx.Err() == nil && j.status.check == "" {
			j.status.journal = err.Error()
		}
		j.undo(b)
		return
	}
	dirs := j.placeAll(ctx, b)
	j.removeAll(b, dirs)
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := j.tree.sync(dir); err != nil {
			j.status.journal = err.Error()
		}
	}
	if j.journal.owed && !owed && b.changed+b.removed == 0 {
		b.lines = append(b.lines, ".")
	}
	if err := j.journal.note(b.lines); err != nil {
		j.status.journal = err.Error()
	}
	if b.changed+b.removed > 0 {
		j.status.Changed = time.Now().UTC()
		j.log.Info("files were changed", "changed", b.changed, "deleted", b.removed, "version", fmt.Sprintf("%016x", j.sum))
	}
}

// check has Check look at what would be, if there is one.
func (j *job) check(ctx context.Context, b *batch) error {
	j.status.check = ""
	if j.Check == "" || len(b.stage)+len(b.gone) == 0 {
		return nil
	}
	gone := map[string]bool{}
	for _, name := range b.gone {
		gone[name] = true
	}
	top, err := j.tree.lift(b.stage, gone)
	if err == nil {
		err = command{"check", j.Check, j.tree.path(top), append(j.env(), "GUS_STAGE="+j.tree.path(top)), j.Timeout, j.Output}.run(ctx)
		err = errors.Join(err, j.tree.root.RemoveAll(top))
	}
	if err != nil && ctx.Err() == nil {
		j.status.check = fmt.Sprintf("%d changed files were not put in place: %v", len(b.stage)+len(b.gone), err)
	}
	return err
}

func (j *job) env() []string { return []string{"GUS_DIR=" + j.Dir, "GUS_PREFIX=" + j.Prefix} }

// undo takes back what is staged, for another try.
func (j *job) undo(b *batch) {
	for _, s := range b.stage {
		j.tree.discard(s)
	}
	for key, o := range b.done {
		if o.staged != nil {
			j.dirty[key] = struct{}{}
			delete(j.problems, key)
		} else {
			j.place(key, j.known[key], o.version, o.read())
		}
	}
}

// read is a digest of what o's template has read.
func (o *outcome) read() string {
	if o.deps == nil {
		return ""
	}
	return o.deps.digest()
}

// found are the journal's lines for files that were there as they should be.
func (j *job) found(b *batch) (lines []string) {
	for _, o := range b.done {
		if o.staged == nil && !j.journal.names[o.name] {
			lines = append(lines, "+"+o.name)
		}
	}
	slices.Sort(lines)
	return lines
}

// claims are the journal's lines for what is about to be put in place.
func (j *job) claims(b *batch) (lines []string) {
	for name, s := range b.stage {
		for _, dir := range s.needs {
			lines = append(lines, "+"+dir+"/")
		}
		if !j.journal.names[name] {
			lines = append(lines, "+"+name)
		}
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if j.Exec != "" && !j.journal.owed && len(b.stage)+len(b.gone) > 0 {
		lines = append(lines, "!")
	}
	return lines
}

// placeAll puts in place what is staged, and returns the directories that changed.
func (j *job) placeAll(ctx context.Context, b *batch) map[string]bool {
	dirs := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(b.done)) {
		o := b.done[key]
		if s := o.staged; s != nil {
			if ctx.Err() != nil {
				j.tree.discard(s)
				j.dirty[key] = struct{}{}
				continue
			}
			if err := j.put(b, s, dirs); err != nil {
				j.fails(key, j.cannotWrite(o.name, err))
				continue
			}
			b.changed++
			j.Change(*o.change)
		}
		j.place(key, j.known[key], o.version, o.read())
	}
	return dirs
}

// exec runs Exec where it is owed, and it is time.
func (j *job) exec(ctx context.Context, changed bool) {
	if j.Exec == "" || !j.journal.owed || ctx.Err() != nil || !changed && time.Now().Before(j.execRetry.at) {
		return
	}
	err := command{"exec", j.Exec, j.Dir, j.env(), j.Timeout, j.Output}.run(ctx)
	if ctx.Err() != nil {
		return // it may not have ended: it is owed
	}
	if err == nil {
		err = j.journal.note([]string{"."})
	}
	if err != nil {
		j.status.exec = err.Error()
		j.status.ExecFailures++
		j.execRetry.failed()
		return
	}
	j.status.exec, j.status.ExecFailures = "", 0
	j.execRetry.over()
}

// sync makes what was renamed and removed in dir durable.
func (t *tree) sync(dir string) error {
	f, err := t.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncDir(f), f.Close())
}
