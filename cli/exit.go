package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/urfave/cli/v2"

	"gus/agent"
	"gus/agent/client"
)

// The exit codes.
const (
	exitDone       = 0
	exitFailed     = 1
	exitUsage      = 2
	exitNotFound   = 3
	exitNoQuorum   = 4 // or not sent in time: nothing changed
	exitNotRunning = 5
	exitRefused    = 6
	exitUnknown    = 7
)

// errUsage is what a wrong command line is.
var errUsage = errors.New("wrong usage")

// usageError is an errUsage that says what is wrong.
type usageError struct{ reason string }

func (e *usageError) Error() string        { return e.reason }
func (e *usageError) Is(target error) bool { return target == errUsage }

func usage(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// badFlag is the usage error of a flag whose value cannot be read. The
// library says "parse error" and spells flags with one dash.
func badFlag(c cli.Command, err error) error {
	said := err.Error()
	for _, f := range c.Flags {
		name := f.Names()[0]
		value, ok := strings.CutSuffix(said, " for flag -"+name+": parse error")
		if !ok {
			continue
		}
		value = strings.TrimPrefix(value, "invalid value ")
		switch f.(type) {
		case *cli.DurationFlag:
			return usage("%s: --%s %s: not a duration such as 5s or 300ms", c.Name, name, value)
		case *cli.IntFlag, *cli.Float64Flag:
			return usage("%s: --%s %s: not a number", c.Name, name, value)
		}
	}
	return usage("%s: %v", c.Name, err)
}

// exitCode returns the exit code that tells scripts of err.
func exitCode(err error) int {
	for _, e := range []struct {
		err  error
		code int
	}{
		{client.ErrUnknownOutcome, exitUnknown},
		{errUsage, exitUsage},
		{client.ErrNotFound, exitNotFound},
		{client.ErrNoEpoch, exitNotFound},
		{client.ErrNoQuorum, exitNoQuorum},
		{client.ErrNotSent, exitNoQuorum},
		{errNotCompared, exitNoQuorum},
		{client.ErrNotRunning, exitNotRunning},
		{client.ErrStopping, exitNotRunning},
		{client.ErrRefused, exitRefused},
		{client.ErrTooLarge, exitRefused},
		{agent.ErrForgotten, exitRefused},
		{fs.ErrPermission, exitRefused},
	} {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	if err != nil {
		return exitFailed
	}
	return exitDone
}

// oneLine puts what is several lines (joined errors) on one.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
