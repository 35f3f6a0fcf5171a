package cli

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"gus/agent/files"
)

// reloader reads the agent's configuration again at each SIGHUP, and puts in force
// what can be while it runs.
type reloader struct {
	log   *slog.Logger
	level *slog.LevelVar
	read  func() (settings, error)
	syncs chan []files.Pull // gets the pulls that are to run from now on; the last ones, where nobody has looked
	begun settings          // what the agent was started with
	now   settings          // what was read last
}

func newReloader(w io.Writer, s settings, read func() (settings, error)) *reloader {
	r := &reloader{level: new(slog.LevelVar), read: read, syncs: make(chan []files.Pull, 1), begun: s, now: s}
	r.level.Set(logLevels[s.get("log-level")])
	r.log = newLog(w, s.get("log-format"), r.level)
	return r
}

// start begins to listen for SIGHUP. The function that it returns ends that.
func (r *reloader) start() (stop func()) {
	hangups := make(chan os.Signal, 1) // two that come at once are one
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-hangups:
				r.reload()
			case <-done:
				return
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		close(done)
		wg.Wait()
	}
}

// reload reads the configuration anew. One that is wrong changes nothing.
func (r *reloader) reload() {
	s, err := r.read()
	if err != nil {
		r.log.Error("the configuration is wrong and changes nothing", "err", err)
		return
	}
	var restart []string
	for i, v := range s.all {
		if v.name != "log-level" && v.value != r.begun.all[i].value {
			restart = append(restart, v.name)
		}
	}
	r.level.Set(logLevels[s.get("log-level")])
	changed := !slices.Equal(s.file.Sync, r.now.file.Sync)
	if changed {
		select {
		case <-r.syncs:
		default:
		}
		r.syncs <- s.pulls
	}
	r.now = s
	r.log.Info("the configuration is read again", "file", s.file.path, "log_level", s.get("log-level"), "syncs", len(s.pulls), "syncs_changed", changed)
	if len(restart) > 0 {
		r.log.Warn("some of the configuration is in force after a restart only", "names", restart)
	}
}
