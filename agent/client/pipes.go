package client

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"
)

// pipes holds a client's pipe: the one at a time that its operations share.
type pipes struct {
	pool     *pool
	dialling chan struct{} // holds one while somebody connects

	mu      sync.Mutex
	current *pipe // may be broken; nil: none yet
	unknown bool  // the agent does not know pipes
}

// fitsPipe says whether a pipe can carry r.
func (r *request) fitsPipe() bool {
	return r.kind != 0 && len(r.body) <= MaxPipeValue && len(r.key) < MaxPipeRequest-MaxPipeValue-requestHead
}

// do has req done through the pipe. ok is false where that cannot be, and nothing was
// sent: a connection of its own is to carry it.
func (p *pipes) do(ctx context.Context, req request) (r Result, err error, ok bool) {
	deadline, has := ctx.Deadline()
	if !has {
		deadline = time.Now().Add(defaultTimeout)
	}
	for {
		pipe, fresh, err := p.get(ctx, deadline)
		if pipe == nil {
			return Result{}, err, err != nil
		}
		reply, sent, err := pipe.do(ctx, deadline, req)
		mayHave := sent && req.writes
		switch {
		case err == nil:
			r, err := reply.result()
			return r, err, true
		case errors.Is(err, errFull):
			return Result{}, nil, false
		case fresh || mayHave || ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline):
			return Result{}, unanswered(ctx, p.pool.socket, err, mayHave), true
		}
	}
}

// get returns the pipe, and makes one where there is none. It returns neither pipe nor
// error where the agent knows no pipes.
func (p *pipes) get(ctx context.Context, deadline time.Time) (_ *pipe, fresh bool, err error) {
	if pipe, known := p.have(); pipe != nil || !known {
		return pipe, false, nil
	}
	timer := time.NewTimer(time.Until(deadline.Add(grace)))
	defer timer.Stop()
	select {
	case p.dialling <- struct{}{}:
	case <-timer.C:
		return nil, false, unanswered(ctx, p.pool.socket, os.ErrDeadlineExceeded, false)
	case <-ctx.Done():
		return nil, false, unanswered(ctx, p.pool.socket, ctx.Err(), false)
	}
	defer func() { <-p.dialling }()
	if pipe, known := p.have(); pipe != nil || !known {
		return pipe, false, nil // somebody else has made it meanwhile
	}
	pipe, err := p.dial(ctx, deadline)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.unknown = pipe, err == nil && pipe == nil
	return pipe, true, err
}

// have returns the pipe, nil where there is none that works, and whether the agent may know pipes.
func (p *pipes) have() (_ *pipe, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && !p.current.usable() {
		p.current = nil
	}
	return p.current, !p.unknown
}

// dial connects and asks for a pipe; it returns nil where the agent knows none.
func (p *pipes) dial(ctx context.Context, deadline time.Time) (*pipe, error) {
	c, err := p.pool.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			c.SetDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	c.SetDeadline(deadline.Add(grace))
	known, err := c.upgrade()
	if err != nil || !known || !stop() {
		c.Close()
	}
	switch {
	case err == nil && !known:
		return nil, nil
	case err == nil && ctx.Err() != nil:
		err = ctx.Err()
	}
	if err != nil {
		return nil, unanswered(ctx, p.pool.socket, err, false)
	}
	c.SetDeadline(time.Time{})
	return newPipe(c), nil
}

// upgrade asks for the connection to become a pipe, and says whether the agent agrees.
func (c *conn) upgrade() (bool, error) {
	ask := "GET " + PipePath + " HTTP/1.1\r\nHost: gus\r\nConnection: Upgrade\r\nUpgrade: " + PipeUpgrade + "\r\n\r\n"
	if _, err := c.Write([]byte(ask)); err != nil {
		return false, err
	}
	c.in = bufio.NewReader(c.UnixConn)
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusSwitchingProtocols && c.in.Buffered() == 0, nil
}

func (p *pipes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		p.current.retire()
		p.current = nil
	}
}
