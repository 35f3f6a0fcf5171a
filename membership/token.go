package membership

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"gus/quic"
)

// Why a site cannot join. Each comes wrapped in one line for people.
var (
	ErrDamagedToken    = errors.New("the join token is damaged")
	ErrExpiredToken    = errors.New("the join token has expired")
	ErrUnknownToken    = errors.New("the join token is not known")
	ErrForeignToken    = errors.New("the join token is of another cluster")
	ErrNameTaken       = errors.New("the name is taken")
	ErrNotVoter        = errors.New("the name is not a voter's")
	ErrVotersName      = errors.New("the name is a voter's")
	ErrManyObservers   = errors.New("too many observers")
	ErrNoRoute         = errors.New("no site can be reached")
	ErrFounderAway     = errors.New("the founding site cannot be reached")
	ErrTooManyAttempts = errors.New("too many attempts")
	ErrHasIdentity     = errors.New("the directory has an identity already")
	errNotUnderstood   = errors.New("the question was not understood")
	errFounderCannot   = errors.New("the founding site cannot sign now")
	errTooManyTokens   = errors.New("too many tokens are valid")
	errNotTheFounder   = errors.New("this site does not have the authority's key")
)

const (
	// tokenPrefix says what a token is, and its version.
	tokenPrefix      = "gus1-"
	maxTokenAddrs    = 4
	maxTokenText     = 2048
	tokenSecret      = 16 // bytes
	tokenChecksum    = 4  // bytes, of SHA-256: against damage, not against people
	tokenSignsAs     = "gus join by token 1\x00"
	siteSignsAs      = "gus join by key 1\x00"
	tokenKeyMadeFrom = "gus token 1\x00"
)

// Token lets its holder join a cluster: it says which one, how to know it, and
// where to ask, and proves that one may. It is good for several sites until it
// expires: what happens once is that a name is given to a key.
type Token struct {
	Cluster     quic.Cluster
	Fingerprint [sha256.Size]byte // of the authority's certificate
	Addresses   []string          // 1 to 4, HOST:PORT of sites to ask
	secret      [tokenSecret]byte
}

type tokenText struct {
	_           struct{} `cbor:",toarray"`
	Cluster     []byte
	Fingerprint []byte
	Addresses   []string
	Secret      []byte
}

// newToken draws a token.
func newToken(cluster quic.Cluster, ca *x509.Certificate, addresses []string) (Token, error) {
	t := Token{Cluster: cluster, Fingerprint: sha256.Sum256(ca.Raw), Addresses: addresses}
	if _, err := rand.Read(t.secret[:]); err != nil {
		return Token{}, fmt.Errorf("draw a token: %w", err)
	}
	return t, t.check()
}

func (t Token) check() error {
	if len(t.Addresses) < 1 || len(t.Addresses) > maxTokenAddrs {
		return fmt.Errorf("a token has 1 to %d addresses, not %d", maxTokenAddrs, len(t.Addresses))
	}
	for _, a := range t.Addresses {
		if err := checkAddress(a); err != nil {
			return err
		}
	}
	return nil
}

// String returns the token as it is given to people: letters, digits, '-' and
// '_' only.
func (t Token) String() string {
	b, err := encoding.Marshal(tokenText{Cluster: t.Cluster[:], Fingerprint: t.Fingerprint[:], Addresses: t.Addresses, Secret: t.secret[:]})
	if err != nil {
		panic(err) // of such fields there is nothing that cannot be encoded
	}
	sum := sha256.Sum256(b)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(append(b, sum[:tokenChecksum]...))
}

// ParseToken reads a token; white space in it, as terminals add, does not
// matter. The error is ErrDamagedToken.
func ParseToken(text string) (Token, error) {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return Token{}, fmt.Errorf("%w: it does not begin with %s", ErrDamagedToken, tokenPrefix)
	}
	damaged := fmt.Errorf("%w: copy it whole, as `gus token` prints it", ErrDamagedToken)
	if len(rest) > maxTokenText {
		return Token{}, damaged
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) < tokenChecksum {
		return Token{}, damaged
	}
	b, sum := b[:len(b)-tokenChecksum], b[len(b)-tokenChecksum:]
	if want := sha256.Sum256(b); string(want[:tokenChecksum]) != string(sum) {
		return Token{}, damaged
	}
	var w tokenText
	if err := decoding.Unmarshal(b, &w); err != nil {
		return Token{}, damaged
	}
	t := Token{Addresses: w.Addresses}
	if len(w.Cluster) != len(t.Cluster) || len(w.Fingerprint) != len(t.Fingerprint) || len(w.Secret) != len(t.secret) || t.check() != nil {
		return Token{}, damaged
	}
	copy(t.Cluster[:], w.Cluster)
	copy(t.Fingerprint[:], w.Fingerprint)
	copy(t.secret[:], w.Secret)
	return t, nil
}

// key is what the holder proves to have the secret with. Of it the founding site
// keeps the public half only: whoever reads its files cannot join by them.
func (t Token) key() ed25519.PrivateKey {
	seed := sha256.Sum256(append([]byte(tokenKeyMadeFrom), t.secret[:]...))
	return ed25519.NewKeyFromSeed(seed[:])
}
