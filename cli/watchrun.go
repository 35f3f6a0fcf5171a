package cli

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"slices"
	"time"

	"gus/agent/client"
)

// watchAndRun runs command for changes until it is stopped.
func (a *app) watchAndRun(ctx context.Context, cl *client.Client, w client.Watching, command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return usage("watch: there is no command to run: %v", err)
	}
	w.Values = true
	f := follower{cl: cl, watching: w, say: a.tell}
	events, ended := make(chan client.Event), make(chan error, 1)
	go func() {
		ended <- f.follow(ctx, func(e client.Event) error {
			select {
			case events <- e:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	r := runner{base: w.After, run: func(e client.Event) error { return a.runFor(ctx, command, e) }}
	r.failed = func(e client.Event, err error) { a.tell("watch: %s for %s: %v", command[0], printable(e.Key), err) }
	return r.loop(ctx, events, ended)
}

// runFor runs the command for one event.
func (a *app) runFor(ctx context.Context, command []string, e client.Event) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(e.Value), a.out, a.err
	c.Env = append(os.Environ(), "GUS_KEY="+e.Key, "GUS_EVENT="+string(e.Type), "GUS_VERSION="+string(e.Version), "GUS_CURSOR="+e.Cursor)
	c.WaitDelay = 10 * time.Second
	return runGroup(c)
}

// What a runner holds back of events at most, before it reads no more of them:
// the agent then holds them back, and folds them.
const (
	maxPending      = 1024
	maxPendingBytes = 16 << 20
)

// runner runs something for each key that changes, one at a time. What comes while
// something runs is folded: of each key the last event counts. What is then taken
// is a batch, in the order of the events, so that after a run all that its cursor
// stands for has been run. An event without a cursor gets the one before it.
type runner struct {
	run    func(client.Event) error
	failed func(client.Event, error)

	pending map[string]pendingEvent
	last    string         // the key of the last of them
	base    string         // the cursor before the first of them
	bytes   int            // of their values
	heard   int            // events
	whole   bool           // the last event was the last of a batch
	batch   []client.Event // to be run, and no longer folded
}

type pendingEvent struct {
	client.Event
	number int // of the event
}

// loop runs until the events have ended and all of them is run, or ctx has ended.
// It waits for what runs then.
func (r *runner) loop(ctx context.Context, events <-chan client.Event, ended <-chan error) (err error) {
	r.pending = map[string]pendingEvent{}
	var running chan error // nil: nothing runs
	var now client.Event
	over := false
	for {
		if running == nil && ctx.Err() == nil && r.next(over) {
			now, r.batch = r.batch[0], r.batch[1:]
			running = make(chan error, 1)
			go func() { running <- r.run(now) }()
		}
		if over && running == nil {
			return err
		}
		in := events
		if r.full() {
			in = nil
		}
		select {
		case e := <-in:
			r.fold(e)
		case failed := <-running:
			running = nil
			if failed != nil && ctx.Err() == nil {
				r.failed(now, failed)
			}
		case err = <-ended:
			over, ended = true, nil
		}
	}
}

func (r *runner) full() bool { return len(r.pending) >= maxPending || r.bytes >= maxPendingBytes }

// fold notes an event in place of what its key had.
func (r *runner) fold(e client.Event) {
	r.heard++
	r.whole = !e.More
	if e.Type != client.EventSet && e.Type != client.EventDelete {
		r.advance(e.Cursor)
		return
	}
	r.last = e.Key
	r.bytes += len(e.Value) - len(r.pending[e.Key].Value)
	r.pending[e.Key] = pendingEvent{e, r.heard}
}

// advance notes a cursor that stands for all that was heard.
func (r *runner) advance(cursor string) {
	p, ok := r.pending[r.last]
	switch {
	case cursor == "":
	case !ok: // so there is none at all
		r.base = cursor
	default:
		p.Cursor = cursor
		r.pending[r.last] = p
	}
}

// next says whether there is something to run, and takes a new batch where the last one is done.
func (r *runner) next(over bool) bool {
	if len(r.batch) == 0 && (r.whole || r.full() || over) {
		all := make([]pendingEvent, 0, len(r.pending))
		for _, p := range r.pending {
			all = append(all, p)
		}
		slices.SortFunc(all, func(a, b pendingEvent) int { return cmp.Compare(a.number, b.number) })
		for _, p := range all {
			r.base = cmp.Or(p.Cursor, r.base)
			p.Cursor = r.base
			r.batch = append(r.batch, p.Event)
		}
		clear(r.pending)
		r.bytes = 0
	}
	return len(r.batch) > 0
}
