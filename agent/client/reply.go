package client

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Reply is what the agent says to an operation on one key, be it as a response of
// HTTP or as a frame of a pipe: the same either way.
type Reply struct {
	Status     int           // as of HTTP
	RoundTrips int           // see Result, as what follows
	Version    Version       //
	Via        string        //
	Newer      bool          //
	Pending    bool          //
	Age        time.Duration // in whole milliseconds
	Body       []byte        // the value; from status 300 on the JSON of an Error
}

// Fail makes r the reply that says err, besides what it says already.
func (r *Reply) Fail(err error) {
	status, code := Code(err)
	r.Status = status
	body, _ := json.Marshal(Error{Code: code, Message: err.Error()}) // of two strings: it cannot fail
	r.Body = append(body, '\n')
}

// result returns what r says, or the error that it stands for.
func (r *Reply) result() (Result, error) {
	res := Result{Version: r.Version, RoundTrips: r.RoundTrips, Via: r.Via, Newer: r.Newer, Pending: r.Pending, Age: r.Age}
	if r.Status < 300 {
		res.Value = r.Body
		return res, nil
	}
	e := new(Error)
	if err := json.Unmarshal(r.Body, e); err != nil || e.Code == "" {
		e = &Error{Code: codeFailed, Message: "the agent answered " + strconv.Itoa(r.Status) + " " + http.StatusText(r.Status)}
	}
	return res, e
}
