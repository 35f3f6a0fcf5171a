package agent

import (
	"time"

	"gus/register"
)

// slowSave is for how long a save may be under way before somebody should look
// after the disk.
const slowSave = 5 * time.Second

// saves is what the loop knows of the disk.
type saves struct {
	saveErr  error     // of the last save, if it failed
	saveFrom time.Time // when the save under way began; zero: there is none
	slow     bool      // it takes long, and that was logged
}

// timed is the loop as the store that notes when saves begin.
type timed loop

// Save implements register.Store.
func (l *timed) Save(seq register.Seq, records []register.Record) {
	l.saveFrom = time.Now()
	l.store.Save(seq, records)
}

// stall returns for how long a save has been under way.
func (s *saves) stall() time.Duration {
	if s.saveFrom.IsZero() {
		return 0
	}
	return time.Since(s.saveFrom)
}

// watchDisk says once of a save that it takes long.
func (l *loop) watchDisk() {
	if d := l.stall(); d > slowSave && !l.slow {
		l.slow = true
		l.log.Warn("the disk stalls: writes of this site wait for it", "since", l.saveFrom)
	}
}

// saveEnded notes that no save is under way.
func (l *loop) saveEnded() {
	if l.slow {
		l.log.Info("the disk goes on", "after", l.stall().Round(time.Millisecond))
	}
	l.saveFrom, l.slow = time.Time{}, false
}
