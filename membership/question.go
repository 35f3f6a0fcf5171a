package membership

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"

	"gus/quic"
)

// What is asked and answered when a site joins; quic/WIRE.md states the bytes.

const (
	questionVersion = 1
	maxReason       = 512 // bytes
	maxAnswerPeers  = 16
)

// request is what somebody asks who wants to become a site.
type request struct {
	Version uint64 `cbor:"1,keyasint"`
	Cluster []byte `cbor:"2,keyasint"`
	Name    string `cbor:"3,keyasint"`
	Role    string `cbor:"4,keyasint"`
	Key     []byte `cbor:"5,keyasint"` // the site's public key
	Token   []byte `cbor:"6,keyasint"` // the token's public key
}

// question is a request, signed together with the connection's binding by both
// keys: it is of no use to anybody on another connection.
type question struct {
	Request []byte `cbor:"1,keyasint"`
	BySite  []byte `cbor:"2,keyasint"`
	ByToken []byte `cbor:"3,keyasint"`
}

// errand is what a site asks the founding one.
type errand struct {
	Binding  []byte `cbor:"1,keyasint,omitempty"` // of the connection on which somebody asks to join
	Question []byte `cbor:"2,keyasint,omitempty"`
	Token    []byte `cbor:"3,keyasint,omitempty"` // else: the public key of a new token
	Lifetime uint64 `cbor:"4,keyasint,omitempty"` // of that, in seconds
}

// answer is what comes back.
type answer struct {
	Code          code   `cbor:"1,keyasint"`
	Reason        string `cbor:"2,keyasint,omitempty"`
	Certificate   []byte `cbor:"3,keyasint,omitempty"`
	Configuration []byte `cbor:"4,keyasint,omitempty"`
	Peers         []Peer `cbor:"5,keyasint,omitempty"`
}

// code is the kind of an answer.
type code uint64

const (
	codeDone          code = 0
	codeNotUnderstood code = 1
	codeExpired       code = 2
	codeUnknown       code = 3
	codeForeign       code = 4
	codeTaken         code = 5
	codeNotVoter      code = 6
	codeTooMany       code = 7
	codeFounderAway   code = 8
	codeCannot        code = 9
	codeNotFounder    code = 10
	codeTooManyTokens code = 11
	codeVotersName    code = 12
	codeManyObservers code = 13
)

// codes says which error an answer is.
var codes = map[code]error{
	codeNotUnderstood: errNotUnderstood,
	codeExpired:       ErrExpiredToken,
	codeUnknown:       ErrUnknownToken,
	codeForeign:       ErrForeignToken,
	codeTaken:         ErrNameTaken,
	codeNotVoter:      ErrNotVoter,
	codeTooMany:       ErrTooManyAttempts,
	codeFounderAway:   ErrFounderAway,
	codeCannot:        errFounderCannot,
	codeNotFounder:    errNotTheFounder,
	codeTooManyTokens: errTooManyTokens,
	codeVotersName:    ErrVotersName,
	codeManyObservers: ErrManyObservers,
}

// refusal makes an answer of an error; what has no code stays here.
func refusal(err error) answer {
	for c, target := range codes {
		if errors.Is(err, target) {
			return answer{Code: c, Reason: printable(err.Error(), maxReason)}
		}
	}
	return answer{Code: codeCannot, Reason: errFounderCannot.Error()}
}

// wireError is an answer's reason, in the other site's words.
type wireError struct {
	is     error
	reason string
}

func (e *wireError) Error() string { return e.reason }
func (e *wireError) Unwrap() error { return e.is }

// err returns what the answer says, nil where it says yes.
func (a answer) err() error {
	if a.Code == codeDone {
		return nil
	}
	is := codes[a.Code]
	if is == nil {
		is = errNotUnderstood
	}
	reason := printable(a.Reason, maxReason)
	if reason == "" {
		reason = is.Error()
	}
	return &wireError{is, reason}
}

func (a answer) encode() []byte {
	b, err := encoding.Marshal(a)
	if err != nil || len(b) > quic.MaxJoin {
		panic(fmt.Sprintf("membership: an answer of %d bytes: %v", len(b), err))
	}
	return b
}

func decodeAnswer(b []byte) (answer, error) {
	var a answer
	if err := hints.Unmarshal(b, &a); err != nil {
		return answer{}, fmt.Errorf("decode the answer: %w", err)
	}
	return a, nil
}

// newQuestion signs a request for a connection.
func newQuestion(r request, binding []byte, site, token ed25519.PrivateKey) ([]byte, error) {
	body, err := encoding.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	b, err := encoding.Marshal(question{
		Request: body,
		BySite:  ed25519.Sign(site, signedText(siteSignsAs, binding, body)),
		ByToken: ed25519.Sign(token, signedText(tokenSignsAs, binding, body)),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the question: %w", err)
	}
	return b, nil
}

func signedText(as string, binding, body []byte) []byte {
	return bytes.Join([][]byte{[]byte(as), binding, body}, nil)
}

// openQuestion returns the request in b if both keys that it names have signed
// it for the connection with that binding.
func openQuestion(b, binding []byte) (request, error) {
	var q question
	if err := hints.Unmarshal(b, &q); err != nil {
		return request{}, errNotUnderstood
	}
	var r request
	if err := hints.Unmarshal(q.Request, &r); err != nil {
		return request{}, errNotUnderstood
	}
	if r.Version != questionVersion {
		return request{}, fmt.Errorf("%w: it is version %d, this is version %d", errNotUnderstood, r.Version, questionVersion)
	}
	if len(r.Key) != ed25519.PublicKeySize || len(r.Token) != ed25519.PublicKeySize {
		return request{}, errNotUnderstood
	}
	if !ed25519.Verify(r.Key, signedText(siteSignsAs, binding, q.Request), q.BySite) ||
		!ed25519.Verify(r.Token, signedText(tokenSignsAs, binding, q.Request), q.ByToken) {
		return request{}, fmt.Errorf("%w: it is not signed for this connection", errNotUnderstood)
	}
	return r, nil
}
