package quic

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"gus/register"
)

// Cluster is a cluster's id: 16 random bytes, drawn once by its Authority.
type Cluster [16]byte

// String returns the id as 32 hexadecimal digits, the form ParseCluster reads.
func (c Cluster) String() string { return hex.EncodeToString(c[:]) }

// ParseCluster reads a cluster id as String prints it.
func ParseCluster(s string) (Cluster, error) {
	var c Cluster
	if len(s) != hex.EncodedLen(len(c)) || strings.ToLower(s) != s {
		return Cluster{}, fmt.Errorf("cluster id %q is not 32 lower-case hexadecimal digits", s)
	}
	if _, err := hex.Decode(c[:], []byte(s)); err != nil {
		return Cluster{}, fmt.Errorf("cluster id %q is not 32 lower-case hexadecimal digits", s)
	}
	return c, nil
}

// Role says what a site may do in its cluster.
type Role string

// Voters hold the registers; observers only ask. No other role exists.
const (
	RoleVoter    Role = "voter"
	RoleObserver Role = "observer"
)

// MaxName is the length of the longest site name in bytes.
const MaxName = 63

// Site is who somebody is: what a certificate says, and nothing else does.
type Site struct {
	Cluster Cluster
	Name    string // 1 to MaxName of a-z, 0-9, '-' and '.', with a letter or digit at both ends
	Role    Role
	Number  register.Voter // 1 to register.MaxVoter for a voter, 0 for an observer
}

// String returns the site as people know it: "name (voter 2)".
func (s Site) String() string {
	if s.Role == RoleVoter {
		return fmt.Sprintf("%s (voter %d)", s.Name, s.Number)
	}
	return fmt.Sprintf("%s (%s)", s.Name, s.Role)
}

// Validate says what is wrong with s, if anything.
func (s Site) Validate() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	switch {
	case s.Role == RoleVoter && (s.Number < 1 || s.Number > register.MaxVoter):
		return fmt.Errorf("voter number %d of site %s: must be 1 to %d", s.Number, s.Name, register.MaxVoter)
	case s.Role == RoleObserver && s.Number != 0:
		return fmt.Errorf("observer %s has a voter's number, %d", s.Name, s.Number)
	case s.Role != RoleVoter && s.Role != RoleObserver:
		return fmt.Errorf("role %q of site %s: must be %s or %s", s.Role, s.Name, RoleVoter, RoleObserver)
	}
	return nil
}

// CheckName says whether name may be a site's name.
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= MaxName
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		inner := i > 0 && i < len(name)-1
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || inner && (c == '-' || c == '.')
	}
	if !ok {
		return fmt.Errorf("site name %q: must be 1 to %d of a-z, 0-9, '-' and '.', with a letter or digit at both ends", name, MaxName)
	}
	return nil
}

// uri is the form in which a certificate names its site:
// gus://CLUSTER/voter/NUMBER/NAME or gus://CLUSTER/observer/NAME.
func (s Site) uri() *url.URL {
	path := "/" + string(s.Role) + "/" + s.Name
	if s.Role == RoleVoter {
		path = "/" + string(s.Role) + "/" + strconv.Itoa(int(s.Number)) + "/" + s.Name
	}
	return &url.URL{Scheme: "gus", Host: s.Cluster.String(), Path: path}
}

// errNotSite is what a certificate is that names no site.
var errNotSite = errors.New("the certificate does not name a site of a gus cluster")

// siteOf returns the site that a certificate names. Whether that is true is
// for the cluster's authority to say: see verify.
func siteOf(cert *x509.Certificate) (Site, error) {
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != "gus" {
		return Site{}, errNotSite
	}
	u := cert.URIs[0]
	cluster, err := ParseCluster(u.Host)
	if err != nil {
		return Site{}, errNotSite
	}
	s := Site{Cluster: cluster}
	switch part := strings.Split(u.Path, "/"); {
	case len(part) == 4 && part[1] == string(RoleVoter):
		n, err := strconv.ParseUint(part[2], 10, 8)
		if err != nil {
			return Site{}, errNotSite
		}
		s.Role, s.Number, s.Name = RoleVoter, register.Voter(n), part[3]
	case len(part) == 3 && part[1] == string(RoleObserver):
		s.Role, s.Name = RoleObserver, part[2]
	default:
		return Site{}, errNotSite
	}
	// One spelling only, so that a site has one name.
	if s.Validate() != nil || s.uri().String() != u.String() {
		return Site{}, errNotSite
	}
	return s, nil
}

// Identity is a site with the proof that it is who it says: its private key
// and the certificate of the cluster's authority for it. It does not change;
// all may read it.
type Identity struct {
	Site
	Key         ed25519.PrivateKey
	Certificate *x509.Certificate // of Key's public key, signed by CA
	CA          *x509.Certificate // the authority's own
}

// NewIdentity puts an identity together, or says in what way its parts do not
// belong to each other.
func NewIdentity(key ed25519.PrivateKey, cert, ca *x509.Certificate) (*Identity, error) {
	site, err := verify([]*x509.Certificate{cert}, ca)
	if err != nil {
		return nil, err
	}
	public, ok := cert.PublicKey.(ed25519.PublicKey)
	if !ok || !public.Equal(key.Public()) {
		return nil, fmt.Errorf("the certificate of %s is for another key", site.Name)
	}
	return &Identity{Site: site, Key: key, Certificate: cert, CA: ca}, nil
}

// NewKey returns a new private key for a site.
func NewKey() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// MakeVoters returns a new cluster's authority and one identity a name, voters
// 1, 2, 3 and so on: a whole cluster in one process, for demonstrations and
// tests.
func MakeVoters(names ...string) (*Authority, []*Identity, error) {
	a, err := NewAuthority()
	if err != nil {
		return nil, nil, err
	}
	ids := make([]*Identity, len(names))
	for i, name := range names {
		if ids[i], err = a.NewIdentity(name, RoleVoter, register.Voter(i+1)); err != nil {
			return nil, nil, err
		}
	}
	return a, ids, nil
}
