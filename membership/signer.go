package membership

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gus/quic"
)

// The founding site's books, in the identity directory.
const (
	namesFile  = "names.json"
	tokensFile = "tokens.json"
)

const (
	// MaxLifetime is the longest life of a token.
	MaxLifetime = 30 * 24 * time.Hour
	maxTokens   = 64
	// maxObservers is how many names of observers the founding site gives out. Names are
	// given for ever, so it counts those too that are no more.
	maxObservers = 1000
	// tokenAdvance is how much of each token's life is taken off in the file
	// beforehand, for the time that may pass until the next writing: after a
	// crash a token lives shorter and never longer.
	tokenAdvance = 2 * time.Minute
)

// nameBook says which name is of which key, for ever: of voters and of observers. Two
// machines that vote under one name would break what the register promises, so the book
// is on the disk before a certificate is in anybody's hands.
type nameBook struct {
	path string
	keys map[string][]byte // public keys by name
}

func loadNames(dir string) (*nameBook, error) {
	b := &nameBook{path: filepath.Join(dir, namesFile)}
	text, err := os.ReadFile(b.path)
	if err == nil {
		err = json.Unmarshal(text, &b.keys)
	}
	if err == nil && b.keys == nil {
		err = errors.New("it holds nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: without it nobody knows which names are taken: restore it from a backup", b.path, err)
	}
	return b, nil
}

// give gives a name to a key, durably, or says that it is another one's.
func (b *nameBook) give(name string, key crypto.PublicKey) error {
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return errNotUnderstood
	}
	if has, ok := b.keys[name]; ok {
		if bytes.Equal(has, public) {
			return nil
		}
		return fmt.Errorf("%w: %s has joined already, with another key. A site whose data is lost does not come back under its old name", ErrNameTaken, name)
	}
	b.keys[name] = public
	text, err := json.MarshalIndent(b.keys, "", "  ")
	if err == nil {
		err = replaceFile(b.path, append(text, '\n'))
	}
	if err != nil {
		// It may be on the disk or not. No certificate was made of it, so
		// the next one who asks decides, and waits for the disk again.
		delete(b.keys, name)
		return fmt.Errorf("note whose name %s is: %w", name, err)
	}
	return nil
}

// issued is a token that was given out.
type issued struct {
	key []byte    // public
	end time.Time // of its life; long past where it had ended before this process
}

type tokenEntry struct {
	Key  []byte `json:"key"`
	Left int64  `json:"left_seconds"` // of the founding agent's running time
}

// tokenBook is the tokens that were given out, oldest first. No clock is trusted: a
// token lives for its lifetime of the founding agent's running time, measured
// monotonically, and stands still while that is down.
type tokenBook struct {
	path    string
	tokens  []issued
	written []byte // what the file is known to hold
}

func loadTokens(dir string) (*tokenBook, error) {
	b := &tokenBook{path: filepath.Join(dir, tokensFile)}
	text, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	var entries []tokenEntry
	if err == nil {
		err = json.Unmarshal(text, &entries)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: it may be removed, and with it all tokens", b.path, err)
	}
	now := time.Now()
	for _, e := range entries {
		left := time.Duration(min(max(e.Left, 0), int64(MaxLifetime/time.Second))) * time.Second
		b.tokens = append(b.tokens, issued{e.Key, now.Add(left)})
	}
	return b, nil
}

// add gives a token out.
func (b *tokenBook) add(key []byte, life time.Duration) error {
	if life < time.Second || life > MaxLifetime || len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("%w: a token lives 1 s to %v", errNotUnderstood, MaxLifetime)
	}
	alive, now := 0, time.Now()
	for _, t := range b.tokens {
		if now.Before(t.end) {
			alive++
		}
	}
	if alive >= maxTokens {
		return fmt.Errorf("%w: %d, which is the limit: wait until some have expired", errTooManyTokens, alive)
	}
	before := b.tokens
	b.tokens = append(b.tokens[:len(b.tokens):len(b.tokens)], issued{key, now.Add(life)})
	for drop := len(b.tokens) - 2*maxTokens; drop > 0; drop-- { // the expired ones are kept for a good answer
		b.dropExpired(now)
	}
	if err := b.save(tokenAdvance); err != nil {
		b.tokens = before
		return err
	}
	return nil
}

func (b *tokenBook) dropExpired(now time.Time) {
	for i, t := range b.tokens {
		if !now.Before(t.end) {
			b.tokens = append(b.tokens[:i:i], b.tokens[i+1:]...)
			return
		}
	}
}

