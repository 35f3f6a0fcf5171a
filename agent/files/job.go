package files

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"gus/agent/client"
)

// errMoved: the directory was replaced or mounted over.
var errMoved = errors.New("the directory is another one")

// job is a Pull under way. One goroutine owns it.
type job struct {
	Pull
	c       *client.Client
	log     *slog.Logger
	tree    *tree
	journal *journal
	site    string

	watch    uint32 // the number of the one under way
	known    map[string]*entry
	index    *index
	deps     map[string]deps     // of templates, by key
	dirty    map[string]struct{} // keys to be compared and put in place
	problems map[string]string   // keys that are not as they should be, and why
	gone     map[string]bool     // names that no key stands for, as a deletion has said
	unsure   map[string]bool     // names that no key stands for that this site knows of
	sum      uint64              // of the entries in place
	inPlace  int
	places   map[string]*place // directories that have some of them
	looked   time.Time         // when all of those were read last

	synced, depsSynced bool // all is told that there was
	hold               hold
	more               bool            // a batch is not told to its end
	fresh              bool            // something is to be looked at that never was
	first, last        time.Time       // when the first and the last of that was told
	others             map[string]bool // directories within this one that are other jobs', and were told of
	owned, taken       bool            // the directory was this job's at some time; another job's, when it was asked for
	committed          bool            // files were compared and put in place, as far as they could be
	retry, execRetry   backoff
	status             status
}

// entry is a key that the watch has told of.
type entry struct {
	name    string         // empty: it cannot be a file
	version client.Version // the newest that watch has told
	watch   uint32         // the number of the last one that told of it
	placed  bool           // its file is as version says
	part    uint64         // of the sum, where it was in place at some time
}

// told is what a watch tells.
type told struct {
	client.Event
	deps bool // it is the watch for what templates read
	err  error
}

func newJob(p Pull, c *client.Client) *job {
	j := &job{Pull: p, c: c, log: p.Log, others: map[string]bool{},
		retry:     backoff{least: p.pace.again, most: p.pace.againMost},
		execRetry: backoff{least: p.pace.exec, most: p.pace.execMost},
	}
	j.status.State = State{Prefix: p.Prefix, Dir: p.Dir, Once: p.Once}
	j.forget()
	return j
}

// forget has all files compared anew.
func (j *job) forget() {
	j.known, j.index = map[string]*entry{}, newIndex(false)
	j.deps, j.dirty, j.problems = map[string]deps{}, map[string]struct{}{}, map[string]string{}
	j.gone, j.unsure = map[string]bool{}, map[string]bool{}
	j.sum, j.inPlace = 0, 0
	j.places, j.looked = map[string]*place{}, time.Time{}
}

func (j *job) close() {
	if j.tree != nil {
		j.journal.close()
		j.tree.close()
		j.tree, j.journal = nil, nil
	}
}

func (j *job) reopen() {
	j.close()
	j.forget()
}

// open opens the directory, unless it is open.
func (j *job) open() error {
	if j.tree != nil {
		return nil
	}
	t, err := openTree(j.Dir, j.DryRun)
	if err != nil {
		return err
	}
	if j.step != nil {
		t.step = j.step
	}
	if !j.DryRun {
		j.noteOthers(t.sweep())
	}
	jr, err := openJournal(t, j.owner(), j.DryRun)
	if err != nil {
		t.close()
		return err
	}
	if n := jr.forgotten; n > 0 {
		j.log.Warn("files that a job of another prefix has put in place are kept", "files", n, "of", ownerText(jr.was))
	}
	if t.root != nil {
		_, err = t.root.Lstat(strings.ToUpper(journalName))
		t.fold = err == nil
	}
	j.tree, j.journal, j.index, j.owned, j.taken = t, jr, newIndex(t.fold), true, false
	return nil
}

