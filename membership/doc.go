// Package membership knows who belongs to the cluster, who is there, and where,
// and lets new sites in.
//
// # Who counts
//
// The Configuration says who counts: the voters, their permanent numbers and
// the sizes of the quorums. It is a document signed by the cluster's
// authority, made where the authority is and checked by every site that is
// given it, so that it may come from anybody and over any way.
//
// # Who is there, and where
//
// Gossip is memberlist on the endpoint's lanes, among voters. It tells the endpoint where
// sites are, and people who is there.
//
//	endpoint: packets, streams --> transport --> memberlist
//	endpoint: Changed, Twin -----------.             | events
//	                                   v             v
//	                                 Gossip: notes under a lock
//	                                   |
//	            .----------------------+----------------------.
//	            v                      v                      v
//	tend: SetPeer, peers.json   rejoin: gossip with    seek: the seeds, while
//	      the log, own address  whoever is connected   anybody is missing
//
// Why not leave to gossip who counts, too, since it knows everybody anyway?
// Gossip's opinion is a guess about the network. Were it to decide who is in a
// quorum, two halves of a parted cluster would each make a quorum of their own.
// No line of code leads from a guess to a quorum: what gossip says ends in an address to
// dial, where the certificate decides.
//
// Why not memberlist's own addresses? It has one IP address a node and takes
// another one for a conflict. A site is its name and its key, and
// where it is may change at any time, or be unknown to itself behind NAT. So all have
// the same address for memberlist, packets go by name over whatever connection
// there is, and the address to dial is part of what a site says of itself.
//
// Why not memberlist's Join with the seeds? It wants names resolved at once, counts
// itself as somebody met, and forgets who was away for a minute. Here the
// endpoint connects, for ever, to whoever was ever seen, seeds are asked anew while
// anybody is missing, and whoever is connected and not in the gossip is asked to gossip. Stopping is not leaving.
//
// # Observers do not gossip
//
// An observer connects with the voters, by dialling them, and asks each now and then
// who is there and where (observe.go); in the question it describes itself. A voter finds an
// observer there while they are connected, remembers no address of it, and dials none.
//
// Why not let everybody gossip? In gossip each member must be reached by each other. Of forty
// observers behind NAT hardly any two can reach each other, and of the three members that are
// asked to probe for another one, mostly none is a voter: the observers would suspect each other in turns,
// and every suspicion, and every refutation of it, goes to all. Passing packets on
// through voters would mend that at the price of a protocol of our own under memberlist's, and
// each site at the edge would still carry the talk about all others over its link. This
// way gossip stays among nine sites at most, an observer costs each voter a
// connection and a question in 30 s, and what is said of an observer is as
// true as a connection is. The price is that a voter knows of an observer what its own
// connection tells, and observers do not know of each other.
//
// # Who comes in
//
// Init makes a cluster, NewToken a token, Join a site of it; Admission answers.
// The founding site has the authority's key and its two books; the others pass
// on what they are asked.
//
// A name belongs to one key for ever, a voter's and an observer's. Two machines that vote under one name
// would break what the register promises, so names.json has name and key, synced,
// before a certificate leaves. The same key may ask again: its answer may have been lost.
// That is what happens once. A token is good for several sites until it
// expires: it is printed once and carried to all of them.
//
// The secret never travels. Its holder signs with a key made from it, for one
// connection, after the other side has proved by the fingerprint to be of the
// cluster; the founding site keeps the public half only. A site's own key never leaves
// it, and is on its disk before it asks.
//
// No clock is trusted. A token's life is the founding agent's running time:
// it stands still while that is down, and what may be lost in a crash
// is taken off beforehand, so that it is shorter and never longer.
//
// # Invariants
//
//   - A number stands for one configuration; a voter's number is never given to
//     another name; one document has one encoding.
//   - An observer's certificate never has a voter's name or number, and what it says is no
//     gossip.
//   - Gossip makes nobody a voter: what is said of a site must be what the
//     configuration says.
//   - A packet or a stream of gossip is from whom the certificate says.
//   - An identity directory appears complete, by one rename, and is never
//     replaced.
//   - memberlist's callbacks take notes and do not block. Every book, list and map
//     has a bound.
package membership
