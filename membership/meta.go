package membership

import (
	"fmt"
	"net"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"

	"gus/register"
)

// Limits of what a site says of itself; together they stay below the 512 bytes
// at which memberlist panics.
const (
	maxAddress = 261 // bytes: the longest host name, a colon, a port
	maxVersion = 64  // bytes
	maxMeta    = 480 // bytes, encoded
)

// meta is what a site says of itself by gossip. Everybody passes it on, so it is
// a hint: who is meant to act on it checks it against something else.
type meta struct {
	Number        register.Voter `cbor:"1,keyasint"` // 0 for an observer
	Configuration uint64         `cbor:"2,keyasint"`
	Address       string         `cbor:"3,keyasint"` // HOST:PORT, "" while the site does not know it
	Version       string         `cbor:"4,keyasint"` // of the program
	Boot          uint64         `cbor:"5,keyasint"`
}

// hints is the mode for what other versions may add fields to. It is built once
// and may be used by all at the same time.
var hints = mustHints()

func mustHints() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  4,
		MaxArrayElements: maxDocElement,
		MaxMapPairs:      maxDocElement,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}

// encode returns m as it goes out. A meta that Config.Validate has seen fits.
func (m meta) encode() []byte {
	b, err := encoding.Marshal(m)
	if err != nil || len(b) > maxMeta {
		panic(fmt.Sprintf("membership: a description of %d bytes: %v", len(b), err))
	}
	return b
}

func decodeMeta(b []byte) (meta, error) {
	if len(b) > maxMeta {
		return meta{}, fmt.Errorf("a description of %d bytes, the limit is %d", len(b), maxMeta)
	}
	var m meta
	if err := hints.Unmarshal(b, &m); err != nil {
		return meta{}, fmt.Errorf("decode a description: %w", err)
	}
	if m.Address != "" {
		if err := checkAddress(m.Address); err != nil {
			return meta{}, err
		}
	}
	if m.Version = printable(m.Version, maxVersion); m.Number > register.MaxVoter {
		return meta{}, fmt.Errorf("voter number %d", m.Number)
	}
	return m, nil
}

// checkAddress says whether addr may be somebody's HOST:PORT.
func checkAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" || len(addr) > maxAddress || printable(addr, maxAddress) != addr {
		return fmt.Errorf("address %q is not HOST:PORT", printable(addr, maxAddress))
	}
	return nil
}

// printable is s without what does not belong in a log or on a terminal, cut to
// at most most bytes.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	for len(s) > most {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}
