package quic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// The register lane (WIRE.md). Batches go over a few streams that stay open, in turns, so that one costs no
// more than its packet and the packet's acknowledgement: a stream that ends
// costs the receiver an update of its limits, and the sender an acknowledgement of
// that. A packet that is lost holds up the batches behind it on its own stream. A large
// batch has a stream for itself, so that small ones need not wait until it has passed.
const (
	lanes    = 4
	laneFill = 16 << 10
	// laneRest is after how long without a batch a stream is not used again. The receiver
	// ends it after batchTimeout.
	laneRest = batchTimeout / 3
	// batchTimeout is how long the next batch of a stream may take to begin and to arrive.
	batchTimeout = time.Minute
	// maxReading is how many streams of one connection are read at the same time; the batches of further
	// ones wait in the connection's windows.
	maxReading = 32
)

// laneWriter sends batches. Only one goroutine uses it.
type laneWriter struct {
	c    *conn
	open [lanes]*quicgo.SendStream
	used [lanes]time.Time
	next int
	buf  []byte
}

// writeBatches is the only sender of the register lane: it takes all that
// waits and sends it as one batch.
func (c *conn) writeBatches(ctx context.Context) {
	w := laneWriter{c: c}
	for {
		select {
		case <-c.messages:
		case <-ctx.Done():
			return
		}
		for batch, n := c.peer.takeMessages(c, nil); n > 0; batch, n = c.peer.takeMessages(c, batch) {
			if err := w.write(ctx, batch, n); err != nil {
				c.peer.count(func(s *Counters) { s.MessagesDropped += uint64(n) })
				if ctx.Err() == nil && c.qc.Context().Err() == nil {
					c.e.limited.warn("a batch could not be sent", "peer", c.peer.site.Name, "err", err)
				}
			}
		}
	}
}

// keepBuffer is the size of the largest buffer that is kept for another batch.
const keepBuffer = 64 << 10

// write sends one batch of so many messages.
func (w *laneWriter) write(ctx context.Context, batch []byte, messages int) error {
	head, err := encodeHeader(w.c.e.header())
	if err != nil {
		return err
	}
	n := len(head) + len(batch)
	w.buf = binary.BigEndian.AppendUint32(w.buf[:0], uint32(n))
	w.buf = append(append(w.buf, head...), batch...)
	if n > laneFill {
		err = w.sendAlone(ctx)
	} else {
		err = w.send(ctx)
	}
	if cap(w.buf) > keepBuffer {
		w.buf = nil
	}
	if err != nil {
		return fmt.Errorf("write a batch: %w", err)
	}
	w.c.peer.count(func(s *Counters) {
		s.BatchesSent++
		s.MessagesSent += uint64(messages)
		s.BatchBytesSent += uint64(n)
	})
	return nil
}

func (w *laneWriter) sendAlone(ctx context.Context) error {
	s, err := w.c.qc.OpenUniStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write(w.buf); err != nil {
		s.CancelWrite(streamDone)
		return err
	}
	return s.Close()
}

// send writes to the next of the open streams.
func (w *laneWriter) send(ctx context.Context) error {
	w.next = (w.next + 1) % lanes
	s, now := &w.open[w.next], time.Now()
	if *s != nil && now.Sub(w.used[w.next]) > laneRest {
		_ = (*s).Close()
		*s = nil
	}
	if *s == nil {
		opened, err := w.c.qc.OpenUniStreamSync(ctx)
		if err != nil {
			return err
		}
		*s = opened
	}
	w.used[w.next] = now
	_, err := (*s).Write(w.buf)
	if err != nil { // the next batch has another one
		(*s).CancelWrite(streamDone)
		*s = nil
	}
	return err
}

// readBatches accepts the streams of the register lane. It accepts no more
// than it can deliver, so that a slow receiver slows its senders down.
func (c *conn) readBatches(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxReading)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s, err := c.qc.AcceptUniStream(ctx)
		if err != nil {
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			r := laneReader{c: c, stream: s, in: bufio.NewReaderSize(s, 4<<10)}
			if err := r.run(ctx); err != nil {
				s.CancelRead(streamRefused)
				c.refuse(ctx, "a batch", err)
			}
		})
	}
}

// laneReader reads the batches of one stream.
type laneReader struct {
	c        *conn
	stream   *quicgo.ReceiveStream
	in       *bufio.Reader
	deadline time.Time
}

func (r *laneReader) run(ctx context.Context) error {
	if !r.c.register {
		return fmt.Errorf("the register lane is open to voters of configuration %d only", r.c.e.cfg.Configuration)
	}
	for {
		if err := r.extend(); err != nil {
			return fmt.Errorf("read a batch: %w", err)
		}
		b, size, err := r.batch()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		r.c.hear()
		if err := r.c.check(b.Header); err != nil {
			return err
		}
		r.c.peer.count(func(s *Counters) {
			s.BatchesReceived++
			s.MessagesReceived += uint64(len(b.Messages))
			s.BatchBytesReceived += uint64(size)
		})
		r.c.e.cfg.Deliver(ctx, r.c.peer.site.Number, b)
	}
}

// extend gives the next batch its time: not exactly, a batch is too small for a timer of its own.
func (r *laneReader) extend() error {
	now := time.Now()
	if r.deadline.Sub(now) > batchTimeout*3/4 {
		return nil
	}
	r.deadline = now.Add(batchTimeout)
	return r.stream.SetReadDeadline(r.deadline)
}

// batch reads the next one. The error is io.EOF itself where the stream ends before it.
func (r *laneReader) batch() (b Batch, size int, err error) {
	size, err = FrameSize(r.in, maxBatch)
	if err != nil {
		return b, 0, err
	}
	if size <= r.in.Size() { // DecodeBatch keeps nothing of it
		p, err := r.in.Peek(size)
		if err != nil {
			return b, 0, fmt.Errorf("read a batch: %w", err)
		}
		b, err = DecodeBatch(p)
		_, _ = r.in.Discard(size)
		return b, size, err
	}
	buf := r.c.e.buffers.Get().(*bytes.Buffer)
	buf.Reset()
	n, err := buf.ReadFrom(io.LimitReader(r.in, int64(size)))
	if err == nil && n < int64(size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return b, 0, fmt.Errorf("read a batch: %w", err)
	}
	b, err = DecodeBatch(buf.Bytes())
	if buf.Cap() <= keepBuffer {
		r.c.e.buffers.Put(buf)
	}
	return b, size, err
}
