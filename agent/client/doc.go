// Package client speaks to the gus agent of this machine over its unix socket.
//
//	c := client.New("/run/gus/gus.sock")
//	defer c.Close()
//	_, err := c.Set(ctx, "app/port", []byte("8080"))
//	r, err := c.Get(ctx, "app/port") // r.Value, r.Version
//
// It imports the standard library only, so that a program can take it in
// without taking in QUIC and SQLite.
//
// # Why not net/http's client
//
// Because of one question that it does not answer: was the request sent? A set
// that was never sent changed nothing and may be tried again; one that was sent
// and not answered may still take effect. http.Transport sends again by itself
// where it thinks that it may and hides where it did. Here a request is one
// write to a connection that this package owns, and what happened to it is
// known. As it happens that also costs a third of the processor time. Requests
// and responses are ordinary HTTP/1.1 all the same: anything that speaks it
// (curl --unix-socket) can do what this package does.
//
// # What holds
//
//   - An error of a Set or Delete says whether something may have changed: only
//     ErrUnknownOutcome means that it may.
//   - A Set or Delete that was sent is never sent again by this package.
//   - The error that the agent met is the error that errors.Is finds here: one
//     table (errors.go) turns sentinels into status codes and back, and both
//     ends use it.
//   - A connection serves one request at a time and is kept for the next; at
//     most maxIdle wait unused. A pipe (pipe.go) serves many, and what is said above holds
//     for each of them: of a pipe that breaks it is known which of its requests the
//     agent may have.
package client
