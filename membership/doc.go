// Package membership knows who belongs to the cluster.
//
// The Configuration says who counts: the voters, their permanent numbers and
// the sizes of the quorums. It is a document signed by the cluster's
// authority, made where the authority is and checked by every site that is
// given it, so that it may come from anybody and over any way.
//
// Why not leave that to gossip, which knows everybody anyway? Gossip's opinion
// is a guess about the network. Were it to decide who is in a quorum, two
// halves of a parted cluster would each make a quorum of their own. No line
// of code leads from a guess to a quorum.
//
// Invariants: a number stands for one configuration; a voter's number is never
// given to another name; one document has one encoding.
package membership
