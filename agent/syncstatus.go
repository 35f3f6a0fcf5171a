package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"gus/agent/client"
)

const (
	syncPath = "/v1/sync/"

	// maxSyncJobs bounds the jobs of a site that are told, maxSyncState what one of them
	// tells, in bytes.
	maxSyncJobs  = 100
	maxSyncState = 16 << 10

	syncPause  = time.Second      // between two writes of one job's state
	syncRetry  = time.Minute      // at most between two attempts to write
	syncSilent = 2 * time.Minute  // after so long without a word a job is taken for stopped
	syncForget = 24 * time.Hour   // and after so long its key is removed
	syncLook   = 15 * time.Second // between two looks for such
)

// syncStatus knows how the jobs are that keep files as keys are, those of the agent and
// those that run beside it, and tells all sites: it writes a key _gus/sync/SITE/NAME when something but a
// time has changed. Clocks decide nothing here: what is old is so by this agent's running time.
type syncStatus struct {
	site string
	set  func(ctx context.Context, key string, value []byte, deleted bool) error // as a user's, but of the system's keys
	load func(ctx context.Context) ([]client.SyncState, error)                   // what this site's keys tell
	log  *slog.Logger

	mu   sync.Mutex
	jobs map[string]*syncEntry // by name
	wake chan struct{}
}

// syncEntry is a job.
type syncEntry struct {
	state client.SyncState
	own   bool             // it runs in the agent
	heard time.Time        // when the job was last heard
	gone  bool             // its key is to be removed
	told  client.SyncState // what the key tells
	known bool             // there is such a key, as far as is known
	next  time.Time        // no write before
}

func newSyncStatus(site string, log *slog.Logger) *syncStatus {
	return &syncStatus{site: site, log: log, jobs: map[string]*syncEntry{}, wake: make(chan struct{}, 1)}
}

// note takes in what a job tells of itself.
func (s *syncStatus) note(state client.SyncState, own bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.jobs[state.Name()]
	if e == nil {
		if len(s.jobs) >= maxSyncJobs && !own {
			return fmt.Errorf("%w: %d jobs of this site are told already, those of the last 24 hours", client.ErrNotSent, len(s.jobs))
		}
		e = &syncEntry{next: time.Now().Add(syncPause)}
		s.jobs[state.Name()] = e
	} else if !e.due() && e.next.Before(time.Now().Add(syncPause)) { // what comes at once is told at once
		e.next = time.Now().Add(syncPause)
	}
	if state.Changed.IsZero() { // it was started anew, and nothing has changed since
		state.Changed = e.state.Changed
	}
	e.state, e.own, e.heard, e.gone = state, own, time.Now(), false
	s.rouse()
	return nil
}

// forget takes note that a job is no more.
func (s *syncStatus) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.jobs[name]; e != nil {
		e.gone = true
		s.rouse()
	}
}

func (s *syncStatus) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// states returns how all jobs are, by prefix and directory.
func (s *syncStatus) states() []client.SyncState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []client.SyncState
	for _, e := range s.jobs {
		if !e.gone {
			all = append(all, e.state)
		}
	}
	slices.SortFunc(all, func(a, b client.SyncState) int {
		return strings.Compare(a.Prefix+"\x00"+a.Dir, b.Prefix+"\x00"+b.Dir)
	})
	return all
}

// due says whether the key tells something else.
func (e *syncEntry) due() bool {
	if e.gone {
		return true
	}
	return !e.known || !e.told.Same(e.state)
}

// run tells what is to be told, until ctx ends.
func (s *syncStatus) run(ctx context.Context) error {
	look := time.NewTicker(syncLook)
	defer look.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	loaded, pause := false, syncPause
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			s.age()
		case <-s.wake:
		case <-soon.C:
		}
		err := error(nil)
		if !loaded {
			err = s.remember(ctx)
			loaded = err == nil
		}
		if err == nil {
			err = s.tell(ctx)
		}
		if err == nil {
			pause = syncPause
			if at, ok := s.nextDue(); ok {
				soon.Reset(time.Until(at))
			}
			continue
		}
		if ctx.Err() == nil {
			s.log.Debug("cannot tell the other sites of files", "err", err, "again in", pause)
		}
		sleepFor(ctx, pause)
		soon.Reset(0)
		pause = min(2*pause, syncRetry)
	}
}

func sleepFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// remember reads what this site's keys tell, from before this agent's start.
func (s *syncStatus) remember(ctx context.Context) error {
	states, err := s.load(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range states {
		e := s.jobs[state.Name()]
		if e == nil {
			e = &syncEntry{state: state, heard: time.Now()}
			s.jobs[state.Name()] = e
		}
		if e.state.Changed.IsZero() {
			e.state.Changed = state.Changed
		}
		e.told, e.known = state, true
	}
	return nil
}

// age marks as stopped what was not heard of for long, and forgets it much later.
func (s *syncStatus) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.jobs {
		silent := time.Since(e.heard)
		switch {
		case e.own:
		case silent > syncForget:
			e.gone = true
		case silent > syncSilent && !e.state.Once:
			e.state.Stopped = true
		}
	}
}

// nextDue says when there is something to tell next.
func (s *syncStatus) nextDue() (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.jobs {
		if e.due() && (!ok || e.next.Before(at)) {
			at, ok = e.next, true
		}
	}
	return at, ok
}

// tell writes the keys that are due, one at a time.
func (s *syncStatus) tell(ctx context.Context) error {
	for {
		name, state, gone := s.pick()
		if name == "" {
			return nil
		}
		var value []byte
		if !gone {
			var err error
			if value, err = json.Marshal(state); err != nil {
				return err
			}
		}
		if err := s.set(ctx, client.SyncKeys+s.site+"/"+name, value, gone); err != nil {
			return err
		}
		s.mu.Lock()
		e := s.jobs[name]
		e.told, e.known, e.next = state, !gone, time.Now().Add(syncPause)
		if gone && e.gone {
			delete(s.jobs, name)
		}
		s.mu.Unlock()
	}
}

// pick returns a job whose key is to be written now.
func (s *syncStatus) pick() (name string, state client.SyncState, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for name, e := range s.jobs {
		if e.due() && !e.next.After(now) {
			return name, e.state, e.gone
		}
	}
	return "", state, false
}

// put serves PUT /v1/sync/NAME.
func (s *syncStatus) put(w http.ResponseWriter, r *http.Request, name string) error {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(defaultTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSyncState))
	if err != nil {
		return fmt.Errorf("%w: the state of a job: %w", client.ErrRefused, err)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	var state client.SyncState
	if err := json.Unmarshal(body, &state); err != nil {
		return fmt.Errorf("%w: the state of a job: %w", client.ErrRefused, err)
	}
	if err := checkSyncState(state); err != nil {
		return fmt.Errorf("%w: the state of a job: %w", client.ErrRefused, err)
	}
	if want := state.Name(); name != want {
		return fmt.Errorf("%w: the job of that prefix and directory is named %s, not %s", client.ErrRefused, want, name)
	}
	return s.note(state, false)
}

// checkSyncState says what a job cannot say of itself.
func checkSyncState(s client.SyncState) error {
	for _, text := range []string{s.Prefix, s.Dir, s.Version, s.Error} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return errors.New("a text with a control character, or that is not UTF-8")
		}
	}
	switch {
	case s.Dir == "" || len(s.Dir) > 4096 || len(s.Prefix) > 1024:
		return errors.New("the directory or the prefix is missing or too long")
	case len(s.Version) > 16 || len(s.Error) > 2048:
		return errors.New("the version or the error is too long")
	case s.Keys < 0 || s.Pending < 0 || s.ExecFailures < 0:
		return errors.New("a number below 0")
	}
	return nil
}

// setSystem returns what writes system keys by ask.
func setSystem(ask func(context.Context, question) answer) func(context.Context, string, []byte, bool) error {
	return func(ctx context.Context, key string, value []byte, deleted bool) error {
		return ask(ctx, question{kind: kindSet, key: key, value: value, deleted: deleted, timeout: defaultTimeout}).err
	}
}

// loadSyncs returns what reads the states that site's keys tell, without asking other sites.
func loadSyncs(desk *desk, site string) func(context.Context) ([]client.SyncState, error) {
	return func(ctx context.Context) (all []client.SyncState, err error) {
		prefix := client.SyncKeys + site + "/"
		page := desk.ask(ctx, question{kind: kindPeekList, key: prefix, limit: maxSyncJobs, timeout: defaultTimeout})
		if page.err != nil {
			return nil, page.err
		}
		for _, e := range page.result.Entries {
			ans := desk.ask(ctx, question{kind: kindPeek, key: e.Key, timeout: defaultTimeout})
			if ans.err != nil {
				return nil, ans.err
			}
			var state client.SyncState
			if ans.local.Found && json.Unmarshal(ans.local.Value, &state) == nil && state.Name() == strings.TrimPrefix(e.Key, prefix) {
				all = append(all, state)
			}
		}
		return all, nil
	}
}
