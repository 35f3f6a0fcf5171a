package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gus/agent/client"
	"gus/register"
)

// ErrForgotten: the data directory is older than what this voter has told
// others. It is a copy, or a restored image: this voter must not vote, since it would
// break what it has promised since then.
var ErrForgotten = errors.New("older than what this site has told the others")

// forgetFor is for how long a voter that has forgotten what it promised tries to
// save that, so that its next start knows it without asking.
const forgetFor = 5 * time.Second

// standing is whether this voter takes part, as people are told.
type standing struct {
	votes     bool
	since     time.Time    // of that
	answered  register.Set // who has said what they have heard of this voter
	forgotten time.Time    // when it was found to have forgotten something; zero while not
}

// begin notes how the replica starts.
func (l *loop) begin() {
	l.standing = standing{votes: l.replica.Votes(), since: time.Now()}
	if !l.votes {
		l.log.Info("does not vote yet: asks what the others have heard of this site", "of", l.names(l.replica.Awaits()))
	}
}

// stand notes that this voter takes part from now on, and hands out what waited
// for that.
func (l *loop) stand() {
	if l.votes || !l.replica.Votes() {
		return
	}
	var silent register.Set
	for _, v := range l.reach.conf.Voters {
		if v.Number != l.reach.self && !l.answered.Has(v.Number) {
			silent = silent.With(v.Number)
		}
	}
	now := time.Now()
	l.log.Info("votes", "after", now.Sub(l.since).Round(time.Millisecond), "answered", l.names(l.answered), "silent", l.names(silent))
	l.votes, l.since = true, now
	l.handOut()
}

// tell has batches say how far voters have come. It comes before Drive, so that
// no batch says less than what its messages rest on.
func (l *loop) tell() {
	if p := l.replica.Progress(); !slices.Equal(p, l.progress) {
		l.progress = p
		l.transport.SetProgress(p)
	}
}

// checkForgotten returns an ErrForgotten where this voter has forgotten what it
// promised, once that is saved or cannot be saved. Where a copy of its directory may
// vote in its place, it returns another error: the next start asks.
func (l *loop) checkForgotten() error {
	if boot := l.replica.Outpaced(); boot != 0 {
		return fmt.Errorf("%s: another process has started from a copy of it, as start %d, and this one is an earlier start: "+
			"stop the one that should not run, and start the other again: it asks whether it may vote", l.data, boot)
	}
	err := l.replica.Forgot()
	if err == nil {
		return nil
	}
	if l.forgotten.IsZero() {
		l.forgotten = time.Now()
	}
	noted := !l.replica.Status().Saving && l.saveErr == nil // Drive has begun to save it, if it could
	if !noted && time.Since(l.forgotten) < forgetFor {
		return nil
	}
	return forgotten(l.data, err, l.votes)
}

// forgotten is the ErrForgotten of a voter that was voting, or that has asked.
func forgotten(data string, err error, voting bool) error {
	e, ok := errors.AsType[*register.ForgotError](err)
	if !ok {
		return fmt.Errorf("%s is %w: %w", data, ErrForgotten, err)
	}
	here := fmt.Sprintf("it knows of start %d and record %d", e.Here.Boot-1, e.Here.Saved)
	cure := "put back the newer directory if there is one, otherwise leave this agent stopped"
	if voting {
		here = fmt.Sprintf("this process is start %d and began after record %d", e.Here.Boot, e.Here.Saved)
		cure = "another process has run from a copy of it: stop that one, and keep both directories"
	}
	return fmt.Errorf("%s is %w: %s, they have heard of start %d and record %d: %s", data, ErrForgotten, here, e.Heard.Boot, e.Heard.Saved, mustNotVote(cure))
}

// forgottenBefore is the ErrForgotten of a directory in which an earlier start
// has noted it.
func forgottenBefore(data string, err error) error {
	e, ok := errors.AsType[*register.ForgotError](err)
	if !ok {
		return fmt.Errorf("%s is %w: %w", data, ErrForgotten, err)
	}
	return fmt.Errorf("%s is %w, as an earlier start found: they had heard of start %d and record %d: %s", data, ErrForgotten, e.Heard.Boot, e.Heard.Saved,
		mustNotVote("put back the newer directory if there is one, otherwise leave this agent stopped"))
}

func mustNotVote(cure string) string {
	return "it must not vote, which would break what it promised meanwhile; the others go on without it, and its data stay as they are: " +
		cure + ": this version cannot admit the site again"
}

// missing returns the ErrNoQuorum of an operation that is over its time.
func (l *loop) missing(operation string) error {
	if l.replica.Votes() {
		return l.reach.missing(operation)
	}
	if l.replica.Forgot() != nil {
		return fmt.Errorf("%w: this site's data directory is %w: nothing changed", client.ErrNoQuorum, ErrForgotten)
	}
	return fmt.Errorf("%w: this site has not voted since its start at %s: it waits for %s to say what they have heard of it: nothing changed",
		client.ErrNoQuorum, l.since.Format(time.DateTime), strings.Join(l.names(l.replica.Awaits()), ", "))
}

// names lists voters for people.
func (l *loop) names(s register.Set) []string {
	var all []string
	for v := range s.All {
		all = append(all, l.reach.name(v))
	}
	return all
}

// voting is what status says of it.
func (l *loop) voting() client.Voting {
	return client.Voting{OK: l.votes, Since: l.since, Awaits: l.names(l.replica.Awaits())}
}
