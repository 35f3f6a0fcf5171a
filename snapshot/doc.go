// Package snapshot keeps a voter's records on its disk: what Store has
// reported as saved is there after any crash, and a start reads it back.
//
// A data directory holds one SQLite file, gus.db, in write-ahead mode with a
// sync at each commit. It has four tables:
//
//	meta     cluster id and boot
//	log      what was saved, in order: a save is one transaction
//	records  the current record of each key, as folded from the log
//	fold     how far that is
//
// The log is what "durable" means. It is appended to, so that a save costs one
// small write and one sync however many keys it touches and however large the
// database is. When it exceeds a bound, it is folded into records: sorted, a
// few hundred keys at a time, between saves. Then its rows are dropped.
//
// # Why not something simpler
//
// Writing each record straight into the table of current ones dirties a page
// for every key, many times what the log writes, while a client waits. Sorting
// a whole log first puts the keys that share a page together. A log file of our
// own would need its own recovery, checksums, space management and proofs;
// SQLite has them, tested by more power cuts than we shall ever see. It does
// not checksum its pages, hence the sums in our rows.
//
// # Invariants
//
//   - Records, and then those rows of the log that fold does not cover, are the
//     whole state, of each key older before newer. The position of a folding
//     is written in the transaction that reaches it, so that no crash lets an
//     older record be replayed over a newer one.
//   - One goroutine, the writer, owns the one connection that writes. One save
//     is in flight at most.
//   - A save is reported as done only after its commit was synced. One that
//     failed with ErrRolledBack has left nothing behind. After any other
//     failure the outcome is unknown, and every later save fails too.
//   - Boot goes up, durably, with each Open. Last never goes down.
//   - Existing data is never truncated, recreated or initialised over. A new
//     database is made under another name and renamed when it is whole, so a
//     gus.db that is empty or has no schema is damage and never a crash of
//     ours, and is refused.
//   - Nothing but SQLite opens the database while a Store has it open: closing
//     any descriptor of the file would drop SQLite's locks.
//   - An idle Store writes nothing: it has no timers. Saves pay for folding,
//     so that they cannot outrun it.
//
// # Room for epochs
//
// Rows of records are ordered by partition, one of 16 by a hash of the key,
// and then by key, and each carries the number of the save that changed it
// last: an epoch of a partition can be cut at a save, partition by partition.
package snapshot