// check says whether the token with that public key is valid.
func (b *tokenBook) check(key []byte) error {
	for _, t := range b.tokens {
		if bytes.Equal(t.key, key) {
			if time.Now().Before(t.end) {
				return nil
			}
			return fmt.Errorf("%w: make another one with `gus token`", ErrExpiredToken)
		}
	}
	return fmt.Errorf("%w at the founding site: make another one with `gus token`", ErrUnknownToken)
}

// save writes what is left of each token's life, less advance.
func (b *tokenBook) save(advance time.Duration) error {
	entries := []tokenEntry{}
	for _, t := range b.tokens {
		entries = append(entries, tokenEntry{t.key, max(0, int64((time.Until(t.end)-advance)/time.Second))})
	}
	text, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the tokens: %w", err)
	}
	text = append(text, '\n')
	if bytes.Equal(text, b.written) {
		return nil // no token is alive: the disk is spared
	}
	if err := replaceFile(b.path, text); err != nil {
		return err
	}
	b.written = text
	return nil
}

// signer is the founding site's part: it has the authority. It decides one thing
// at a time.
type signer struct {
	authority *quic.Authority
	conf      Configuration
	signed    []byte // conf

	mu     sync.Mutex
	names  *nameBook
	tokens *tokenBook
}

// loadSigner returns nil where the identity directory has no authority's key.
func loadSigner(dir string, conf Configuration) (*signer, error) {
	authority, err := quic.LoadAuthority(dir)
	if errors.Is(err, quic.ErrNoIdentity) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &signer{authority: authority, conf: conf}
	if s.names, err = loadNames(dir); err != nil {
		return nil, err
	}
	if s.tokens, err = loadTokens(dir); err != nil {
		return nil, err
	}
	if s.signed, err = Sign(conf, authority); err != nil {
		return nil, err
	}
	return s, nil
}

// do answers an errand of this site or of another.
func (s *signer) do(e errand) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Question == nil {
		life := min(e.Lifetime, uint64(MaxLifetime/time.Second)+1)
		return answer{}, s.tokens.add(e.Token, time.Duration(life)*time.Second)
	}
	r, err := openQuestion(e.Question, e.Binding)
	if err != nil {
		return answer{}, err
	}
	return s.admit(r)
}

// admit decides about a request, whose signatures are good.
func (s *signer) admit(r request) (answer, error) {
	ours := s.authority.Cluster()
	if !bytes.Equal(r.Cluster, ours[:]) {
		return answer{}, fmt.Errorf("%w: this is cluster %s", ErrForeignToken, ours)
	}
	if err := s.tokens.check(r.Token); err != nil {
		return answer{}, err
	}
	if err := quic.CheckName(r.Name); err != nil {
		return answer{}, fmt.Errorf("%w: %w", errNotUnderstood, err)
	}
	if err := s.allow(r); err != nil {
		return answer{}, err
	}
	if err := s.names.give(r.Name, ed25519.PublicKey(r.Key)); err != nil {
		return answer{}, err
	}
	cert, err := s.authority.Issue(r.Name, quic.Role(r.Role), s.conf.VoterOf(r.Name), r.Key)
	if err != nil {
		return answer{}, err
	}
	return answer{Certificate: cert.Raw, Configuration: s.signed}, nil
}

// allow says whether a name may be had in that role, by whomever.
func (s *signer) allow(r request) error {
	voters := strings.Join(s.conf.names(), ", ")
	voter := s.conf.VoterOf(r.Name) != 0
	switch quic.Role(r.Role) {
	case quic.RoleVoter:
		if !voter {
			return fmt.Errorf("%w: the voters are %s. Any other name can join as an observer: add --observer", ErrNotVoter, voters)
		}
	case quic.RoleObserver:
		if voter {
			return fmt.Errorf("%w: %s votes, as do %s. Join under another name, or without --observer", ErrVotersName, r.Name, voters)
		}
		if _, again := s.names.keys[r.Name]; !again && s.observers() >= maxObservers {
			return fmt.Errorf("%w: %d have joined this cluster, which is the limit", ErrManyObservers, maxObservers)
		}
	default:
		return fmt.Errorf("%w: there is no role %q", errNotUnderstood, printable(r.Role, quic.MaxName))
	}
	return nil
}

// observers counts the names that observers have.
func (s *signer) observers() int {
	n := 0
	for name := range s.names.keys {
		if s.conf.VoterOf(name) == 0 {
			n++
		}
	}
	return n
}

// names returns the voters' names.
func (c Configuration) names() []string {
	var names []string
	for _, v := range c.Voters {
		names = append(names, v.Name)
	}
	return names
}

// saveTokens writes how long the tokens live on.
func (s *signer) saveTokens(advance time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tokens.tokens) == 0 {
		return nil
	}
	return s.tokens.save(advance)
}
