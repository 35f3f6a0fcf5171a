package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"gus/agent/client"
	"gus/register"
)

const (
	// pipeChunk is how many bytes of replies are written at once, or the last one more.
	pipeChunk = 256 << 10
	// pipePatience is how long a client may leave replies unread.
	pipePatience = 30 * time.Second
	// pipeGrace is how long what is under way may take once the agent stops.
	pipeGrace = time.Second
)

// pipe is a connection of a client that has many requests under way. What it reads goes
// straight to the loop, and the loop leaves the answers here: no goroutine waits for
// each. Its goroutines are the reader, which serve is, and a writer, that
// writes all that waits at once.
//
// No more than client.MaxPipeRequests are under way or wait to be written: then the reader
// waits for room, and with it the client.
type pipe struct {
	api  *api
	conn net.Conn
	in   *bufio.Reader

	room  chan struct{} // holds one for each request
	wake  chan struct{} // room for one: replies wait; closed after the last
	idle  chan struct{} // room for one: nothing is under way
	tasks sync.WaitGroup

	mu    sync.Mutex
	under map[uint64]*piped // under way, by the client's number
	out   []*piped          // answered
	free  []*piped          // to be used again, by the reader
}

// piped is a request of a pipe. Its reader makes it, the writer ends it.
type piped struct {
	request
	pipe   *pipe
	id     uint64
	op     register.Op
	size   int64 // admitted
	ended  answer
	expiry *time.Timer        // runs expire; nil for what is not the loop's
	cancel context.CancelFunc // of what is passed on

	// Under the pipe's lock.
	handed bool // to the loop
	over   bool // its time, or its client's interest
	late   bool // expire may still look at it: it is not used again
}

// pipe makes a pipe of the connection of r, and serves it to its end.
func (a *api) pipe(w http.ResponseWriter, r *http.Request) error {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Time{})
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	p := newPipe(a, conn, early)
	agree := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + client.PipeUpgrade + "\r\n\r\n"
	if _, err := io.WriteString(conn, agree); err == nil {
		p.serve()
	}
	return nil
}

// newPipe returns a pipe on conn, of which early has been read already.
func newPipe(a *api, conn net.Conn, early []byte) *pipe {
	return &pipe{
		api: a, conn: conn,
		in:    bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), conn), client.MaxPipeRequest),
		room:  make(chan struct{}, client.MaxPipeRequests),
		wake:  make(chan struct{}, 1),
		idle:  make(chan struct{}, 1),
		under: map[uint64]*piped{},
	}
}

// serve reads until the connection ends or the agent stops, and sees to what is
// still under way.
func (p *pipe) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.tasks.Go(func() { // wakes the reader where the agent stops
		select {
		case <-p.api.ending:
			p.conn.SetReadDeadline(time.Unix(1, 0))
			p.conn.SetWriteDeadline(time.Now().Add(pipeGrace))
		case <-ctx.Done():
		}
	})
	var writer sync.WaitGroup
	writer.Go(p.write)
	for p.read(ctx) == nil {
	}
	p.finish(cancel)
	cancel()
	p.tasks.Wait() // what was passed on has its own answer
	close(p.wake)
	writer.Wait()
}

// finish waits until nothing is under way. Where the client is gone, nothing of it goes on;
// where the agent stops, its requests are answered as far as that brings about.
func (p *pipe) finish(cancel context.CancelFunc) {
	select {
	case <-p.api.ending:
		timer := time.NewTimer(pipeGrace)
		defer timer.Stop()
		if p.await(timer.C) {
			return
		}
	default:
	}
	cancel()
	for _, x := range p.current() {
		p.drop(x.id)
	}
	p.await(nil)
	// Where the loop has stopped, what it has not answered it has never taken. What was passed on
	// may take effect: only who has passed it on can say.
	for _, x := range p.current() {
		if x.cancel == nil {
			x.give(answer{err: errStopping()})
		}
	}
}

