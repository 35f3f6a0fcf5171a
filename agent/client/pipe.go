package client

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

// pipe is a connection that many operations share. It has no goroutine of its own, so that one
// that nobody uses costs nothing and nobody need end it: of those who wait for replies
// one reads for all (the reader), and of those who have something to send one writes
// for all.
type pipe struct {
	*conn

	mu      sync.Mutex
	calls   map[uint64]*call // under way
	lastID  uint64
	reader  *call // reads, or has been told to; nil: nobody, and there are no calls
	retired bool  // to be closed after the last call
	err     error // broken

	out, spare []byte // what waits to be written; a buffer for the next
	writing    bool   // somebody writes, and will write all that waits
	added      uint64 // bytes ever appended to out, but for those that were taken back
	taken      uint64 // of them, those that the agent may have

	buf    []byte // the reader's: what has arrived is buf[lo:hi]
	lo, hi int
}

// call is an operation under way, used again for the next one.
type call struct {
	id    uint64
	at    uint64        // where in all that is written its request begins
	event chan struct{} // room for one: it is done, or is to be the reader
	done  bool          // answered, or the pipe broke
	reply Reply
	err   error
	sent  bool // with err: the agent may have it
	timer *time.Timer
}

var (
	errFull  = errors.New("too many operations are under way") // and nothing was sent
	callPool = sync.Pool{New: func() any {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return &call{event: make(chan struct{}, 1), timer: t}
	}}
)

const (
	pipeBuffer = 64 << 10  // what a reader has room for, unless a reply is larger
	keepOut    = 256 << 10 // the largest buffer that is kept for more requests
)

func newPipe(c *conn) *pipe {
	return &pipe{conn: c, calls: map[uint64]*call{}, buf: make([]byte, pipeBuffer)}
}

// usable says whether p may be used: of one that nobody reads the other end may
// have been closed long ago.
func (p *pipe) usable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.reader == nil {
		p.SetReadDeadline(time.Time{})
		if !p.alive() {
			p.fail(io.ErrUnexpectedEOF)
		}
	}
	return p.err == nil
}

// retire closes p, once nobody uses it.
func (p *pipe) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	if len(p.calls) == 0 {
		p.fail(os.ErrClosed)
	}
}

// do sends req and waits for the reply, up to grace after the deadline. sent says
// whether the agent may have it.
func (p *pipe) do(ctx context.Context, deadline time.Time, req request) (_ *Reply, sent bool, _ error) {
	c := callPool.Get().(*call)
	lead, err := p.begin(c, PipeRequest{Kind: req.kind, Timeout: max(time.Until(deadline), time.Microsecond)}, req)
	if err != nil {
		callPool.Put(c)
		return nil, false, err
	}
	p.write(deadline)
	limit := deadline.Add(grace)
	if !lead {
		c.timer.Reset(time.Until(limit))
		lead, err = p.await(ctx, c)
		c.timer.Stop()
	}
	if lead && err == nil {
		err = p.read(ctx, c, limit)
	}
	if err != nil {
		p.leave(c, err)
	}
	select { // it may have been told to read when it was about to leave
	case <-c.event:
	default:
	}
	reply, sent, err := c.reply, c.sent, c.err
	*c = call{event: c.event, timer: c.timer}
	callPool.Put(c)
	return &reply, sent, err
}

// begin enters c among the calls, with its request among what is to be written, and
// says whether c is the reader.
func (p *pipe) begin(c *call, r PipeRequest, req request) (lead bool, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return false, p.err
	case len(p.calls) >= MaxPipeRequests:
		return false, errFull
	}
	p.lastID++
	c.id, c.at = p.lastID, p.added
	r.ID, r.Key, r.Value = c.id, []byte(req.key), req.body
	p.append(r)
	p.calls[c.id] = c
	if p.reader != nil {
		return false, nil
	}
	p.reader = c
	return true, nil
}

// append adds a request to what is to be written. The caller has p's lock.
func (p *pipe) append(r PipeRequest) {
	n := len(p.out)
	p.out = AppendPipeRequest(p.out, r)
	p.added += uint64(len(p.out) - n)
}

// write writes all that waits, unless somebody else is about to.
func (p *pipe) write(deadline time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writing || len(p.out) == 0 || p.err != nil {
		return
	}
	p.writing = true
	p.mu.Unlock()
	runtime.Gosched() // whoever has just had its reply comes along
	p.mu.Lock()
	p.SetWriteDeadline(deadline.Add(grace))
	for len(p.out) > 0 && p.err == nil {
		b := p.out
		p.out, p.taken = p.spare[:0], p.taken+uint64(len(b))
		p.mu.Unlock()
		n, err := p.Write(b)
		p.mu.Lock()
		if p.spare = b; cap(b) > keepOut {
			p.spare = nil
		}
		if err != nil {
			p.taken -= uint64(len(b) - n)
			p.fail(err)
		}
	}
	p.writing = false
}

