package snapshot

import (
	"time"

	"gus/register"
)

// PastEpochs returns the last epochs that are complete and have changed something, a hundred or a few
// more, the newest last, with what each has changed in all partitions; Part is 0. Safe
// for concurrent use before Close.
func (s *Store) PastEpochs() ([]Epoch, error) {
	const query = `SELECT number, max(seq), max(time), sum(keys) FROM epochs
		WHERE number <= ? GROUP BY number ORDER BY number`
	rows, err := s.readers.Query(query, int64(s.Stats().Epoch))
	if err != nil {
		return nil, incomplete(s.path, err)
	}
	defer rows.Close()
	var all []Epoch
	for rows.Next() {
		var number, seq, at, keys int64
		if err := rows.Scan(&number, &seq, &at, &keys); err != nil {
			return nil, unreadable(s.path, err)
		}
		all = append(all, Epoch{Number: uint64(number), Seq: register.Seq(seq), Time: time.UnixMilli(at), Keys: keys})
	}
	return all, explain(s.path, rows.Err())
}