// await waits until nothing is under way (true), the loop has stopped, or it is enough.
func (p *pipe) await(enough <-chan time.Time) bool {
	for len(p.current()) > 0 {
		select {
		case <-p.idle:
		case <-p.api.desk.stopped:
			return false
		case <-enough:
			return false
		}
	}
	return true
}

// current returns what is under way.
func (p *pipe) current() []*piped {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*piped, 0, len(p.under))
	for _, x := range p.under {
		all = append(all, x)
	}
	return all
}

// read reads one request and has it answered. An error ends the connection.
func (p *pipe) read(ctx context.Context) error {
	head, err := p.in.Peek(4)
	if err != nil {
		return err
	}
	size, err := client.PipeRequestSize(head)
	if err != nil {
		return err
	}
	frame, err := p.in.Peek(size)
	if err != nil {
		return err
	}
	r, err := client.ParsePipeRequest(frame)
	if err != nil {
		return err
	}
	if r.Kind == client.PipeDrop {
		p.drop(r.ID)
	} else if err = p.begin(ctx, r); err != nil {
		return err
	}
	_, err = p.in.Discard(size)
	return err
}

// begin hands r to whoever is to answer it.
func (p *pipe) begin(ctx context.Context, r client.PipeRequest) error {
	select {
	case p.room <- struct{}{}:
	case <-p.api.ending:
		return os.ErrClosed
	}
	x := p.piped()
	x.id, x.question = r.ID, questionOf(r)
	x.handed, x.over, x.cancel = false, false, nil
	p.mu.Lock()
	twice := p.under[r.ID] != nil
	if !twice {
		p.under[r.ID] = x
	}
	p.mu.Unlock()
	if twice {
		<-p.room
		return fmt.Errorf("request %d is under way already", r.ID)
	}
	if err := x.check(); err != nil {
		x.give(answer{err: err})
		return nil
	}
	if p.api.ask != nil && x.kind != kindPeek {
		p.passOn(ctx, x)
		return nil
	}
	x.hand()
	return nil
}

func questionOf(r client.PipeRequest) question {
	q := question{key: string(r.Key), timeout: min(r.Timeout, maxTimeout)}
	switch r.Kind {
	case client.PipeGet:
		q.kind = kindGet
	case client.PipeLocal:
		q.kind = kindPeek
	case client.PipeSet:
		q.kind, q.value = kindSet, append([]byte{}, r.Value...)
	case client.PipeDel:
		q.kind, q.deleted = kindSet, true
	}
	return q
}

// check says whether x can be asked for, and admits it.
func (x *piped) check() error {
	if err := checkKey(x.key); err != nil {
		return err
	}
	if x.kind == kindSet {
		if err := checkWritable(x.key); err != nil {
			return err
		}
	}
	size := int64(len(x.value))
	if err := x.pipe.api.desk.admit(size); err != nil {
		return err
	}
	x.size = size + 1 // so that 0 is what was not admitted
	return nil
}

// passOn has x answered by a voter.
func (p *pipe) passOn(ctx context.Context, x *piped) {
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	x.cancel = cancel
	p.mu.Unlock()
	p.tasks.Go(func() {
		defer cancel()
		ans := p.api.ask(ctx, x.question)
		if errors.Is(ans.err, context.Canceled) && !errors.Is(ans.err, client.ErrUnknownOutcome) { // the agent stops, or nobody reads this
			ans.err = errStopping()
		}
		x.give(ans)
	})
}

// hand gives x to the loop.
func (x *piped) hand() {
	d := x.pipe.api.desk
	x.op = register.Op(d.lastOp.Add(1))
	x.pipe.tasks.Add(1) // ends with expire, or in its stead
	if x.expiry == nil {
		x.expiry = time.AfterFunc(x.timeout, x.expire)
	} else {
		x.expiry.Reset(x.timeout)
	}
	in := input{x.op, &x.request}
	select {
	case d.inputs <- in:
	default:
		timer := time.NewTimer(x.timeout)
		defer timer.Stop()
		select {
		case d.inputs <- in:
		case <-timer.C:
			x.give(answer{err: fmt.Errorf("%w: the agent is busy: nothing changed", client.ErrNotSent)})
			return
		case <-d.stopped:
			x.give(answer{err: errStopping()})
			return
		}
	}
	x.pipe.mu.Lock()
	x.handed = true
	over := x.over
	x.pipe.mu.Unlock()
	if over {
		d.drop(in.op)
	}
}