// session watches until the watch breaks, ctx ends, or all is done that Once asks for.
// synced says whether all keys were told.
func (j *job) session(ctx context.Context) (synced bool, err error) {
	if err := j.open(); err != nil {
		return false, fmt.Errorf("put files into %s: %w", j.Dir, err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan told, 256)
	if err := j.begin(ctx, &wg, events); err != nil {
		return false, err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if at, ok := j.due(); ok {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
		select {
		case e := <-events:
			if err := j.take(e); err != nil {
				return j.synced, err
			}
		case <-timer.C:
			if !j.hold.over() {
				return true, j.tooOld()
			}
			if err := j.commit(ctx); err != nil || j.Once || j.DryRun {
				return true, err
			}
		case <-ctx.Done():
			return j.synced, ctx.Err()
		}
	}
}

// begin starts the watches.
func (j *job) begin(ctx context.Context, wg *sync.WaitGroup, events chan<- told) error {
	j.watch++
	j.synced, j.depsSynced, j.more, j.fresh = false, !j.Template, false, true
	j.hold, j.status.hold = hold{depsWhole: !j.Template}, ""
	j.first, j.last = time.Time{}, time.Time{}
	watches := []client.Watching{{Prefix: j.Prefix, State: true}}
	if j.Template {
		ask, cancel := context.WithTimeout(ctx, j.Ask)
		defer cancel()
		s, err := j.c.Status(ask)
		if err != nil {
			return err
		}
		j.site = s.Site
		for key := range j.deps { // what they read may have changed meanwhile
			j.mark(key)
		}
		watches = append(watches, client.Watching{})
	}
	for i, watching := range watches {
		w, err := j.c.Watch(ctx, watching)
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer w.Close()
			for {
				e, err := w.Next()
				select {
				case events <- told{e, i > 0, err}:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		})
	}
	return nil
}

// take takes in what a watch tells.
func (j *job) take(e told) error {
	if e.err != nil {
		return e.err
	}
	if !e.deps { // the last of a batch may be a key that is no file
		j.more = e.More
	}
	if e.Type == client.EventSynced || e.Type == client.EventAlive {
		j.hear(e)
	}
	switch {
	case e.Type == client.EventSynced && e.deps:
		j.depsSynced = true
	case e.Type == client.EventSynced:
		j.synced = true
		j.missUntold()
	case e.Type == client.EventAlive && !e.deps:
		if !j.DryRun && j.tree.moved() {
			return errMoved
		}
		j.tell()
	case strings.HasPrefix(e.Key, systemKeys):
	case e.Key == "":
	case e.deps:
		j.touch(e.Key)
	case e.Type == client.EventSet:
		j.set(e.Key, e.Version)
	case e.Type == client.EventDelete:
		if old := j.known[e.Key]; old == nil || old.watch != j.watch || e.Version.Compare(old.version) >= 0 {
			j.drop(e.Key, j.gone)
		}
	}
	return nil
}

func (j *job) set(key string, version client.Version) {
	if !strings.HasPrefix(key, j.Prefix) {
		return
	}
	e := j.known[key]
	if e == nil {
		e = &entry{}
		j.known[key] = e
		name, err := j.fileName(key)
		if err != nil {
			j.problems[key] = err.Error()
			j.news()
		} else {
			e.name = name
			j.markAll(j.index.add(name, key))
		}
	}
	// What a watch tells first of a key is what there is, also where the site was put back meanwhile.
	first := e.watch != j.watch
	e.watch = j.watch
	if c := version.Compare(e.version); c < 0 && !first || c == 0 && e.placed || e.name == "" {
		return
	}
	e.version, e.placed = version, false
	delete(j.gone, e.name)
	delete(j.unsure, e.name)
	j.mark(key)
}

// drop forgets a key, and notes that its file may go.
func (j *job) drop(key string, to map[string]bool) {
	name, err := j.fileName(key)
	if err != nil {
		delete(j.known, key)
		delete(j.problems, key)
		j.news()
		return
	}
	if e := j.known[key]; e != nil {
		j.unplace(e)
		delete(j.known, key)
		j.markAll(j.index.remove(name, key))
	}
	delete(j.dirty, key)
	delete(j.problems, key)
	delete(j.deps, key)
	if j.Delete && !j.index.holds(name) {
		to[name] = true
		j.news()
	}
}

// missUntold drops keys that a watch has told before and this one has not, and
// notes files that no key stands for. That this site does not know a key is no proof that there is none.
func (j *job) missUntold() {
	for key, e := range j.known {
		if e.watch != j.watch {
			j.drop(key, j.unsure)
		}
	}
	if !j.Delete {
		return
	}
	for name := range j.journal.names {
		if !strings.HasSuffix(name, "/") && !j.index.holds(name) && !j.gone[name] {
			j.unsure[name] = true
		}
	}
}

// touch has templates that have read key rendered again.
func (j *job) touch(key string) {
	for template, d := range j.deps {
		if d.touches(key) {
			j.mark(template)
		}
	}
}

func (j *job) markAll(keys []string) {
	for _, key := range keys {
		j.mark(key)
	}
}

func (j *job) mark(key string) {
	j.dirty[key] = struct{}{}
	j.news()
}

func (j *job) news() {
	j.fresh, j.last = true, time.Now()
	if j.first.IsZero() {
		j.first = j.last
	}
}

// due says when there is something to do next.
func (j *job) due() (at time.Time, ok bool) {
	if !j.synced || !j.depsSynced || j.more {
		return at, false
	}
	if !j.hold.over() {
		return j.hold.until, (j.Once || j.DryRun) && !j.hold.until.IsZero()
	}
	earlier := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if j.fresh {
		at, ok = j.last.Add(j.pace.settle), true
		earlier(j.first.Add(j.pace.settleMost))
	}
	for _, b := range []*backoff{&j.retry, &j.execRetry} {
		if !b.at.IsZero() {
			earlier(b.at)
		}
	}
	return at, ok
}

// place notes that e is in place; what it was made of counts in the sum.
func (j *job) place(key string, e *entry, version client.Version, read string) {
	j.unplace(e)
	h := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", key, version, read))
	e.version, e.placed, e.part = version, true, binary.BigEndian.Uint64(h[:])|1
	j.sum += e.part
	j.inPlace++
	j.count(e.name, 1)
	delete(j.problems, key)
}

func (j *job) unplace(e *entry) {
	if e.part != 0 {
		j.sum -= e.part
		j.inPlace--
		j.count(e.name, -1)
	}
	e.placed, e.part = false, 0
}

// backoff says when to try again, each time later.
type backoff struct {
	least, most time.Duration
	at          time.Time // zero: not at all
	next        time.Duration
}

func (b *backoff) failed() {
	b.next = min(max(2*b.next, b.least), b.most)
	b.at = time.Now().Add(b.next)
}

func (b *backoff) over() { b.at, b.next = time.Time{}, 0 }
