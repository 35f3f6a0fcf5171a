package client

import (
	"errors"
	"net/http"
)

// What an operation can fail with. Of a Set or Delete, ErrUnknownOutcome alone
// leaves open whether it took effect; with every other error it did not.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("no such key")
	// ErrNoQuorum: until the deadline too few voters were in reach. Nothing changed.
	ErrNoQuorum = errors.New("no quorum")
	// ErrNotSent: the agent had more to do than it could begin with before the deadline. Nothing changed.
	ErrNotSent = errors.New("not sent in time")
	// ErrNotSaved: the agent could not save the write (a full disk). Nothing changed.
	ErrNotSaved = errors.New("not saved")
	// ErrUnknownOutcome: the write was sent and not acknowledged. It may take effect, now or later.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrNotRunning: no agent answers at the socket. Nothing changed.
	ErrNotRunning = errors.New("the agent is not running")
	// ErrRefused: the request is one that the agent never does: a key that cannot be, a key of the system's.
	ErrRefused = errors.New("refused")
	// ErrTooLarge: the key or the value is over its limit.
	ErrTooLarge = errors.New("too large")
	// ErrStopping: the agent stopped before it could begin. Nothing changed.
	ErrStopping = errors.New("the agent is stopping")
)

// codes is the one table between errors, HTTP statuses and the codes in the
// bodies of error responses. The first entry that errors.Is matches counts.
var codes = [...]struct {
	err    error
	status int
	code   string
}{
	{ErrUnknownOutcome, http.StatusGatewayTimeout, "unknown_outcome"},
	{ErrNotFound, http.StatusNotFound, "not_found"},
	{ErrNoQuorum, http.StatusServiceUnavailable, "no_quorum"},
	{ErrNotSent, http.StatusTooManyRequests, "not_sent"},
	{ErrStopping, http.StatusServiceUnavailable, "stopping"},
	{ErrNotSaved, http.StatusInsufficientStorage, "not_saved"},
	{ErrTooLarge, http.StatusRequestEntityTooLarge, "too_large"},
	{ErrNoEpoch, http.StatusNotFound, "no_epoch"},
	{ErrRelist, http.StatusGone, "relist"},
	{ErrRefused, http.StatusBadRequest, "refused"},
}

// codeFailed is the code of an error that no sentinel stands for.
const codeFailed = "failed"

// Code returns the HTTP status and the code with which the agent reports err.
func Code(err error) (status int, code string) {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.status, c.code
		}
	}
	return http.StatusInternalServerError, codeFailed
}

// Error is an error as the agent reports it. It unwraps to the sentinel that
// its code stands for, if any.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"` // one line: what is wrong and, where there is one, the cure
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the sentinel of e's code, or nil.
func (e *Error) Unwrap() error {
	for _, c := range codes {
		if c.code == e.Code {
			return c.err
		}
	}
	return nil
}
