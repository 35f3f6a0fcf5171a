// Package agent runs a site: it puts the register, its disk, its socket and its
// door together and turns their events into inputs of the one replica.
//
//	local clients            other sites              disk
//	     |                       |                     |
//	api (HTTP, unix)      quic.Endpoint         snapshot.Store
//	     | requests              | batches, links      | how saves ended
//	     '-----------.           |           .---------'
//	                 v           v           v
//	                 loop: one goroutine, one replica
//
// # The loop
//
// One goroutine owns the replica. A turn takes in everything that waits and
// then calls register.Drive once: under load the records of many operations
// share one sync and one batch, and when idle nothing waits for company. There
// is no lock around the replica because there is nobody to lock out.
//
// Why not a goroutine a request, with a mutex? Because the replica's effects
// must be performed in the order in which it asked for them, by one driver, and
// because a convoy on a mutex makes small groups where a queue makes large ones.
//
// # Who is there
//
// Beside the loop run the gossip (package membership), which tells the endpoint
// where sites are, the admission of new ones, and a comparison of clocks. They are for
// finding each other and for people: status puts what they know beside what the
// loop knows, and nothing leads from them into the loop.
//
// Init and Join make the identity that Run needs. Run makes none: a directory
// that failed to mount must not become a new cluster, and a voter whose
// database is gone must not vote with an empty one (database.go).
//
// # Who may vote
//
// A data directory may be a copy, or have been put back as it was: then it has
// forgotten what its voter promised since. So a replica asks the others what they have heard
// of it before it votes; until then sets and gets wait as they do for a quorum, and
// what is known here can be read (votes.go). One that has forgotten something ends the agent
// (ErrForgotten), once that is noted in the directory, for ever. All that others
// can have heard is in the header of each batch, which the loop gives to the
// endpoint before the messages that rest on it.
//
// # Catching up and agreeing
//
// Beside the loop one goroutine a peer follows that peer (catchup.go): when it
// comes, and at each epoch in which it has saved something, it asks for the keys that changed
// there since a cursor, has the loop say which of them are lacking here, and hands the
// loop their writes in portions, each durable before the next one and before the cursor passes
// it. So what is missed while away costs no memory, and is taken up where it
// was left. At an epoch it compares digests with the peer as well (agree.go): partitions,
// buckets of a partition that differs, keys of a few buckets. A key on which both
// stay apart is an alarm, and is read.
//
// # Following
//
// What the replica comes to know as settled it tells in each turn, and the loop puts it into
// the feed (feed.go), which holds the last of it. Whoever follows has a tail (tail.go): it reads the
// database from a cursor on, then the feed, and the database again where it was too slow
// for that. Watches of the local API (watch.go) and observers (followserve.go) are two readers
// of one kind.
//
// An observer is the same agent without a vote (observe.go): its replica takes in
// what the nearest voter tells, its own watches and files are served from that, and what needs a
// quorum it has a voter answer (forward.go).
//
// # Patience
//
// A request has a deadline. At it the loop, and nobody else, says what became
// of it, since it alone knows: a set waits in the loop until enough voters are
// connected, and while it waits nothing has changed (client.ErrNoQuorum); one
// that the replica was given is taken back, and the replica says whether anybody was
// told of it: if so the outcome is unknown (client.ErrUnknownOutcome), and
// that is what the client hears, not something more pleasant.
//
// # What holds
//
//   - Each request gets exactly one answer, also when the agent stops.
//   - What a client is told is made in one place (reply.go), whether it asked by HTTP or
//     through a pipe (pipe.go).
//   - Every queue is bounded: requests by admission (429 for what is beyond) and by
//     the desk's queue (who finds it full waits until its deadline); batches by a queue
//     that holds up the peers' readers and so the peers; links likewise; of saves there is
//     one at a time.
//   - A save that was rolled back cleanly refuses its writes and the agent goes on. A
//     save of which nobody knows how it ended ends the agent.
//   - Connections decide when a set is begun and what an error says, and nothing
//     that the protocol decides.
//   - Run returns when everything it started has ended.
package agent
