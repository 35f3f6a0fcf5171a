// Package snapshot keeps a voter's records on its disk: what Store has
// reported as saved is there after any crash, and a start reads it back.
//
// A data directory holds one SQLite file, gus.db, in write-ahead mode with a
// sync at each commit. Its tables:
//
//	meta     schema, cluster id, boot
//	starts   each start, with a number drawn at random, and the save before it
//	log      what was saved, in order: a save is one transaction
//	records  the current record of each key, as folded from the log
//	parts    how many those are in each partition, and what their sums add up to
//	passes   how far the log is folded: the newest complete pass and the one under way
//	epochs   what passes have changed, by partition
//	versions what passes have superseded, and timeline the epochs that can be read
//	cursors  how far this voter has read other voters' databases
//
// The log is what "durable" means. It is appended to, so that a save costs one
// small write and one sync however many keys it touches and however large the
// database is.
//
// # Epochs
//
// Some seconds after something was saved, or sooner where much is, a pass over
// what the log then holds makes an epoch of it: it writes the records that have
// changed, sorted, partition by partition (16, by a hash of the key), in
// transactions of a few dozen keys between saves. The transaction that ends a
// partition marks the epoch complete for it, with a row in epochs. A partition
// in which nothing changed has no such row: the pass's position is beyond it,
// and that says that the epoch covers it too. Then the rows of the log that all
// partitions cover are dropped.
//
// An epoch covers exactly what was saved up to one save. Its number is
// max(last + 1, clock / length): comparable between sites with good clocks, and
// where a clock jumps nothing depends on it but the number.
//
// A pass gives way: while there are saves, the writer leaves them four times as
// long after each of its transactions; while the log is less than half full, nine times,
// and the transactions have a quarter of the keys. Where the log is over its bound, saves have to wait instead, each
// for twice as many keys as it saves, so that they cannot outrun folding.
//
// # The order of changes
//
// Changes answers what a save after some other one has changed from an index on
// the records' numbers, and from a list in memory of what the log holds
// beyond them. A folded record has the number of the last save that its epoch
// covers, not of its own: what one pass writes side by side is then side by
// side in the index too, where the next pass takes it out. (With numbers of
// their own, each key cost a page of the index.) A key is in the list until the pass that folds it is complete,
// and is then taken from the list alone, so that it does not matter when it
// moves into the index.
//
// # Why not something simpler
//
// Writing each record straight into the table of current ones dirties a page
// for every key, many times what the log writes, while a client waits. Sorting
// a whole log first puts the keys that share a page together. A log file of our
// own would need its own recovery, checksums, space management and proofs;
// SQLite has them, tested by more power cuts than we shall ever see. It does
// not checksum its pages, hence the sums in our rows; and it takes the first
// wrong bit of its log for the end, hence checkWAL.
//
// # Invariants
//
//   - Records, and then those rows of the log that no pass covers, are the
//     whole state, of each key older before newer. The position of a pass is
//     written in the transaction that reaches it, so that no crash lets an
//     older record be replayed over a newer one: a pass that was cut off is
//     resumed where it was.
//   - A row of the log is dropped only once it is covered in all partitions.
//   - One goroutine, the writer, owns the one connection that writes. One save
//     is in flight at most. Another one, the mover, moves pages from SQLite's log to
//     where they belong while saves go on, and changes nothing of what they say
//     (checkpoint.go).
//   - A save is reported as done only after its commit was synced. One that
//     failed with ErrRolledBack has left nothing behind. After any other
//     failure the outcome is unknown, and every later save fails too.
//   - Boot goes up, durably, with each Open. Last never goes down.
//   - Existing data is never truncated, recreated or initialised over. A new
//     database is made under another name and renamed when it is whole, so a
//     gus.db that is empty or has no schema is damage and never a crash of
//     ours, and is refused.
//   - A wrong bit is ErrDamaged, or does no harm. Each row has a sum; the log's
//     rows have no gaps; the records of a partition, and the index on them, add
//     up. Only within the last commit of SQLite's log it looks as a power cut
//     does, and that save is gone.
//   - Nothing but SQLite opens the database while a Store has it open: closing
//     any descriptor of the file would drop SQLite's locks.
//   - An idle Store writes nothing and has no timer running. On a full disk,
//     what no save waits for is tried again with longer and longer pauses, and
//     after a save that succeeded.
//
// # Backups
//
// A backup (backup.go) is one file with the newest write of each key, as one state of the database
// has it: a read transaction that began when it did. The records give it in the order of keys,
// one cursor a partition, with the log's changes laid over them. What a record has beyond its newest
// write, the voter's promises, is not in it: they bind this voter in this
// cluster, and Build makes a database of a new one, in which nobody has promised anything.
//
// # Versions
//
// A pass moves what it supersedes into versions, in the transaction that supersedes it, so
// that no crash loses or doubles any. Only settled writes are versions, of each key one an
// epoch. The current ones stay in the records: to keep the past costs nothing that
// is not in it. history.go says how they are kept, compact.go how they go.
//
// The table is ordered by the epoch that has superseded a version, not by key: then
// passes write at its end, and compaction deletes at its beginning. An index finds those of
// a key, and proves nothing: the versions of a key follow each other without a gap, and the sum of the
// oldest row of all says that nothing was before it, so that one that a wrong bit hides is missed.
// Compaction is done as passes are, in small steps that give way to saves, each
// hundred epochs, or sooner where the history is over its bytes. What it leaves free is used again: the file does not
// become smaller, and no page is moved.
package snapshot
