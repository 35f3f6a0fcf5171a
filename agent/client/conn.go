package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// maxIdle bounds the connections that wait unused; what is more is closed.
	maxIdle = 256
	// defaultTimeout is that of a context without a deadline.
	defaultTimeout = 5 * time.Second
	// grace is how much longer than the deadline the agent's word is waited
	// for: at the deadline the agent says whether something may have changed,
	// and a client that left at that moment would never know.
	grace = time.Second
)

// request is one request to be sent.
type request struct {
	method, target string
	body           []byte
	writes         bool // it changes something: never to be sent twice

	kind PipeKind // where a pipe can carry it, and then of this key
	key  string
}

// conn is a connection with its buffers. One goroutine uses it at a time.
type conn struct {
	*net.UnixConn
	socket string
	in     *bufio.Reader
	out    []byte
}

// pool keeps connections for the next request, the last used one first.
type pool struct {
	socket string
	mu     sync.Mutex
	idle   []*conn
}

func (p *pool) get(ctx context.Context) (c *conn, fresh bool, err error) {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			c, err = p.dial(ctx)
			return c, true, err
		}
		c, p.idle = p.idle[n-1], p.idle[:n-1]
		p.mu.Unlock()
		if c.alive() {
			return c, false, nil
		}
		c.Close()
	}
}

func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= maxIdle {
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}

// dial connects, or says in ErrNotRunning what to do.
func (p *pool) dial(ctx context.Context) (*conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", p.socket)
	switch {
	case err == nil:
		return &conn{UnixConn: nc.(*net.UnixConn), socket: p.socket, in: bufio.NewReader(nc)}, nil
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w: no permission to use the socket %s: run as its owner, or join its group", ErrRefused, p.socket)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: there is no socket %s: start `gus agent`, or name the right one by --socket or GUS_SOCKET", ErrNotRunning, p.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: nobody listens at %s: start `gus agent`", ErrNotRunning, p.socket)
	case ctx.Err() != nil:
		return nil, unanswered(ctx, p.socket, err, false)
	}
	return nil, fmt.Errorf("%w: connect to %s: %v", ErrNotRunning, p.socket, err)
}

// do sends req, and a second time on a new connection only where that cannot do
// anything twice.
func (c *Client) do(ctx context.Context, req request) (Result, error) {
	start := time.Now()
	if c.pipes != nil && req.fitsPipe() {
		r, err, ok := c.pipes.do(ctx, req)
		if ok {
			r.Latency = time.Since(start)
			return r, err
		}
	}
	for {
		cn, fresh, err := c.pool.get(ctx)
		if err != nil {
			return Result{}, err
		}
		resp, sent, err := c.exchange(ctx, cn, req)
		mayHave := sent && req.writes
		switch {
		case err == nil:
			r, err := resp.result()
			r.Latency = time.Since(start)
			return r, err
		case fresh || mayHave || ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded):
			return Result{}, unanswered(ctx, cn.socket, err, mayHave)
		}
	}
}

// unanswered returns the error of a request at the socket that got no answer because of err.
func unanswered(ctx context.Context, socket string, err error, mayHave bool) error {
	why := cause(ctx, err)
	switch {
	case mayHave:
		return fmt.Errorf("%w: the agent at %s did not answer (%v): it may still take effect; read the key to see", ErrUnknownOutcome, socket, why)
	case errors.Is(why, errInterrupted):
		return fmt.Errorf("%w: %v: nothing changed", ErrNotSent, why)
	case errors.Is(why, context.DeadlineExceeded):
		return fmt.Errorf("%w: the agent at %s does not answer: %v: nothing changed", ErrNotSent, socket, why)
	}
	return fmt.Errorf("%w: it closed the connection at %s: %v", ErrNotRunning, socket, err)
}

func cause(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return errInterrupted
	case ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded):
		return context.DeadlineExceeded
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// exchange sends req and reads the answer. sent says whether the agent may have
// the request. The connection goes back to the pool or is closed.
func (c *Client) exchange(ctx context.Context, cn *conn, req request) (r *response, sent bool, err error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(defaultTimeout)
	}
	cn.SetDeadline(deadline.Add(grace))
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				cn.SetDeadline(time.Unix(1, 0))
			}
		})
	}
	keep := false
	defer func() {
		// Where the function above has begun, it may spoil the deadline of
		// whoever uses the connection next.
		if stop() && keep {
			c.pool.put(cn)
		} else {
			cn.Close()
		}
	}()
	n, werr := cn.send(req, time.Until(deadline))
	if werr != nil && n == 0 {
		return nil, false, werr
	}
	r, err = cn.receive() // also after a failed write: it may have been refused early
	keep = err == nil && werr == nil && !r.last
	return r, true, err
}

// send writes req in one piece.
func (c *conn) send(req request, timeout time.Duration) (int, error) {
	b := c.out[:0]
	b = append(b, req.method...)
	b = append(b, ' ')
	b = append(b, req.target...)
	b = append(b, " HTTP/1.1\r\nHost: gus\r\n"+HeaderTimeout+": "...)
	b = strconv.AppendInt(b, max(timeout.Microseconds(), 1), 10)
	b = append(b, "us\r\n"...)
	if req.writes {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(req.body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	b = append(b, req.body...)
	if cap(b) <= 64<<10 { // a buffer grown for one large value is not kept
		c.out = b
	}
	return c.Write(b)
}
