package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"gus/agent/client"
	"gus/register"
)

const (
	// lookAgainAfter is when keys that differed are looked at again, lookAgain
	// times: what is on its way arrives meanwhile.
	lookAgainAfter = 1500 * time.Millisecond
	lookAgain      = 2
	// maxNamed bounds the keys that one verification names a site. Where there are
	// more, all is compared again, up to compareAgain times: a site catches up.
	maxNamed     = 10_000
	compareAgain = 10
)

// verify has this site compared with the others.
func (n *node) verify(ctx context.Context) (client.Verification, error) {
	v, err := n.catchup.verify(ctx)
	v.Site = n.id.Name
	return v, err
}

// verify compares all that this site holds with each other voter, now.
func (c *catchup) verify(ctx context.Context) (client.Verification, error) {
	if !c.verifying.TryLock() {
		return client.Verification{}, fmt.Errorf("%w: another verification is under way: try again when it has ended", client.ErrNotSent)
	}
	defer c.verifying.Unlock()
	v := client.Verification{Compared: []string{}, Differ: []client.Disagreement{}}
	if err := c.loop.visit(ctx, func(r *register.Replica) { v.Keys = r.Status().Keys }); err != nil {
		return v, err
	}
	all := make([]verified, len(c.peers))
	var wg sync.WaitGroup
	for i, p := range c.peers {
		wg.Go(func() {
			all[i] = c.verifyWith(ctx, p)
			for n := 0; n < compareAgain && all[i].err == nil && all[i].more > 0; n++ {
				all[i] = c.verifyWith(ctx, p)
			}
		})
	}
	wg.Wait()
	for i, p := range c.peers {
		if err := all[i].err; err != nil {
			v.NotCompared = append(v.NotCompared, client.NotCompared{Site: p.name, Why: err.Error()})
			continue
		}
		v.Compared = append(v.Compared, p.name)
		v.More += all[i].more
		v.Differ = append(v.Differ, all[i].differ...)
	}
	slices.SortFunc(v.Differ, func(a, b client.Disagreement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Peer, b.Peer))
	})
	return v, nil
}

// verified is what came of the comparison with one site.
type verified struct {
	differ []client.Disagreement
	more   int // that are not in differ
	err    error
}

func (c *catchup) verifyWith(ctx context.Context, p *follower) (v verified) {
	if !p.connected() {
		return verified{err: errAway}
	}
	begin := time.Now()
	v.err = c.compare(ctx, p, func(x *comparison) error {
		differ, more, err := x.all(ctx)
		for range lookAgain {
			if err != nil || len(differ) == 0 {
				break
			}
			if err = sleep(ctx, lookAgainAfter); err == nil {
				err = x.remain(ctx, differ)
			}
		}
		v.more = more
		for _, key := range slices.Sorted(maps.Keys(differ)) {
			v.differ = append(v.differ, disagreementOf(p.name, differ[key], begin))
		}
		return err
	})
	if v.err != nil && ctx.Err() != nil {
		v.err = errors.New("not compared in time")
	}
	return v
}

// all returns the keys that differ, maxNamed at most, and how many more do.
func (x *comparison) all(ctx context.Context) (differ map[string]pair, more int, err error) {
	differ = map[string]pair{}
	for _, part := range x.parts() {
		buckets, err := x.buckets(ctx, part)
		if err != nil {
			return nil, 0, err
		}
		err = x.keys(ctx, part, buckets, func(now pair) {
			switch {
			case !now.differs():
			case len(differ) < maxNamed:
				differ[now.mine.Key] = now
			default:
				more++
			}
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return differ, more, nil
}

// remain takes out of differ what the sites do not show as before.
func (x *comparison) remain(ctx context.Context, differ map[string]pair) error {
	return x.again(ctx, slices.Sorted(maps.Keys(differ)), func(now pair) {
		if was := differ[now.mine.Key]; !now.differs() || !was.same(now) {
			delete(differ, now.mine.Key)
		}
	})
}