// await waits until c is done, or is to read, or is over its time.
func (p *pipe) await(ctx context.Context, c *call) (lead bool, err error) {
	ended := ctx.Done()
	for {
		select {
		case <-c.event:
			p.mu.Lock()
			defer p.mu.Unlock()
			return !c.done, nil
		case <-c.timer.C:
			return false, os.ErrDeadlineExceeded
		case <-ended:
			if errors.Is(ctx.Err(), context.Canceled) {
				return false, ctx.Err()
			}
			ended = nil // at the deadline the agent has the word
		}
	}
}

// read reads replies, for all, until c has its own or is over its time, and then
// has another go on.
func (p *pipe) read(ctx context.Context, c *call, limit time.Time) error {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				// Where the next one reads already, it finds that its own time is not over.
				p.SetReadDeadline(time.Unix(1, 0))
			}
		})
		defer stop()
	}
	p.SetReadDeadline(limit)
	if errors.Is(ctx.Err(), context.Canceled) { // perhaps before that
		return ctx.Err()
	}
	for {
		if done, err := p.dispatch(c); done || err != nil {
			return nil
		}
		n, err := p.Read(p.buf[p.hi:])
		p.hi += n
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			p.mu.Lock()
			p.fail(err)
			p.mu.Unlock()
			return nil
		case errors.Is(ctx.Err(), context.Canceled):
			return ctx.Err()
		case !time.Now().Before(limit):
			return err
		default: // the deadline was another's
			p.SetReadDeadline(limit)
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
		}
	}
}

// dispatch hands out the replies that have arrived. Once c has its own, another is
// made the reader. After an error the pipe is broken.
func (p *pipe) dispatch(c *call) (done bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return true, nil
	}
	for p.hi-p.lo >= 4 {
		b := p.buf[p.lo:p.hi]
		size, err := frameSize(b, replyHead, maxPipeReply)
		if err == nil && size > len(b) {
			p.room(size)
			break
		}
		var id uint64
		var r Reply
		if err == nil {
			id, r, err = parsePipeReply(b[:size])
		}
		if err != nil {
			p.fail(err)
			return false, err
		}
		p.lo += size
		if to := p.calls[id]; to != nil { // else it has left
			delete(p.calls, id)
			to.reply, to.done = r, true
			if to != c {
				to.tell()
			}
		}
	}
	if p.lo == p.hi {
		p.lo, p.hi = 0, 0
		if len(p.buf) > pipeBuffer {
			p.buf = make([]byte, pipeBuffer)
		}
	} else if p.hi == len(p.buf) {
		p.room(p.hi - p.lo + 1)
	}
	if c.done {
		p.handOver()
	}
	return c.done, nil
}

// room makes room for a frame of size bytes from lo on.
func (p *pipe) room(size int) {
	if p.lo+size <= len(p.buf) {
		return
	}
	to := p.buf
	if size > len(to) {
		to = make([]byte, size)
	}
	p.hi, p.lo = copy(to, p.buf[p.lo:p.hi]), 0
	p.buf = to
}

// handOver makes another call the reader, if there is one. The caller has p's lock.
func (p *pipe) handOver() {
	p.reader = nil
	for _, c := range p.calls {
		p.reader = c
		c.tell()
		return
	}
	if p.retired {
		p.fail(os.ErrClosed)
	}
}

// tell wakes c. Of two tellings one is enough: c looks at what is the case.
func (c *call) tell() {
	select {
	case c.event <- struct{}{}:
	default:
	}
}

// leave takes c out because of err, unless it is done after all, and tells the agent.
func (p *pipe) leave(c *call, err error) {
	p.mu.Lock()
	if c.done {
		p.mu.Unlock()
		return
	}
	c.err, c.sent = err, c.at < p.taken
	delete(p.calls, c.id)
	if c.sent {
		p.append(PipeRequest{ID: c.id, Kind: PipeDrop})
	} else {
		p.takeBack(c)
	}
	if p.reader == c {
		p.handOver()
	}
	p.mu.Unlock()
	p.write(time.Now())
}

// takeBack takes c's request out of what waits to be written: its caller is told that
// nothing changes. The caller has p's lock.
func (p *pipe) takeBack(c *call) {
	from := int(c.at - p.taken)
	size := 4 + int(binary.BigEndian.Uint32(p.out[from:]))
	p.out = slices.Delete(p.out, from, from+size)
	p.added -= uint64(size)
	for _, other := range p.calls {
		if other.at > c.at {
			other.at -= uint64(size)
		}
	}
}

// fail breaks p because of err: nobody gets a reply any more. The caller has p's lock.
func (p *pipe) fail(err error) {
	if p.err != nil {
		return
	}
	p.err = err
	for _, c := range p.calls {
		c.err, c.sent, c.done = err, c.at < p.taken, true
		c.tell()
	}
	clear(p.calls)
	p.reader, p.out = nil, nil
	p.conn.Close()
}
