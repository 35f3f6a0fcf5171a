package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gus/agent/client"
	"gus/agent/files"
)

// checkSyncs says what is wrong with jobs that one agent is to run, whose data
// directory is data.
func checkSyncs(data string, pulls []files.Pull) error {
	dirs := []string{absolute(data)}
	of := func(i int) string {
		if i == 0 {
			return "the agent's data directory"
		}
		return "that of another sync"
	}
	for _, p := range pulls {
		if err := p.Validate(); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		dir := absolute(p.Dir)
		for i, other := range dirs {
			switch {
			case dir == other:
				return fmt.Errorf("sync: the directory %s is %s: each needs its own", p.Dir, of(i))
			case within(dir, other), within(other, dir):
				return fmt.Errorf("sync: of the directories %s and %s, which is %s, one is within the other", p.Dir, other, of(i))
			}
		}
		dirs = append(dirs, dir)
	}
	return nil
}

// absolute returns dir as one name for each directory, as far as it exists.
func absolute(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return filepath.Clean(dir)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real
	}
	return abs
}

func within(dir, other string) bool {
	return strings.HasPrefix(dir, strings.TrimSuffix(other, string(filepath.Separator))+string(filepath.Separator))
}

// syncs are the jobs that keep files as keys are and run in the agent. They ask it
// as any client does.
type syncs struct {
	socket  string
	status  *syncStatus
	reloads <-chan []files.Pull // gets what set is given; nil: nothing
	log     *slog.Logger

	mu     sync.Mutex
	wanted []files.Pull
	news   chan struct{}
}

// syncJob is a job that runs.
type syncJob struct {
	pull files.Pull
	stop context.CancelFunc
	done chan struct{}
}

func newSyncs(socket string, status *syncStatus, log *slog.Logger) *syncs {
	return &syncs{socket: socket, status: status, log: log, news: make(chan struct{}, 1)}
}

// set says which jobs are to run, and returns at once: those that are gone are stopped and
// forgotten, new ones started, the others not disturbed. The caller has checked them.
func (s *syncs) set(pulls []files.Pull) {
	s.mu.Lock()
	s.wanted = pulls
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// run runs the jobs until ctx ends and all have ended.
func (s *syncs) run(ctx context.Context) error {
	c := client.New(s.socket)
	defer c.Close()
	jobs := map[string]*syncJob{}
	defer func() {
		for _, j := range jobs {
			<-j.done // ctx has ended
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case pulls := <-s.reloads:
			s.set(pulls)
		case <-s.news:
			s.apply(ctx, c, jobs)
		}
	}
}

// apply makes jobs those that are wanted. What is gone has ended before anything
// new begins, since it may have the same directory.
func (s *syncs) apply(ctx context.Context, c *client.Client, jobs map[string]*syncJob) {
	s.mu.Lock()
	wanted := map[string]files.Pull{}
	for _, p := range s.wanted {
		wanted[syncName(p)] = p
	}
	s.mu.Unlock()
	ended := map[string]*syncJob{}
	for name, j := range jobs {
		p, ok := wanted[name]
		if ok && sameJob(p, j.pull) {
			delete(wanted, name)
			continue
		}
		j.stop()
		ended[name] = j
		delete(jobs, name)
	}
	for name, j := range ended {
		if <-j.done; wanted[name].Dir == "" { // it has said its last word
			s.status.forget(name)
		}
	}
	for name, p := range wanted {
		jobs[name] = s.start(ctx, c, p)
	}
}

func (s *syncs) start(ctx context.Context, c *client.Client, p files.Pull) *syncJob {
	ctx, stop := context.WithCancel(ctx)
	j := &syncJob{pull: p, stop: stop, done: make(chan struct{})}
	p.Once, p.DryRun, p.Log, p.Change, p.Output = false, false, s.log, nil, nil
	p.Report = func(state client.SyncState) { _ = s.status.note(state, true) } // it has always room
	go func() {
		defer close(j.done)
		defer stop()
		if err := p.Run(ctx, c); err != nil {
			s.log.Error("a sync has ended", "prefix", p.Prefix, "dir", p.Dir, "err", err)
		}
	}()
	return j
}

// syncName is the name under which p's state is told.
func syncName(p files.Pull) string {
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		dir = p.Dir
	}
	return client.SyncState{Prefix: p.Prefix, Dir: dir}.Name()
}

// sameJob says whether a and b are to do the same.
func sameJob(a, b files.Pull) bool {
	return a.Prefix == b.Prefix && a.Dir == b.Dir && a.Template == b.Template && a.Delete == b.Delete &&
		a.Check == b.Check && a.Exec == b.Exec && a.Timeout == b.Timeout
}

// syncFailing is how long the files of a job may not be as they should be, and
// nobody need look after it.
const syncFailing = time.Minute

// syncWarnings are of jobs whose files are not as they should be for long.
func syncWarnings(states []client.SyncState) (all []client.Warning) {
	for _, s := range states {
		if s.Error == "" || s.Stopped || time.Since(s.ErrorSince) < syncFailing {
			continue
		}
		all = append(all, client.Warning{
			Code: "sync_failing",
			Text: fmt.Sprintf("files in %s are not as the keys below %q are, since %s UTC: %s", s.Dir, s.Prefix, s.ErrorSince.UTC().Format(time.DateTime), s.Error),
			Cure: "see what the error names; the files stay as they were, and it is tried again by itself",
		})
	}
	return all
}
