package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"gus/agent/client"
)

// DefaultTimeout is that of commands which were given none.
const DefaultTimeout = 30 * time.Second

// askTimeout is that of each question to the agent, where no other was given.
const askTimeout = 5 * time.Second

// ErrTaken: another job puts files into the directory.
var ErrTaken = errors.New("another job puts files there, and a directory belongs to one")

// State is how a job is.
type State = client.SyncState

// Pull says which keys are to be files: each key PREFIX NAME becomes the file NAME below
// Dir. Prefix and Dir are required.
type Pull struct {
	// Prefix of the keys: empty for all but the system's, or ending with a slash.
	Prefix string
	// Dir is the directory. It is made where it is not there. One job writes into it
	// at a time.
	Dir string
	// Template renders the values of keys that end with .tmpl by text/template, with
	// the functions key, keys, site and env. The file loses the ending.
	Template bool
	// Delete removes the files that this job has put in place, or found there with
	// their key's very bytes, once their key is deleted; and directories that it made,
	// once they are empty. Other files it leaves alone.
	Delete bool
	// Check is a command for /bin/sh -c that sees the new files before they are put in
	// place: it runs in a directory, GUS_STAGE, that holds all that Dir will hold. Where it fails nothing is
	// put in place. Empty: none.
	Check string
	// Exec is a command for /bin/sh -c that is run in Dir after files were changed, once
	// for all of a batch, and again after a failure. Empty: none.
	Exec string
	// Timeout of each run of a command. 0: DefaultTimeout.
	Timeout time.Duration
	// Ask is the timeout of each question to the agent, and how long Once and DryRun wait for
	// its site to hear of all changes. 0: 5 s.
	Ask time.Duration
	// DryRun changes nothing, runs no command, and ends.
	DryRun bool
	// Once ends when all was compared and put in place, or could not be.
	Once bool
	// EndIfTaken ends with ErrTaken where another job has the directory, and likewise where it is within that of
	// another one. Else that is waited for.
	EndIfTaken bool
	// Log gets a line for each change of state. Nil: nobody is told.
	Log *slog.Logger
	// Report is told the state when it changes, and each 15 s or so while the agent is
	// heard. It must not block. Nil: nobody is told.
	Report func(State)
	// Change is told of each file that is changed, or of a DryRun would be. Nil: nobody is told.
	Change func(Change)
	// Output gets what the commands print. Nil: it is dropped, but for the last line of one that failed.
	Output io.Writer

	pace pace   // zero: defaultPace
	step func() // called before each change of what is in place. Nil, but for tests: nobody is
}

// Op is what is done to a file or a key.
type Op string

// The ops.
const (
	Add    Op = "add"
	Modify Op = "change"
	Remove Op = "delete"
)

// Change is a file that is changed by a Pull, or a key by a Push.
type Change struct {
	Op   Op     `json:"op"`
	Key  string `json:"key,omitempty"`
	File string `json:"file,omitempty"` // its path
	Size int    `json:"size"`           // in bytes, afterwards

	// Old and New are the values before and after of a Push's dry run, where none has more
	// than 64 KiB.
	Old []byte `json:"-"`
	New []byte `json:"-"`
}

// pace is how long a job waits for what. Those with two limits double from the one to the other.
type pace struct {
	settle, settleMost time.Duration // for more changes, after the last one and after the first one
	again, againMost   time.Duration // to ask an agent that was away, to write what could not be written
	exec, execMost     time.Duration // to run a command that failed
}

var defaultPace = pace{
	settle: 100 * time.Millisecond, settleMost: time.Second,
	again: 500 * time.Millisecond, againMost: 30 * time.Second,
	exec: time.Second, execMost: 5 * time.Minute,
}

// Validate says what is wrong with p, if anything.
func (p Pull) Validate() error {
	if err := checkPrefix(p.Prefix); err != nil {
		return err
	}
	switch {
	case p.Dir == "":
		return errors.New("files need a directory")
	case p.Timeout < 0, p.Ask < 0:
		return fmt.Errorf("a timeout of %v is none", min(p.Timeout, p.Ask))
	}
	return nil
}

func (p Pull) withDefaults() (Pull, error) {
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return p, err
	}
	p.Dir = dir
	p.Timeout, p.Ask = cmp.Or(p.Timeout, DefaultTimeout), cmp.Or(p.Ask, askTimeout)
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	p.Log = p.Log.With("prefix", p.Prefix, "dir", p.Dir)
	if p.Report == nil {
		p.Report = func(State) {}
	}
	if p.Change == nil {
		p.Change = func(Change) {}
	}
	if p.Output == nil {
		p.Output = io.Discard
	}
	if p.pace == (pace{}) {
		p.pace = defaultPace
	}
	return p, nil
}

// Run keeps the files as the keys are until ctx ends, and then returns nil. An agent
// that is away, a disk that is full, a command that fails are states, and are tried
// again. With Once or DryRun it returns what went wrong, if anything.
func (p Pull) Run(ctx context.Context, c *client.Client) error {
	if err := p.Validate(); err != nil {
		return err
	}
	p, err := p.withDefaults()
	if err != nil {
		return err
	}
	j := newJob(p, c)
	defer j.close()
	wait := p.pace.again
	for {
		synced, err := j.session(ctx)
		switch {
		case ctx.Err() != nil && (p.Once || p.DryRun):
			return errors.New("interrupted: files are as they were, or as they should be")
		case ctx.Err() != nil:
			return nil
		case p.Once, p.DryRun, p.EndIfTaken && (errors.Is(err, ErrTaken) || errors.Is(err, errWithin)):
			return err
		case errors.Is(err, errMoved):
			j.log.Warn("the directory is another one: all files are compared anew")
			j.reopen()
			continue
		}
		j.away(err)
		if synced {
			wait = p.pace.again
		}
		pause(ctx, wait)
		wait = min(2*wait, p.pace.againMost)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
