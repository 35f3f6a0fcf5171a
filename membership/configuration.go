package membership

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"gus/quic"
	"gus/register"
)

// Configuration says who counts. It holds no keys: a voter is who a
// certificate of the cluster's authority calls by its name and number.
type Configuration struct {
	Cluster     quic.Cluster
	Number      uint64  // 1 for the first one; a later one replaces an earlier
	Voters      []Voter // 1 to register.MaxVoters, by ascending number
	ReadQuorum  int     // Q_R, the voter itself counted
	WriteQuorum int     // Q_W, likewise
}

// Voter is one voter of a configuration.
type Voter struct {
	Name   string         `cbor:"1,keyasint"`
	Number register.Voter `cbor:"2,keyasint"` // permanent: never given to another name
}

// New returns a configuration of the voters, in any order, with the usual
// quorums (register.Quorums). It does not validate.
func New(cluster quic.Cluster, number uint64, voters ...Voter) Configuration {
	c := Configuration{Cluster: cluster, Number: number, Voters: slices.Clone(voters)}
	slices.SortFunc(c.Voters, func(a, b Voter) int { return cmp.Compare(a.Number, b.Number) })
	c.ReadQuorum, c.WriteQuorum = register.Quorums(len(voters))
	return c
}

// Validate says what is wrong with c, if anything.
func (c Configuration) Validate() error {
	if c.Number == 0 {
		return errors.New("configuration number 0: the first one is 1")
	}
	if c.ReadQuorum == 0 || c.WriteQuorum == 0 {
		return fmt.Errorf("configuration %d has no quorum sizes", c.Number)
	}
	names := make(map[string]bool)
	for i, v := range c.Voters {
		if err := quic.CheckName(v.Name); err != nil {
			return fmt.Errorf("configuration %d: %w", c.Number, err)
		}
		if names[v.Name] {
			return fmt.Errorf("configuration %d names voter %s twice", c.Number, v.Name)
		}
		names[v.Name] = true
		if i > 0 && v.Number <= c.Voters[i-1].Number {
			return fmt.Errorf("configuration %d: voter numbers %d and %d are not ascending", c.Number, c.Voters[i-1].Number, v.Number)
		}
	}
	if len(c.Voters) == 0 {
		return fmt.Errorf("configuration %d has no voters", c.Number)
	}
	// The register is the judge of numbers and quorums.
	if err := c.Register(c.Voters[0].Number, 1, 0).Validate(); err != nil {
		return fmt.Errorf("configuration %d: %w", c.Number, err)
	}
	return nil
}

// Register returns what the register of the voter self is told of c.
func (c Configuration) Register(self register.Voter, boot uint64, saved register.Seq) register.Config {
	r := register.Config{Self: self, ReadQuorum: c.ReadQuorum, WriteQuorum: c.WriteQuorum, Boot: boot, Saved: saved}
	for _, v := range c.Voters {
		r.Voters = append(r.Voters, v.Number)
	}
	return r
}

// VoterOf returns the number of the voter called name; it is 0 for a site
// that is no voter.
func (c Configuration) VoterOf(name string) register.Voter {
	for _, v := range c.Voters {
		if v.Name == name {
			return v.Number
		}
	}
	return 0
}

// The signed form is the CBOR map {1: document, 2: signature}; the signature
// is of signedAs and the document's bytes.
const (
	signedAs      = "gus configuration 1\x00"
	maxDocument   = 4 << 10 // bytes, signed: nine voters with the longest names need a quarter
	maxDocElement = 16
)

type signed struct {
	Document  []byte `cbor:"1,keyasint"`
	Signature []byte `cbor:"2,keyasint"`
}

type document struct {
	Cluster     []byte  `cbor:"1,keyasint"`
	Number      uint64  `cbor:"2,keyasint"`
	Voters      []Voter `cbor:"3,keyasint"`
	ReadQuorum  int     `cbor:"4,keyasint"`
	WriteQuorum int     `cbor:"5,keyasint"`
}

// Both modes are built once and may be used by all at the same time.
var encoding, decoding = mustModes()

func mustModes() (cbor.EncMode, cbor.DecMode) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:   4,
		MaxArrayElements:  maxDocElement,
		MaxMapPairs:       maxDocElement,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, // a voter must know all of what it counts by
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return enc, dec
}

func (c Configuration) encode() ([]byte, error) {
	return encoding.Marshal(document{c.Cluster[:], c.Number, c.Voters, c.ReadQuorum, c.WriteQuorum})
}

// Sign returns c, which must be valid and of a's cluster, signed by a.
func Sign(c Configuration, a *quic.Authority) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Cluster != a.Cluster() {
		return nil, fmt.Errorf("configuration %d is of cluster %s, the authority of %s", c.Number, c.Cluster, a.Cluster())
	}
	doc, err := c.encode()
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	b, err := encoding.Marshal(signed{doc, a.Sign(append([]byte(signedAs), doc...))})
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return b, nil
}

// Open returns the configuration in b if the authority with the certificate
// ca has signed it and it is valid.
func Open(b []byte, ca *x509.Certificate) (Configuration, error) {
	if len(b) > maxDocument {
		return Configuration{}, fmt.Errorf("a configuration of %d bytes, the limit is %d", len(b), maxDocument)
	}
	var s signed
	if err := decoding.Unmarshal(b, &s); err != nil {
		return Configuration{}, fmt.Errorf("decode the configuration: %w", err)
	}
	if !quic.Signed(ca, append([]byte(signedAs), s.Document...), s.Signature) {
		return Configuration{}, errors.New("the configuration is not signed by this cluster's authority")
	}
	var d document
	if err := decoding.Unmarshal(s.Document, &d); err != nil {
		return Configuration{}, fmt.Errorf("decode the configuration: %w", err)
	}
	c := Configuration{Number: d.Number, Voters: d.Voters, ReadQuorum: d.ReadQuorum, WriteQuorum: d.WriteQuorum}
	copy(c.Cluster[:], d.Cluster)
	if again, err := c.encode(); err != nil || !bytes.Equal(again, s.Document) {
		return Configuration{}, errors.New("the configuration is not encoded in the one way")
	}
	ours, err := quic.AuthorityCluster(ca)
	if err != nil {
		return Configuration{}, err
	}
	if c.Cluster != ours {
		return Configuration{}, fmt.Errorf("the configuration is of cluster %s, this one is %s", c.Cluster, ours)
	}
	return c, c.Validate()
}

// file is where the configuration is, in the identity directory.
const file = "configuration"

// Save writes a signed configuration into the identity directory, durably and
// all or none, in place of the one that is there.
func Save(dir string, signed []byte) error {
	return replaceFile(filepath.Join(dir, file), signed)
}

// Load reads the configuration in the identity directory and checks it as
// Open does. Its errors name the file and what to do.
func Load(dir string, ca *x509.Certificate) (Configuration, error) {
	path := filepath.Join(dir, file)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Configuration{}, fmt.Errorf("%s is missing: copy it from another site of the cluster: %w", path, err)
	}
	if err != nil {
		return Configuration{}, fmt.Errorf("read the configuration: %w", err)
	}
	c, err := Open(b, ca)
	if err != nil {
		return Configuration{}, fmt.Errorf("%s: %w: copy it from another site of the cluster", path, err)
	}
	return c, nil
}
