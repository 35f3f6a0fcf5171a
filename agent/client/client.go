package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// MaxValue is the limit of values in bytes.
const MaxValue = 1 << 20

// The header fields of requests and responses.
const (
	HeaderVersion    = "Gus-Version"     // of a response: the version read or written
	HeaderRoundTrips = "Gus-Round-Trips" // of a response: message rounds that it took
	HeaderTimeout    = "Gus-Timeout"     // of a request: how long the agent may try, as time.ParseDuration reads it
	HeaderNewer      = "Gus-Newer"       // of a local read: "true" where something newer has been heard of
	HeaderVia        = "Gus-Via"         // of a response: the voter that the request was passed on to, by an observer
	HeaderAge        = "Gus-Age"         // of a local read: how old what the site holds may be, in milliseconds; absent while it hears all
	HeaderPending    = "Gus-Pending"     // of a local read: "true" where a write of this site is under way
)

// Client is a connection pool to one agent. All its methods may be called
// concurrently. The zero value is not one: see New.
type Client struct {
	pool  pool
	pipes *pipes // nil: each operation has a connection to itself
}

// New returns a client of the agent that listens at the unix socket. It does
// not connect yet.
func New(socket string) *Client {
	return &Client{pool: pool{socket: socket}}
}

// NewPipelined returns a client as New does, for a program that has many operations
// under way at once: those on keys with values of up to MaxPipeValue bytes share one
// connection, which costs agent and client a fraction of the work. It differs in
// nothing else. With an agent that knows no such connections it is as New's.
func NewPipelined(socket string) *Client {
	c := New(socket)
	c.pipes = &pipes{pool: &c.pool, dialling: make(chan struct{}, 1)}
	return c
}

// Close closes the connections that wait unused. Operations that are under way
// go on; the client may even be used again.
func (c *Client) Close() {
	c.pool.close()
	if c.pipes != nil {
		c.pipes.close()
	}
}

// Result is what an operation came to.
type Result struct {
	Value      []byte        // of a Get; the caller's to keep
	Version    Version       // written or read
	RoundTrips int           // message rounds between sites: 1 as a rule, 0 for a local read
	Latency    time.Duration // as measured here, the way to the agent and back included
	Newer      bool          // of a GetLocal: something newer has been heard of and is not known to be settled
	Pending    bool          // of a GetLocal: a write of this site is under way
	Age        time.Duration // of a GetLocal: how old what the site holds may be, at least; 0: a few seconds at most
	Via        string        // the voter that an observer passed it on to, also where it failed there; empty where the site has answered itself
}

// Get reads key linearizably: it returns the value of the last write complete
// before, or of one concurrent with it. Where there is none the error is
// ErrNotFound, with the version of the deletion, if any, in the Result.
//
// The deadline of ctx, five seconds where it has none, is passed on to the
// agent. Get waits up to a second longer for the agent's word.
func (c *Client) Get(ctx context.Context, key string) (Result, error) {
	return c.do(ctx, request{method: http.MethodGet, target: target(key), kind: PipeGet, key: key})
}

// GetLocal reads key from what this site knows, without asking another. It may
// be stale.
func (c *Client) GetLocal(ctx context.Context, key string) (Result, error) {
	return c.do(ctx, request{method: http.MethodGet, target: target(key) + "?local=true", kind: PipeLocal, key: key})
}

// Set writes value, of at most MaxValue bytes. When it returns nil the write
// is durable at a quorum of voters and every later Get, at any site, sees it
// or a newer one. For its deadline see Get; for its errors, the sentinels.
func (c *Client) Set(ctx context.Context, key string, value []byte) (Result, error) {
	if len(value) > MaxValue {
		return Result{}, TooLarge(int64(len(value)))
	}
	return c.do(ctx, request{method: http.MethodPut, target: target(key), body: value, writes: true, kind: PipeSet, key: key})
}

// Delete removes key. To remove what is not there is no error.
func (c *Client) Delete(ctx context.Context, key string) (Result, error) {
	return c.do(ctx, request{method: http.MethodDelete, target: target(key), writes: true, kind: PipeDel, key: key})
}

// TooLarge returns the ErrTooLarge of a value of size bytes.
func TooLarge(size int64) error {
	return fmt.Errorf("a value of %d bytes is %w: the limit is %d bytes (1 MiB)", size, ErrTooLarge, MaxValue)
}

// Status asks the agent how it is.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.ask(ctx, request{method: http.MethodGet, target: "/v1/status"}, &s)
	return s, err
}

// Token is what lets machines join the cluster.
type Token struct {
	Token    string `json:"token"`
	Lifetime int    `json:"lifetime_seconds"` // of the founding agent's running time
}

// Token asks the agent for a token that lives for life, an hour where that is 0.
func (c *Client) Token(ctx context.Context, life time.Duration) (t Token, err error) {
	target := "/v1/token"
	if life != 0 {
		target += "?ttl=" + url.QueryEscape(life.String())
	}
	err = c.ask(ctx, request{method: http.MethodPost, target: target}, &t)
	return t, err
}

// ask sends r and reads the answer's JSON into v.
func (c *Client) ask(ctx context.Context, r request, v any) error {
	res, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(res.Value, v); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// target returns the path of key. PathEscape leaves no slash and no '?', so
// every key survives.
func target(key string) string { return "/v1/kv/" + url.PathEscape(key) }
