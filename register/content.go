package register

import "hash/crc32"

// Keys are divided into Partitions by a hash, and each of those into Buckets:
// what two voters hold is compared first by sums over partitions, then over
// buckets, and only then key by key (PROTOCOL.md section 5, agreement).
const (
	Partitions = 16
	Buckets    = 256
)

// hashKey is the CRC-32C of a key. It is part of the formats on disk and on the wire.
func hashKey(key string) uint32 {
	sum, table := ^uint32(0), crc32.MakeTable(crc32.Castagnoli)
	for i := range len(key) { // the library takes bytes, which would be a copy on the heap
		sum = table[byte(sum)^key[i]] ^ sum>>8
	}
	return ^sum
}

// Partition returns the partition of key, 0 to Partitions - 1.
func Partition(key string) int { return int(hashKey(key) % Partitions) }

// Bucket returns the bucket of key within its partition, 0 to Buckets - 1.
func Bucket(key string) int { return int(hashKey(key) / Partitions % Buckets) }

// content has for each bucket the sum, modulo 2^64, of the sums of its settled
// writes. It is kept up with each change, so that it costs the same however
// many keys there are.
type content [Partitions][Buckets]uint64

// add has g's bucket count cur once it is settled, and says whether it does so now.
func (c *content) add(g *register) bool {
	if g.counted || !g.settled() || g.cur.Tag.IsZero() {
		return false
	}
	g.counted = true
	c.change(g, g.sum())
	return true
}

// drop takes cur out of g's bucket: it is about to be replaced.
func (c *content) drop(g *register) {
	if g.counted {
		g.counted = false
		c.change(g, -g.sum())
	}
}

func (c *content) change(g *register, by uint64) {
	h := hashKey(g.key)
	c[h%Partitions][h/Partitions%Buckets] += by
}

// sum is a hash of cur with all that a reader sees of it: a comparison of tags
// alone would miss a value that differs under the same tag.
func (g *register) sum() uint64 {
	w := &g.cur.Write
	if w.Tag.IsZero() {
		return 0
	}
	h := mix(uint64(hashKey(g.key))<<32 | uint64(len(g.key)))
	h = mix(h ^ w.Tag.TS)
	h = mix(h ^ uint64(w.Tag.Owner))
	h = mix(h ^ uint64(crc32.Checksum(w.Value, crc32.MakeTable(crc32.Castagnoli)))<<32 ^ uint64(len(w.Value)))
	if w.Deleted {
		h = mix(h ^ 1)
	}
	return h
}

// mix spreads h over all bits (the finalizer of splitmix64), so that sums of
// sums do not cancel as those of plain checksums would.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Digests returns for each partition the sum over its buckets: equal where two
// voters hold the same settled writes and know them to be settled.
func (r *Replica) Digests() (sums [Partitions]uint64) {
	for p := range r.content {
		for _, s := range r.content[p] {
			sums[p] += s
		}
	}
	return sums
}

// BucketDigests returns the sums of the buckets of partition part.
func (r *Replica) BucketDigests(part int) [Buckets]uint64 { return r.content[part] }

// Shown is what a voter shows of a key to whoever compares or catches up: its
// newest write, and whether that is settled. A key that it does not hold has
// the zero Tag and is settled.
type Shown struct {
	Key     string `cbor:"1,keyasint"`
	Tag     Tag    `cbor:"2,keyasint"`
	Sum     uint64 `cbor:"3,keyasint,omitempty"` // of key, tag and content
	Decided bool   `cbor:"4,keyasint,omitempty"` // as Write.Decided
	Held    bool   `cbor:"5,keyasint,omitempty"` // a read quorum is known to have accepted it
}

// Settled says whether the write will never be retagged.
func (s Shown) Settled() bool { return s.Decided || s.Held }

// Show returns what r shows of each of keys, in their order. A write that is not yet
// durable here counts as not settled (PROTOCOL.md section 6).
func (r *Replica) Show(keys []string) []Shown {
	shown := make([]Shown, 0, len(keys))
	for _, key := range keys {
		shown = append(shown, r.show(key))
	}
	return shown
}

func (r *Replica) show(key string) Shown {
	g := r.regs[key]
	switch {
	case g == nil || g.cur.Tag.IsZero():
		return Shown{Key: key, Decided: true, Held: true}
	case !r.durable(g):
		return Shown{Key: key, Tag: g.cur.Tag}
	}
	return Shown{Key: key, Tag: g.cur.Tag, Sum: g.sum(), Decided: g.cur.Decided, Held: g.readable == g.cur}
}

// Reread has r read key, as it reads what stays open: where two voters show
// different settled writes, that brings the later one to the one behind.
func (r *Replica) Reread(key string) { r.queueReread(r.open(key)) }