// drop tells the loop that nobody waits for op any more.
func (d *desk) drop(op register.Op) {
	select {
	case d.inputs <- input{op: op}:
	case <-d.stopped:
	}
}

// expire ends x when its time is over: the loop then says what became of it.
func (x *piped) expire() {
	defer x.pipe.tasks.Done()
	x.stop()
}

// drop ends the client's interest in a request, if it is under way.
func (p *pipe) drop(id uint64) {
	p.mu.Lock()
	x := p.under[id]
	p.mu.Unlock()
	if x != nil {
		x.stop()
	}
}

// stop has whoever answers x do so now.
func (x *piped) stop() {
	p := x.pipe
	p.mu.Lock()
	if p.under[x.id] != x {
		p.mu.Unlock()
		return
	}
	op, tell, cancel := x.op, x.handed && !x.over, x.cancel
	x.over = true
	p.mu.Unlock()
	if cancel != nil {
		cancel()
	} else if tell {
		p.api.desk.drop(op)
	}
}

// give leaves the answer with the writer.
func (x *piped) give(a answer) {
	p := x.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.under[x.id] != x {
		return
	}
	delete(p.under, x.id)
	if x.op != 0 {
		if x.late = !x.expiry.Stop(); !x.late {
			p.tasks.Done()
		}
	}
	x.ended = a
	p.out = append(p.out, x)
	signal(p.wake) // under the lock: after the last one it is closed
	if len(p.under) == 0 {
		signal(p.idle)
	}
}

// signal leaves a token in c, which has room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// piped returns one that is not in use.
func (p *pipe) piped() *piped {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		x := p.free[n-1]
		p.free = p.free[:n-1]
		return x
	}
	x := &piped{pipe: p}
	x.request.piped = x
	return x
}

// write writes replies until wake is closed. Once the client does not take them, it only
// counts them off.
func (p *pipe) write() {
	var b []byte
	var taken []*piped
	gone := false
	for range p.wake {
		p.mu.Lock()
		taken, p.out = p.out, taken[:0]
		p.mu.Unlock()
		for i, x := range taken {
			r := p.api.reply(x.question, x.ended)
			b = client.AppendPipeReply(b, x.id, &r)
			p.release(x)
			if (len(b) >= pipeChunk || i == len(taken)-1) && !gone {
				p.patience()
				if _, err := p.conn.Write(b); err != nil {
					gone = true
					p.conn.Close()
				}
			}
			if len(b) >= pipeChunk || gone {
				b = b[:0]
			}
		}
		p.reuse(taken)
		clear(taken)
		if b = b[:0]; cap(b) > 2*pipeChunk {
			b = nil
		}
	}
}

// patience says for how long the client may leave replies unread.
func (p *pipe) patience() {
	p.conn.SetWriteDeadline(time.Now().Add(pipePatience))
	select {
	case <-p.api.ending: // else whoever waits for that shortens it
		p.conn.SetWriteDeadline(time.Now().Add(pipeGrace))
	default:
	}
}

// release gives free what x has occupied.
func (p *pipe) release(x *piped) {
	if x.size > 0 {
		p.api.desk.release(x.size - 1)
	}
	x.question, x.ended, x.op, x.size = question{}, answer{}, 0, 0
	<-p.room
}

// reuse hands back what is over.
func (p *pipe) reuse(all []*piped) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range all {
		if !x.late && len(p.free) < client.MaxPipeRequests {
			p.free = append(p.free, x)
		}
	}
}
