// Package torture runs real agents, each a process of its own, under load and
// faults, and judges what their clients saw. Nothing of it is in the binary.
//
//	clients --unix sockets--> agents a, b, c --UDP--> relay
//	   | histories              ^ kill, stop, clock,    ^ loss, delay, order,
//	   v                        | full disk             | cuts
//	judge                     faults -------------------'
//
// Package register/sim plays the same game with the core in virtual time, and
// much more of it. Here is what it leaves out: sockets, QUIC, SQLite, processes
// that die with their files open, an operating system that freezes one of them,
// and everything that connects these.
//
// # A run
//
// A run is a row of windows. In each, clients at all sites work, and faults come
// and go. Then the faults end, the clients stop, and the sites have to heal
// unattended: each answers sets and gets, nothing is left unsettled, and all
// agree on every key. The window's history is judged by register/sim: by versions
// (Check), and of a sample of keys with short histories by search (Linearizable).
// Then it is dropped, so that an hour needs no more memory than a minute. What
// the next window goes on from are a few keys that it uses again, each
// with its last state, which no later read may go behind; and a version a key, of
// all keys ever, which the last listing is held against.
//
// Which faults, where, when and for how long, and which operations, is chosen
// from one seed before a window begins. What the machine makes of it is not
// repeatable, as it is with sim: a seed that failed is a good start, no proof.
//
// # Why a relay
//
// Network namespaces need root, and a proxy inside the agents would be another
// agent. Between the agents is a process of nobody's: each site has a public
// address that belongs to the relay, which knows by a packet's source whose it
// is, and passes it on from the sender's public address, as a NAT does. So the
// agents' own sockets, and all of their QUIC, are what is tested.
//
// # What is asserted
//
// No speed. The longest gaps in service are reported. Healing has a deadline, but one
// that only a hang meets. An agent that ends unasked, does not end when asked,
// or does not heal fails the run as a lost write does.
//
// GUS_TORTURE_TIME, _SEED, _VOTERS, _KINDS, _AGREE and _DIR shape a run: options.go.
package torture
