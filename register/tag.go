package register

import (
	"math/bits"
	"strconv"
	"strings"
)

// Voter is a voter's permanent number, 1 to MaxVoter; 0 is nobody. The
// configuration gives it once and never to another (PROTOCOL.md section 1).
type Voter uint8

// MaxVoter is the highest number that a voter can have: a Set has one bit for
// each of them.
const MaxVoter Voter = 63

// MaxVoters is the largest number of voters in one configuration.
const MaxVoters = 9

// Set is a set of voters: bit v stands for voter v.
type Set uint64

// SetOf returns the set of the given voters.
func SetOf(voters ...Voter) Set {
	var s Set
	for _, v := range voters {
		s = s.With(v)
	}
	return s
}

// Has says whether v is in s.
func (s Set) Has(v Voter) bool { return s&(1<<v) != 0 }

// With returns s and v.
func (s Set) With(v Voter) Set { return s | 1<<v }

// Without returns s less v.
func (s Set) Without(v Voter) Set { return s &^ (1 << v) }

// Len returns the number of voters in s.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// All yields the members of s in ascending order.
func (s Set) All(yield func(Voter) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(Voter(bits.TrailingZeros64(uint64(s)))) {
			return
		}
	}
}

// Tag is the version of a value: ordered by TS, then by Owner, the voter that
// issued the write. The zero Tag is below all others and belongs to the value
// "absent" (PROTOCOL.md section 1). On the wire it is the array [ts, owner].
type Tag struct {
	_     struct{} `cbor:",toarray"`
	TS    uint64
	Owner Voter
}

// maxTS bounds timestamps: one at or above it is refused on receipt.
const maxTS = 1 << 63

// clockBits is how far the milliseconds of a timestamp stand to the left of
// its counter.
const clockBits = 16

// maxClock bounds the clock's part of a timestamp in milliseconds (the year
// 4199), so that a clock gone wild leaves room for counting on.
const maxClock = 1 << 46

// IsZero says whether t is the tag of the value "absent".
func (t Tag) IsZero() bool { return t == Tag{} }

// Less says whether t is ordered before u.
func (t Tag) Less(u Tag) bool { return t.TS < u.TS || t.TS == u.TS && t.Owner < u.Owner }

// Clock returns the milliseconds since 1970 in t's timestamp: when its owner's
// clock said it was written, or later where a higher timestamp had been seen.
func (t Tag) Clock() int64 { return int64(t.TS >> clockBits) }

// String returns the tag as "ts.owner", the form that ParseTag reads.
func (t Tag) String() string {
	return strconv.FormatUint(t.TS, 10) + "." + strconv.FormatUint(uint64(t.Owner), 10)
}

// ParseTag reads a tag as String prints it.
func ParseTag(s string) (Tag, error) {
	ts, owner, ok := strings.Cut(s, ".")
	if !ok {
		return Tag{}, invalid("version %q is not of the form TIME.VOTER", s)
	}
	n, err := strconv.ParseUint(ts, 10, 63)
	if err != nil {
		return Tag{}, invalid("version %q does not begin with a number below 2^63", s)
	}
	o, err := strconv.ParseUint(owner, 10, 6)
	if err != nil {
		return Tag{}, invalid("version %q does not end with a voter's number, 0 to 63", s)
	}
	return Tag{TS: n, Owner: Voter(o)}, nil
}

func maxTag(a, b Tag) Tag {
	if a.Less(b) {
		return b
	}
	return a
}
