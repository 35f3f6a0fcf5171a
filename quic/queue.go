package quic

// Limits of a peer's queues.
const (
	maxQueued      = 16 << 10 // register messages
	maxQueuedBytes = 16 << 20 // of register messages: some with the largest values
	maxDatagrams   = 64       // gossip packets
)

// outbox is a peer's queue of encoded register messages, oldest first, one behind the other as
// they stand in a batch. What does not fit is refused. It is guarded by its peer's lock.
type outbox struct {
	data  []byte
	ends  []int  // in data, of each message
	spare []byte // used, for the next messages
}

// push appends m, or says that it does not fit. It keeps nothing of m.
func (q *outbox) push(m []byte) bool {
	if len(q.ends) >= maxQueued || len(q.data)+len(m) > maxQueuedBytes {
		return false
	}
	q.data = append(q.data, m...)
	q.ends = append(q.ends, len(q.data))
	return true
}

// take removes what goes into the next batch: all, up to the batch's limits,
// and at least one. The slice is the taker's, until give. n is how many messages it has.
func (q *outbox) take() (batch []byte, n int) {
	for n < len(q.ends) && n < maxBatchMessages && (n == 0 || q.ends[n] <= batchFill) {
		n++
	}
	if n == 0 {
		return nil, 0
	}
	if n == len(q.ends) {
		batch, q.data, q.ends, q.spare = q.data, q.spare[:0], q.ends[:0], nil
		return batch, n
	}
	size := q.ends[n-1]
	batch, q.data = q.data[:size:size], q.data[size:]
	q.ends = append(q.ends[:0], q.ends[n:]...)
	for i := range q.ends {
		q.ends[i] -= size
	}
	return batch, n
}

// give gives back the slice of a batch, once it is not needed any more.
func (q *outbox) give(batch []byte) {
	if cap(batch) > cap(q.spare) && cap(batch) <= keepBuffer {
		q.spare = batch[:0]
	}
}

// clear drops everything and returns how many messages that was.
func (q *outbox) clear() int {
	n := len(q.ends)
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
