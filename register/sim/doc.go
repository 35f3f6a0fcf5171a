// Package sim is the world that the register is tested in: virtual time, a
// network and disks that misbehave, clocks that lie, clients that give up, and
// judges that hold what the clients saw against linearizability.
//
// Run plays one schedule. Everything in it, the odds of each fault included,
// is drawn from one seed, so that some runs have much loss and no crash and
// others the reverse, and so that a seed is all it takes to see a failure
// again: the same seed gives the same trace. Each voter is a register.Replica
// that register.Drive connects to this world, the very function that connects
// it to sockets and disks in an agent; what is tested is the order that ships.
//
// A run has two parts. At first there are faults, and only safety counts. Then
// the faults end, at times among no more voters than a quorum first and among
// all of them in any case, and whatever is still in progress must end; all
// voters must come to rest; and reads everywhere must agree. Then the
// histories are judged, long ones by their versions (Check), short ones by a
// search for an order of them that a register could have taken (Linearizable).
// A page of keys is judged as many reads, one of each key that it covers, shown
// or not: for this there are worlds of a dozen keys, most of them unheard of somewhere.
//
// The world also watches what is said: messages and records do not change once
// they are handed out, a tag means one value and one `known` for ever, and no
// voter says what its disk does not hold yet. These would show up in histories
// as well, after a long search; here they show up at once.
//
// Why not goroutines in a bubble of virtual time: their order is the
// scheduler's, and a run could not be repeated. Here a run is one loop over a
// heap of events, in one goroutine, and several thousand of them take a second.
//
// In half of the runs voters also pull from each other by cursors, as agents do, and pass these on to observers
// that go from one voter to another. What an agent does for that outside of the register is told again here
// (cursors.go, adopt.go) and has to be kept like it; in the end an observer lacks nothing, wherever it goes on.
//
// Nothing of this package is in the binary. Disk alone is used elsewhere: the
// contract that the real store is held to is also held against it.
package sim
