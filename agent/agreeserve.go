package agent

import (
	"context"
	"fmt"
	"io"
	"iter"

	"gus/quic"
	"gus/register"
)

// maxAgreeing is how many comparisons are served a site at once: that of the
// epoch, and one that somebody asked for.
const maxAgreeing = 2

// serveAgreement serves a stream of purposeAgreement.
func (c *catchup) serveAgreement(ctx context.Context, from quic.Site, s *quic.Stream) {
	ctx, leave := c.enter(ctx, from.Name, purposeAgreement, maxAgreeing)
	defer leave()
	defer bind(ctx, s)()
	for {
		var ask agreeAsk
		err := hearFrame(s, maxAsk, &ask)
		if err == io.EOF {
			return // it knows enough
		}
		if err == nil {
			err = ask.check()
		}
		if err == nil {
			err = c.answerAgreement(ctx, from, s, &ask)
		}
		if err != nil {
			c.note(from, err)
			return
		}
	}
}

func (c *catchup) answerAgreement(ctx context.Context, from quic.Site, s *quic.Stream, ask *agreeAsk) error {
	switch ask.Kind {
	case askSums:
		return c.answerSums(ctx, from, s, ask)
	case askBuckets:
		sums, err := c.bucketSums(ctx, ask.Part)
		if err != nil {
			return err
		}
		return say(s, &agreeAnswer{Sums: sums[:]})
	case askBucket:
		return c.answerBucket(ctx, s, ask)
	case askKeys:
		shown, err := c.loop.show(ctx, ask.Keys)
		if err != nil {
			return err
		}
		return say(s, &agreeAnswer{Shown: shown})
	}
	return nonsense("question %d", ask.Kind)
}

// answerSums also hears how far the asker has come, which otherwise travels with
// messages only: where it is further, this site pulls.
func (c *catchup) answerSums(ctx context.Context, from quic.Site, s *quic.Stream, ask *agreeAsk) error {
	if ask.Version != streamVersion {
		return nonsense("version %d, this is version %d", ask.Version, streamVersion)
	}
	sums, err := c.sums(ctx)
	if err != nil {
		return err
	}
	a := &agreeAnswer{Sums: sums[:], Database: c.store.Database(), Last: c.store.Last()}
	for _, p := range c.peers {
		if p.voter == from.Number {
			p.hear(ask.Last)
			p.mu.Lock()
			a.Of, a.Upto = p.cursor.Database, p.cursor.Seq
			p.mu.Unlock()
		}
	}
	return say(s, a)
}

// answerBucket shows the keys of some buckets in pages.
func (c *catchup) answerBucket(ctx context.Context, s *quic.Stream, ask *agreeAsk) error {
	var page []string
	flush := func(more bool) error {
		shown, err := c.loop.show(ctx, page)
		if err != nil {
			return err
		}
		page = page[:0]
		return say(s, &agreeAnswer{Shown: shown, More: more})
	}
	size := 0
	for key, err := range c.keysIn(ask.Part, ask.Buckets) {
		if err != nil {
			return err
		}
		if page, size = append(page, key), size+len(key); len(page) == maxShown || size >= maxShownBytes {
			if err := flush(true); err != nil {
				return err
			}
			size = 0
		}
	}
	return flush(false)
}

// keysIn yields the keys that this site holds in some buckets of a partition, in order.
func (c *catchup) keysIn(part int, buckets []uint16) iter.Seq2[string, error] {
	var in [register.Buckets]bool
	for _, b := range buckets {
		in[b] = true
	}
	return func(yield func(string, error) bool) {
		for key, err := range c.store.Keys(part) {
			if err != nil {
				yield("", fmt.Errorf("read the keys of partition %d: %w", part, err))
				return
			}
			if in[register.Bucket(key)] && !yield(key, nil) {
				return
			}
		}
	}
}

func (c *catchup) sums(ctx context.Context) (sums [register.Partitions]uint64, err error) {
	err = c.loop.visit(ctx, func(r *register.Replica) { sums = r.Digests() })
	return sums, err
}

func (c *catchup) bucketSums(ctx context.Context, part int) (sums [register.Buckets]uint64, err error) {
	err = c.loop.visit(ctx, func(r *register.Replica) { sums = r.BucketDigests(part) })
	return sums, err
}
