package snapshot

import (
	"errors"
	"fmt"
	"time"

	"gus/register"
)

// pace is how many times as long as a step of a pass has taken the writer
// leaves to saves afterwards, if there are any; easyPace while the log has room.
// Then a step has fewer keys as well, so that a save which finds one under way
// waits for little. Where nobody saves, somebody may still read: idlePace is for them.
const (
	pace     = 4
	easyPace = 9
	idlePace = 1
)

// Where the disk is full, what nobody waits for is tried again after a save
// that succeeded, and otherwise after this long, doubling each time.
const (
	firstRetry = time.Second
	lastRetry  = 32 * time.Second
)

// cursorDelay is how long a cursor may wait for a transaction to join.
const cursorDelay = time.Second

// over says whether the log is over its bound. Then each save owes twice what
// it saved, to be folded before the next one, so that saving cannot outrun
// folding: the log ends below twice its bound.
func (s *Store) over() bool {
	b := s.opts.bounds
	return s.logRows.Load() > b.rows || s.logBytes.Load() > b.bytes
}

// Pressed says whether the log is over half of its bound. What can wait should then
// not be saved while there are clients: over the bound their saves wait for
// folding. Safe for concurrent use.
func (s *Store) Pressed() bool {
	b := s.opts.bounds
	return s.logRows.Load() > b.rows/2 || s.logBytes.Load() > b.bytes/2
}

// easy says whether a pass gives way to saves as far as it can.
func (s *Store) easy() bool { return s.saving && !s.Pressed() }

// next waits for a save, and meanwhile does what is due; false means that s is
// closed. A save that waits comes first, unless one before it owes.
func (s *Store) next() (j job, ok bool) {
	for {
		s.tendLog()
		if !s.over() {
			s.owed = 0
		}
		if s.owed > 0 && s.ready(time.Now()) {
			s.foldSome()
			continue
		}
		select {
		case j, ok = <-s.jobs:
			return j, ok
		default:
		}
		now := time.Now()
		wait, due := s.deadline()
		switch {
		case due && wait.After(now):
			s.timer.Reset(wait.Sub(now))
		case due:
			s.perform(now)
			continue
		}
		select {
		case j, ok = <-s.jobs:
			s.timer.Stop()
			return j, ok
		case <-s.wake:
		case <-s.timer.C:
		case err := <-s.mover.ended:
			s.moved(err)
		}
		s.timer.Stop()
	}
}

// ready says whether work on an epoch may be tried at all.
func (s *Store) ready(now time.Time) bool {
	return s.broken == nil && !s.stalled.After(now)
}

// deadline is when the writer has something to do by itself; false: never. An
// idle Store has nothing to do and never wakes.
func (s *Store) deadline() (at time.Time, due bool) {
	if s.broken != nil {
		return at, false
	}
	earliest := func(t time.Time) {
		if t.Before(s.stalled) {
			t = s.stalled
		}
		if !due || t.Before(at) {
			at, due = t, true
		}
	}
	switch {
	case s.pass.begun || s.over() || s.history.due():
		earliest(s.nextStep)
	case !s.epochDue.IsZero():
		earliest(s.epochDue)
	}
	if t := s.cursorsDue(); !t.IsZero() {
		earliest(t)
	}
	return at, due
}

// perform does one thing that is due.
func (s *Store) perform(now time.Time) {
	if t := s.cursorsDue(); !t.IsZero() && !t.After(now) {
		s.settle("save cursors", s.transact(func() error { return nil }))
		return
	}
	folds := s.pass.begun || s.over() || !s.epochDue.IsZero() && !s.epochDue.After(now)
	if s.history.due() && (!folds || !s.history.turn) {
		s.history.turn = true
		s.compactSome()
		return
	}
	s.history.turn = false
	s.foldSome()
}

// settle takes note of how something has ended that nobody waits for.
func (s *Store) settle(what string, err error) {
	if err != nil {
		err = s.failed(fmt.Errorf("%s: %w", what, err))
	}
	if s.broken != nil {
		return
	}
	if err == nil {
		s.stalled, s.retry = time.Time{}, 0
		if s.held {
			s.log.Info("epochs are made again", "path", s.path)
		}
	} else {
		s.retry = min(lastRetry, max(firstRetry, 2*s.retry))
		s.stalled = time.Now().Add(s.retry)
		if !s.held {
			s.log.Warn("epochs are held up and the log grows", "error", err)
		}
	}
	s.held = err != nil
	s.show()
}

// forget drops from what Changes and Keys look at beside the current records
// what is in those now: all up to seq.
func (s *Store) forget(seq register.Seq) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent = append([]recent(nil), after(s.recent, seq)...)
}

// failed explains why a transaction failed and, unless it was rolled back,
// lets every later save fail in the same way.
func (s *Store) failed(err error) error {
	err = explain(s.path, err)
	if !errors.Is(err, ErrRolledBack) {
		s.broken = err
	}
	return err
}
