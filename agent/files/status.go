package files

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// logPause is how long an error is not logged again that only reads differently.
const logPause = 10 * time.Second

// status is a job's state and what is wrong with it.
type status struct {
	State
	session string // the agent, or the directory as a whole
	hold    string // nothing may be done yet
	check   string
	journal string
	removal string
	exec    string

	logged   string
	loggedAt time.Time
}

// away notes why there is no watch. What the agent says of itself is no news of files.
func (j *job) away(err error) {
	if errors.Is(err, ErrTaken) && !j.owned { // the row of that prefix and directory may be the other job's
		if !j.taken {
			j.log.Warn("the directory is waited for", "err", err)
		}
		j.taken = true
		return
	}
	j.status.session = err.Error()
	j.tell()
}

// tell reports the state, and logs when it begins or ceases to be an error.
func (j *job) tell() {
	s := &j.status
	if j.synced && s.session == "" {
		s.Checked = time.Now().UTC()
	}
	s.Keys, s.Pending = j.inPlace, len(j.problems)
	for key := range j.dirty {
		if _, ok := j.problems[key]; !ok && j.known[key] != nil {
			s.Pending++
		}
	}
	if j.committed {
		s.Version = fmt.Sprintf("%016x", j.sum)
	}
	s.Error = j.errorText()
	now := time.Now()
	switch {
	case s.Error == "":
		s.ErrorSince = time.Time{}
	case s.ErrorSince.IsZero():
		s.ErrorSince = now.UTC()
	}
	if s.Error != s.logged && (s.Error == "" || s.logged == "" || now.Sub(s.loggedAt) > logPause) {
		if s.Error == "" {
			j.log.Info("files are as the keys are again", "version", s.Version)
		} else {
			j.log.Warn("files are not as they should be", "err", s.Error)
		}
		s.logged, s.loggedAt = s.Error, now
	}
	j.Report(s.State)
}

// errorText says all that is wrong, in one line.
func (j *job) errorText() string {
	s := &j.status
	var all []string
	for _, e := range []string{s.session, s.hold, s.check, s.journal, j.problemText(), s.removal, s.exec} {
		if e != "" {
			all = append(all, e)
		}
	}
	return brief(strings.Join(all, "; "))
}

// Problems is what is wrong, each a line without control characters.
type Problems []string

// Error joins them to one line.
func (p Problems) Error() string { return strings.Join(p, "; ") }

// troubled returns all that is wrong as Problems, if anything is.
func (j *job) troubled() error {
	const most = 20
	s := &j.status
	var all Problems
	add := func(texts ...string) {
		for _, text := range texts {
			if text != "" {
				all = append(all, brief(text))
			}
		}
	}
	add(s.session, s.check, s.journal, s.removal, s.exec)
	for _, key := range slices.Sorted(maps.Keys(j.problems)) {
		add(fmt.Sprintf("key %q: %s", key, j.problems[key]))
	}
	switch n := len(all) - most; {
	case len(all) == 0:
		return nil
	case n > 0:
		all = append(all[:most], fmt.Sprintf("and %d more", n))
	}
	return all
}

// brief is text in one line that a terminal may show, of 1,000 bytes at most.
func brief(text string) string {
	const most = 1000
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}

// problemText names the first key that is not in place as it should be.
func (j *job) problemText() string {
	first := ""
	for key := range j.problems {
		if first == "" || key < first {
			first = key
		}
	}
	switch n := len(j.problems) - 1; {
	case n < 0:
		return ""
	case n > 0:
		return fmt.Sprintf("key %q: %s (and %d more)", first, j.problems[first], n)
	}
	return fmt.Sprintf("key %q: %s", first, j.problems[first])
}
