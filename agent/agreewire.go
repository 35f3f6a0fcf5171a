package agent

import (
	"gus/quic"
	"gus/register"
)

// purposeAgreement is that of a stream on which a voter compares what it holds
// with what another does; quic/WIRE.md states the bytes.
const purposeAgreement quic.Purpose = 5

// What can be asked for on a stream of agreement.
const (
	askSums    = 1 // of the partitions, and how far the other is
	askBuckets = 2 // the sums of a partition's buckets
	askBucket  = 3 // what is shown of all keys in some buckets of a partition
	askKeys    = 4 // what is shown of these keys
)

// agreeAsk is one question.
type agreeAsk struct {
	Kind    int          `cbor:"1,keyasint"`
	Version uint64       `cbor:"2,keyasint,omitempty"` // with askSums: streamVersion
	Last    register.Seq `cbor:"3,keyasint,omitempty"` // with askSums: the highest that who asks has saved
	Part    int          `cbor:"4,keyasint,omitempty"` // with askBuckets and askBucket
	Buckets []uint16     `cbor:"5,keyasint,omitempty"` // with askBucket, ascending
	Keys    []string     `cbor:"6,keyasint,omitempty"` // with askKeys: a page at most
}

// agreeAnswer is the answer to one question, or part of it: those with More are
// not the last.
type agreeAnswer struct {
	Sums     []uint64         `cbor:"1,keyasint,omitempty"` // as asked for
	Database uint64           `cbor:"2,keyasint,omitempty"` // with the partitions' sums: its own
	Last     register.Seq     `cbor:"3,keyasint,omitempty"` // its highest saved one
	Of       uint64           `cbor:"4,keyasint,omitempty"` // its cursor into the database of who asks:
	Upto     register.Seq     `cbor:"5,keyasint,omitempty"` // up to this it has taken in all
	Shown    []register.Shown `cbor:"6,keyasint,omitempty"` // in the order of their keys, or as asked for
	More     bool             `cbor:"7,keyasint,omitempty"`
}

// checkSums refuses sums that are not as many as were asked for.
func (a *agreeAnswer) checkSums(n int) error {
	if len(a.Sums) != n || len(a.Shown) > 0 || a.More {
		return nonsense("%d sums in place of %d", len(a.Sums), n)
	}
	return nil
}

// check refuses a question that cannot be.
func (q *agreeAsk) check() error {
	if q.Part < 0 || q.Part >= register.Partitions {
		return nonsense("partition %d", q.Part)
	}
	last := -1
	for _, b := range q.Buckets {
		if int(b) <= last || int(b) >= register.Buckets {
			return nonsense("bucket %d after %d", b, last)
		}
		last = int(b)
	}
	if len(q.Keys) > maxShown {
		return nonsense("%d keys in a page", len(q.Keys))
	}
	for _, key := range q.Keys {
		if err := register.CheckKey(key); err != nil {
			return nonsense("%v", err)
		}
	}
	return nil
}
