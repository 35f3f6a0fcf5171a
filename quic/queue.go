package quic

// Limits of a peer's queues.
const (
	maxQueued      = 16 << 10 // register messages
	maxQueuedBytes = 16 << 20 // of register messages: some with the largest values
	maxDatagrams   = 64       // gossip packets
)

// outbox is a peer's queue of encoded register messages, oldest first. What
// does not fit is refused. It is guarded by its peer's lock.
type outbox struct {
	messages [][]byte
	bytes    int
}

// push appends m, or says that it does not fit.
func (q *outbox) push(m []byte) bool {
	if len(q.messages) >= maxQueued || q.bytes+len(m) > maxQueuedBytes {
		return false
	}
	q.messages = append(q.messages, m)
	q.bytes += len(m)
	return true
}

// take removes what goes into the next batch: all, up to the batch's limits,
// and at least one. The slice is the taker's, to be cleared after use.
func (q *outbox) take() [][]byte {
	n, size := 0, 0
	for n < len(q.messages) && n < maxBatchMessages {
		size += len(q.messages[n])
		if n > 0 && size > batchFill {
			size -= len(q.messages[n])
			break
		}
		n++
	}
	taken := q.messages[:n:n]
	q.messages = q.messages[n:]
	q.bytes -= size
	return taken
}

// clear drops everything and returns how many messages that was.
func (q *outbox) clear() int {
	n := len(q.messages)
	*q = outbox{}
	return n
}

// ring is a peer's queue of gossip packets. Where it is full, the oldest goes:
// news is worth more than old news. It is guarded by its peer's lock.
type ring struct {
	packets [][]byte
}

// push appends p and says whether an older packet was dropped for it.
func (r *ring) push(p []byte) (dropped bool) {
	if len(r.packets) == maxDatagrams {
		copy(r.packets, r.packets[1:])
		r.packets[maxDatagrams-1] = p
		return true
	}
	r.packets = append(r.packets, p)
	return false
}

// pop removes the oldest packet; it is nil where there is none.
func (r *ring) pop() []byte {
	if len(r.packets) == 0 {
		return nil
	}
	p := r.packets[0]
	r.packets = append(r.packets[:0], r.packets[1:]...)
	return p
}
