package agent

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"gus/agent/client"
	"gus/membership"
	"gus/register"
)

// reach is which voters are connected, and since when. Whether a set is begun
// depends on it, and what an error says; no quorum does: those are counted from
// answers alone.
type reach struct {
	self  register.Voter
	conf  membership.Configuration
	up    register.Set // others that are connected
	since map[register.Voter]time.Time
	lost  time.Time // when the last quorum went out of reach; zero while there is one
}

func newReach(self register.Voter, conf membership.Configuration, now time.Time) *reach {
	r := &reach{self: self, conf: conf, since: map[register.Voter]time.Time{}}
	for _, v := range conf.Voters {
		r.since[v.Number] = now
	}
	if !r.ok() {
		r.lost = now
	}
	return r
}

func (r *reach) clone() reach {
	c := *r
	c.since = maps.Clone(r.since)
	return c
}

func (r *reach) set(v register.Voter, up bool, now time.Time) {
	if !up && !r.up.Has(v) {
		return
	}
	r.since[v] = now // up again: by another connection, as after a restart that nobody missed
	if up {
		r.up = r.up.With(v)
	} else {
		r.up = r.up.Without(v)
	}
	switch {
	case r.ok():
		r.lost = time.Time{}
	case r.lost.IsZero():
		r.lost = now
	}
}

// lostAt is lost in Unix nanoseconds; 0 while a quorum is in reach.
func (r *reach) lostAt() int64 {
	if r.lost.IsZero() {
		return 0
	}
	return r.lost.UnixNano()
}

// count returns the voters in reach, this one included.
func (r *reach) count() int {
	if r.self == 0 {
		return r.up.Len()
	}
	return r.up.Len() + 1
}

func (r *reach) write() bool { return r.count() >= r.need(r.conf.WriteQuorum) }
func (r *reach) ok() bool    { return r.write() && r.read() }
func (r *reach) read() bool  { return r.count() >= r.need(r.conf.ReadQuorum) }

// need is how many voters have to be in reach where quorum is needed: an observer asks one.
func (r *reach) need(quorum int) int {
	if r.self == 0 {
		return 1
	}
	return quorum
}

// name returns a voter's name.
func (r *reach) name(v register.Voter) string { return voterName(r.conf, v) }

// away returns the voters that are not connected.
func (r *reach) away() []membership.Voter {
	var all []membership.Voter
	for _, v := range r.conf.Voters {
		if v.Number != r.self && !r.up.Has(v.Number) {
			all = append(all, v)
		}
	}
	return all
}

// missing returns the ErrNoQuorum of an operation ("read", "write") that is
// over its time: who is missing, and since when.
func (r *reach) missing(operation string) error {
	need := r.conf.ReadQuorum
	if operation == "write" {
		need = r.conf.WriteQuorum
	}
	if r.count() >= need {
		return fmt.Errorf("%w: %d voters are connected, and too few of them answered in time: nothing changed", client.ErrNoQuorum, r.count())
	}
	var away []string
	for _, v := range r.away() {
		away = append(away, v.Name+" (since "+r.since[v.Number].Format(time.DateTime)+")")
	}
	return fmt.Errorf("%w: a %s needs %d of %d voters and reaches %d: nothing changed; missing: %s",
		client.ErrNoQuorum, operation, need, len(r.conf.Voters), r.count(), strings.Join(away, ", "))
}
