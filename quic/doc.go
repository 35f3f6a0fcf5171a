// Package quic connects a site with all others: one UDP socket, one QUIC
// connection a pair of sites, three lanes over it. WIRE.md states the bytes.
//
//	lane                    carries                      on overload
//	unidirectional streams  a batch of register          a queue a peer; what does
//	                        messages each (Send)         not fit is dropped, counted
//	datagrams               a gossip packet each         a queue a peer; the oldest
//	                        (SendDatagram)               is dropped, counted
//	bidirectional streams   requests and answers, by     deadlines
//	                        purpose (OpenStream)
//
// # Why not the obvious thing
//
// TCP with TLS would need a connection a lane, or framing and a scheduler of
// our own, lest a large value hold acknowledgements up. Here one batch is one
// stream that ends with it, so that a lost packet holds up its own batch only,
// and there is nothing to frame. A peer's one writer takes all that waits:
// batches grow with load and vanish when idle.
//
// Certificates of the web's kind are judged by names and by the clock. A site
// at the edge may have neither a name in DNS nor a clock, so a certificate
// says in one URI which site of which cluster it is, the cluster's own
// Authority signs it, and nothing looks at a clock. A message's sender is who
// the certificate says: no field of any message is asked.
//
// # Who connects
//
// Both ends dial, for ever, whoever they have an address for and no connection
// with; a site behind NAT needs no address. An address is a hint: what counts is who
// answers there. So there may be two connections at once, and peer.install
// decides at both ends alike which one stays. A dial has succeeded when the
// other end has answered the hello: TLS 1.3 lets the dialler believe in a
// connection before its certificate was judged. A site that restarts says hello with a
// later boot, which replaces the dead connection at once, and answers packets
// of the old one with a stateless reset, whose key is derived from its own.
//
// The register lane is open between voters of the same configuration number.
// Others stay connected by the other lanes: a site that missed a new
// configuration must be told of it.
//
// Observers connect with voters only: two of them have nothing to say to each other, and
// behind NAT could not reach each other anyway. The register lane is closed to them at both
// ends: it needs two certificates of voters.
//
// Who has only an address meets whoever is there (Meet), and learns who that is
// from the certificate. Who has only a token, and so no certificate, has a
// protocol of its own (DialJoin, Config.Join): one question and one answer,
// without any of the lanes.
//
// Two processes with one identity are two that vote as one, so they are not
// served in turns: the hello's instance and boot tell a twin from a restart, the
// first one stays, and both ends are told (Config.Twin).
//
// # Invariants
//
//   - Nothing is delivered before it was decoded as a whole under limits, and
//     its cluster, configuration and boot were found to be the connection's.
//   - Send and SendDatagram never wait. Each queue has a bound.
//   - A receiver that is slow is read no further; the windows fill, then the
//     sender's queue, which drops and counts.
//   - What was dropped is sent again by the register after it heard that the
//     peer is up (Config.Peer), or on its tick.
//   - After Close everything answers net.ErrClosed, and nothing runs any more.
package quic
