package snapshot

import (
	"fmt"
	"hash/crc32"

	"gus/register"
)

// SQLite does not checksum its pages, so each row has a sum of what is in it.
// All are CRC-32C, which finds each single wrong bit. No two rows of a table
// that could be taken for one another have the same content summed.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordSum is the sum of a row of records. Its upper half covers seq and key
// alone, so that Changes, which reads no body, finds a wrong bit too.
func recordSum(key []byte, seq register.Seq, epoch int64, body []byte) int64 {
	head := orderSum(key, seq)
	return int64(head)<<32 | int64(crc32.Update(head^mix(uint64(epoch)), castagnoli, body))
}

// orderSum is the upper half of recordSum.
func orderSum(key []byte, seq register.Seq) uint32 {
	return crc32.Update(mix(uint64(seq)), castagnoli, key)
}

// mix makes a CRC's beginning of n. A CRC that begins otherwise ends otherwise.
func mix(n uint64) uint32 { return uint32(n) ^ uint32(n>>32) }

// sumOf is the sum of a row of one of the small tables: of its name and the
// values of all other columns.
func sumOf(table string, values ...any) int64 {
	sum := crc32.Checksum([]byte(table), castagnoli)
	for _, v := range values {
		sum = crc32.Update(sum, castagnoli, fmt.Appendf(nil, "%T %q;", v, fmt.Sprint(v)))
	}
	return int64(sum)
}
