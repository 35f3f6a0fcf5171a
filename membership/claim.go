package membership

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// The first byte of each gossip message, as memberlist 0.7 has it.
const (
	gossipPing         = 0
	gossipIndirectPing = 1
	gossipCompound     = 7
	gossipCompressed   = 9
	gossipEncrypted    = 10
	gossipChecksummed  = 12
	gossipLabelled     = 244
)

var errPacket = errors.New("not a gossip packet")

// checkClaims refuses a gossip packet in which a message is said to be from
// another site than from: memberlist answers to the name in a ping, whoever sent
// it. All other messages either name no sender or are everybody's to pass on.
// Sites neither compress nor encrypt, so what is hidden like that is refused.
func checkClaims(from string, packet []byte) error {
	if len(packet) >= 2 && packet[0] == gossipLabelled {
		size := 2 + int(packet[1])
		if len(packet) < size {
			return errPacket
		}
		packet = packet[size:]
	}
	if len(packet) >= 5 && packet[0] == gossipChecksummed {
		packet = packet[5:]
	}
	if len(packet) < 2 || packet[0] != gossipCompound {
		return checkClaim(from, packet)
	}
	n, rest := int(packet[1]), packet[2:]
	if len(rest) < 2*n {
		return errPacket
	}
	sizes, rest := rest[:2*n], rest[2*n:]
	for ; len(sizes) > 0; sizes = sizes[2:] {
		size := int(binary.BigEndian.Uint16(sizes))
		if len(rest) < size {
			return errPacket
		}
		if err := checkClaim(from, rest[:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	return nil
}

func checkClaim(from string, message []byte) error {
	if len(message) == 0 {
		return errPacket
	}
	switch message[0] {
	case gossipPing, gossipIndirectPing:
	case gossipCompound, gossipCompressed, gossipEncrypted:
		return errPacket
	default:
		return nil
	}
	var claim struct{ SourceNode string }
	if err := codec.NewDecoderBytes(message[1:], &codec.MsgpackHandle{}).Decode(&claim); err != nil {
		return fmt.Errorf("%w: %w", errPacket, err)
	}
	if claim.SourceNode != from {
		return fmt.Errorf("it claims to be from %q", printable(claim.SourceNode, 64))
	}
	return nil
}
