package agent

import (
	"context"
	"io"
	"iter"

	"gus/quic"
	"gus/register"
)

// comparison is what a site compares with one other, over one stream.
type comparison struct {
	*catchup
	peer   *follower
	stream *quic.Stream
	told   agreeAnswer // how far the peer is
	sums   [register.Partitions]uint64
	last   register.Seq // of this site, before it looked
}

// pair is what two sites show of one key.
type pair struct {
	mine, theirs register.Shown
}

// differs says whether both sites show the key settled and not the same.
func (p pair) differs() bool {
	return p.mine.Settled() && p.theirs.Settled() && (p.mine.Tag != p.theirs.Tag || p.mine.Sum != p.theirs.Sum)
}

// same says whether p is about the same writes as q.
func (p pair) same(q pair) bool {
	return p.mine.Tag == q.mine.Tag && p.mine.Sum == q.mine.Sum && p.theirs.Tag == q.theirs.Tag && p.theirs.Sum == q.theirs.Sum
}

// compare opens a comparison with p, and calls f with it, which has the sums of
// partitions of both sites then.
func (c *catchup) compare(ctx context.Context, p *follower, f func(x *comparison) error) error {
	s, err := c.endpoint.OpenStream(ctx, p.name, purposeAgreement)
	if err != nil {
		return err
	}
	defer s.Close()
	defer bind(ctx, s)()
	x := &comparison{catchup: c, peer: p, stream: s, last: c.store.Last()}
	if x.sums, err = c.sums(ctx); err != nil {
		return err
	}
	if err := x.ask(&agreeAsk{Kind: askSums, Version: streamVersion, Last: x.last}, &x.told); err != nil {
		return err
	}
	if err := x.told.checkSums(register.Partitions); err != nil {
		return err
	}
	p.hear(x.told.Last)
	return f(x)
}

// ask asks a question and reads one answer.
func (x *comparison) ask(q *agreeAsk, a *agreeAnswer) error {
	if err := say(x.stream, q); err != nil {
		return err
	}
	return x.hear(a)
}

func (x *comparison) hear(a *agreeAnswer) error {
	err := hearFrame(x.stream, maxAnswer, a)
	if err == io.EOF {
		err = errEnded
	}
	return err
}

// parts returns the partitions whose sums differ.
func (x *comparison) parts() (parts []int) {
	for i, sum := range x.sums {
		if sum != x.told.Sums[i] {
			parts = append(parts, i)
		}
	}
	return parts
}

// buckets returns the buckets of a partition whose sums differ now.
func (x *comparison) buckets(ctx context.Context, part int) (buckets []uint16, err error) {
	mine, err := x.bucketSums(ctx, part)
	if err != nil {
		return nil, err
	}
	var a agreeAnswer
	if err := x.ask(&agreeAsk{Kind: askBuckets, Part: part}, &a); err != nil {
		return nil, err
	}
	if err := a.checkSums(register.Buckets); err != nil {
		return nil, err
	}
	for i, sum := range mine {
		if sum != a.Sums[i] {
			buckets = append(buckets, uint16(i))
		}
	}
	return buckets, nil
}

// keys calls f with what both sites show of each key in these buckets, in the
// order of the keys. It needs the memory of a page.
func (x *comparison) keys(ctx context.Context, part int, buckets []uint16, f func(pair)) error {
	if err := say(x.stream, &agreeAsk{Kind: askBucket, Part: part, Buckets: buckets}); err != nil {
		return err
	}
	mine, stopMine := iter.Pull2(x.keysIn(part, buckets))
	defer stopMine()
	theirs, stopTheirs := iter.Pull2(x.shown(part, buckets))
	defer stopTheirs()
	m, err, moreMine := mine()
	t, err2, moreTheirs := theirs()
	var keys []string
	var page []register.Shown // theirs, of keys
	for moreMine || moreTheirs {
		if err != nil || err2 != nil {
			break
		}
		key, s := m, nothing(m)
		if !moreMine || moreTheirs && t.Key <= m {
			key, s = t.Key, t
		}
		keys, page = append(keys, key), append(page, s)
		if moreMine && m == key {
			m, err, moreMine = mine()
		}
		if moreTheirs && t.Key == key {
			t, err2, moreTheirs = theirs()
		}
		if len(keys) == maxShown {
			if err := x.pairs(ctx, keys, page, f); err != nil {
				return err
			}
			keys, page = keys[:0], page[:0]
		}
	}
	for _, err := range []error{err, err2} {
		if err != nil {
			return err
		}
	}
	return x.pairs(ctx, keys, page, f)
}

// nothing is what a site shows of a key that it does not hold.
func nothing(key string) register.Shown {
	return register.Shown{Key: key, Decided: true, Held: true}
}

// shown yields what the peer answers to askBucket, and refuses keys that are out
// of order or of another bucket.
func (x *comparison) shown(part int, buckets []uint16) iter.Seq2[register.Shown, error] {
	var in [register.Buckets]bool
	for _, b := range buckets {
		in[b] = true
	}
	return func(yield func(register.Shown, error) bool) {
		last := ""
		for more := true; more; {
			var a agreeAnswer
			err := x.hear(&a)
			if err == nil {
				err = checkShown(a.Shown)
			}
			if err == nil && a.More && len(a.Shown) == 0 {
				err = nonsense("a page without keys")
			}
			if err != nil {
				yield(register.Shown{}, err)
				return
			}
			more = a.More
			for _, s := range a.Shown {
				if s.Key <= last || register.Partition(s.Key) != part || !in[register.Bucket(s.Key)] {
					yield(register.Shown{}, nonsense("%q after %q in partition %d", s.Key, last, part))
					return
				}
				if last = s.Key; !yield(s, nil) {
					return
				}
			}
		}
	}
}

func (x *comparison) pairs(ctx context.Context, keys []string, theirs []register.Shown, f func(pair)) error {
	mine, err := x.loop.show(ctx, keys)
	if err != nil {
		return err
	}
	for i := range mine {
		f(pair{mine[i], theirs[i]})
	}
	return nil
}

// again calls f with what both sites show of each of keys now.
func (x *comparison) again(ctx context.Context, keys []string, f func(pair)) error {
	for len(keys) > 0 {
		n, size := 0, 0
		for n < len(keys) && n < maxShown && size < maxShownBytes {
			size += len(keys[n])
			n++
		}
		var a agreeAnswer
		if err := x.ask(&agreeAsk{Kind: askKeys, Keys: keys[:n]}, &a); err != nil {
			return err
		}
		if len(a.Shown) != n {
			return nonsense("%d keys in place of %d", len(a.Shown), n)
		}
		for i, s := range a.Shown {
			if s.Key != keys[i] {
				return nonsense("%q in place of %q", s.Key, keys[i])
			}
		}
		if err := x.pairs(ctx, keys[:n], a.Shown, f); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}
