// Package register is the Gus protocol: one voter's part in holding every key
// as an atomic register, with no leader (PROTOCOL.md, to be read beside it).
//
// A [Replica] is a value that reacts. Local clients come in by [Replica.Set]
// and [Replica.Get], other voters by [Replica.Step], the clock by [Replica.Clock],
// the passing of time by [Replica.Tick]. What is to be done about it comes out of [Replica.Ready] as
// data: records to save, messages to send, results to report. The package starts no
// goroutine, takes no lock, reads no clock, draws no random number and logs
// nothing, so that the world it runs in can be a test: package sim runs it under
// seeded faults, and this package's own tests visit every order of events in
// small worlds.
//
// "Durable before said" is the one rule that everything else rests on, and it is
// kept here and not by the caller: a message waits inside, in the gate, until the record that it
// rests on has been reported as saved. Whoever drives the replica cannot send it
// too early, because it does not have it. [Drive] is the one way to perform a
// Ready, in the agent and in the simulator alike.
//
// Where to read: state.go has the state of a key, write.go the owner's side of a
// write, learn.go the other voters', read.go the rounds of reads, gate.go what
// waits for the disk, recover.go the records and the way back from them.
//
// Three things are as they are for a reason that does not show. First, a write that is heard of is one
// *version, and cur, floor, readable and the owner's entry point to it: PROTOCOL.md's
// "where they are the same write their marks are one" is then no rule to keep. Second, a
// register at rest has no live part: there are millions of them, and what live
// would know is in the rest. Third, nothing that can be observed is taken from the order of
// a map, so that the same inputs give the same outputs, twice.
//
// Broken invariants panic. They stay checked in production: a voter that stops is
// a fault the protocol is made for; one that lies is not.
package register
