package agent

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gus/agent/client"
	"gus/register"
)

// kind says what a question is for.
type kind uint8

const (
	kindGet kind = iota
	kindSet
	kindPeek
	kindList
	kindPeekList
	kindStatus
)

// question is what a local client wants.
type question struct {
	kind    kind
	key     string // of a listing, the prefix
	value   []byte // the replica keeps it
	deleted bool   // a set removes the key
	after   string // of a listing
	limit   int    // of a listing
	timeout time.Duration
}

// operation names what q does, for people.
func (q question) operation() string {
	if q.kind == kindSet {
		return "write"
	}
	return "read"
}

// request is a question on its way to the loop and back. It is used again for
// the next one, so whatever could still point to it when it is over (a drop, a
// late result) names it by op, which is never used twice.
type request struct {
	question
	answer chan answer // holds one; the loop puts exactly one in
	timer  *time.Timer
	piped  *piped // not nil: it came through a pipe, which is given the answer
}

// give passes on the answer, once and without waiting.
func (r *request) give(a answer) {
	if r.piped != nil {
		r.piped.give(a)
		return
	}
	r.answer <- a
}

// input is what a handler sends to the loop.
type input struct {
	op  register.Op
	req *request // nil: the client of op lost patience or is gone
}

// answer is what came of a request.
type answer struct {
	err    error
	via    string // the voter that it was passed on to; empty where this site has answered
	result register.Result
	local  register.Local
	status loopStatus
}

// desk is where handlers leave their requests with the loop.
//
// Its queue holds maxInputs; who finds it full waits until there is room or the
// deadline is past. Before that admit bounds what is under way in all.
type desk struct {
	inputs  chan input
	stopped chan struct{} // closed once the loop takes no more
	pool    sync.Pool
	lastOp  atomic.Uint64
	count   atomic.Int64
	bytes   atomic.Int64
}

const (
	maxInputs = 1024
	// maxRequests and maxRequestBytes bound the requests under way and the
	// values that they carry: beyond, a client is told to come again rather
	// than the machine run out of memory.
	maxRequests     = 4096
	maxRequestBytes = 64 << 20
)

func newDesk() *desk {
	d := &desk{inputs: make(chan input, maxInputs), stopped: make(chan struct{})}
	d.pool.New = func() any {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return &request{answer: make(chan answer, 1), timer: t}
	}
	return d
}

// admit makes room for a request with a value of n bytes, or says that there is
// none. Each admit that returns nil is followed by a release of the same n.
func (d *desk) admit(n int64) error {
	count, bytes := d.count.Add(1), d.bytes.Add(n)
	if count > maxRequests || bytes > maxRequestBytes {
		d.release(n)
		return fmt.Errorf("%w: the agent is busy with %d requests of %d bytes: nothing changed, try again", client.ErrNotSent, count-1, bytes-n)
	}
	return nil
}

func (d *desk) release(n int64) {
	d.count.Add(-1)
	d.bytes.Add(-n)
}

// ask puts a question to the loop and waits for the answer, which comes soon
// after its timeout at the latest: the loop itself says what became of a request
// that is over its time. When ctx ends, the client is gone and nobody reads the answer.
func (d *desk) ask(ctx context.Context, q question) answer {
	req := d.pool.Get().(*request)
	req.question = q
	req.timer.Reset(q.timeout)
	a, over := d.exchange(ctx, input{register.Op(d.lastOp.Add(1)), req})
	req.timer.Stop()
	if over { // otherwise the loop, which has stopped, might still have it
		req.question = question{}
		d.pool.Put(req)
	}
	return a
}

// exchange returns false where the loop stopped without an answer.
func (d *desk) exchange(ctx context.Context, in input) (answer, bool) {
	req := in.req
	select {
	case d.inputs <- in:
	case <-req.timer.C:
		return answer{err: fmt.Errorf("%w: the agent is busy: nothing changed", client.ErrNotSent)}, true
	case <-ctx.Done():
		return answer{err: ctx.Err()}, true
	case <-d.stopped:
		return answer{err: errStopping()}, true
	}
	select {
	case a := <-req.answer:
		return a, true
	case <-req.timer.C:
	case <-ctx.Done():
	case <-d.stopped:
		return d.last(req)
	}
	select { // it is behind its request in the same queue, so the loop knows it
	case d.inputs <- input{op: in.op}:
	case <-d.stopped:
		return d.last(req)
	}
	select {
	case a := <-req.answer:
		return a, true
	case <-d.stopped:
		return d.last(req)
	}
}

// last returns the answer that the loop left before it stopped. Where there is
// none, the loop never took the request out of the queue.
func (d *desk) last(req *request) (answer, bool) {
	select {
	case a := <-req.answer:
		return a, true
	default:
		return answer{err: errStopping()}, false
	}
}

func errStopping() error { return fmt.Errorf("%w: nothing changed", client.ErrStopping) }
