package quic

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"gus/register"
)

// Certificates are valid for as long as the format can say: a site is removed
// by the configuration, not by expiry, and a box without a battery clock
// begins its life in 1970.
var (
	validFrom  = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	validUntil = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	// validAt is when all certificates are judged, whatever the clock says.
	validAt = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Authority is a cluster's certificate authority: who has it says who is a
// site, and with which number. It is made once, with the cluster, and stays at
// the founding site. It does not change; all may use it at the same time.
type Authority struct {
	cluster Cluster
	key     ed25519.PrivateKey
	cert    *x509.Certificate
}

// NewAuthority makes the authority of a new cluster with a random id.
func NewAuthority() (*Authority, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	a := &Authority{key: key}
	if _, err := rand.Read(a.cluster[:]); err != nil {
		return nil, fmt.Errorf("draw a cluster id: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "gus cluster " + a.cluster.String()},
		URIs:                  []*url.URL{clusterURI(a.cluster)},
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	if a.cert, err = sign(template, template, key.Public().(ed25519.PublicKey), key); err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	return a, nil
}

// Cluster returns the id of the authority's cluster.
func (a *Authority) Cluster() Cluster { return a.cluster }

// Certificate returns the authority's own certificate, by which all sites
// judge each other.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Issue signs the statement that public is the key of the site of that name,
// role and number (0 for observers). That a name or number is given to one
// key only is for the caller to see to.
func (a *Authority) Issue(name string, role Role, number register.Voter, public ed25519.PublicKey) (*x509.Certificate, error) {
	site := Site{Cluster: a.cluster, Name: name, Role: role, Number: number}
	if err := site.Validate(); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		URIs:                  []*url.URL{site.uri()},
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	cert, err := sign(template, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: %w", site, err)
	}
	return cert, nil
}

// NewIdentity makes a key and issues a certificate for it.
func (a *Authority) NewIdentity(name string, role Role, number register.Voter) (*Identity, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	cert, err := a.Issue(name, role, number, key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	return NewIdentity(key, cert, a.cert)
}

// Sign signs a document of the cluster. The caller begins message with a text
// that says what kind of document it is, so that no signature serves for
// another kind.
func (a *Authority) Sign(message []byte) []byte { return ed25519.Sign(a.key, message) }

// Signed says whether signature is of the authority with the certificate ca,
// for message.
func Signed(ca *x509.Certificate, message, signature []byte) bool {
	public, ok := ca.PublicKey.(ed25519.PublicKey)
	return ok && ed25519.Verify(public, message, signature)
}

// AuthorityCluster returns the id of the cluster whose authority ca belongs to.
func AuthorityCluster(ca *x509.Certificate) (Cluster, error) {
	if !ca.IsCA || len(ca.URIs) != 1 || ca.URIs[0].Scheme != "gus" || ca.URIs[0].Path != "" {
		return Cluster{}, fmt.Errorf("the certificate is not of a gus cluster's authority")
	}
	return ParseCluster(ca.URIs[0].Host)
}

func clusterURI(c Cluster) *url.URL { return &url.URL{Scheme: "gus", Host: c.String()} }

func sign(template, parent *x509.Certificate, public ed25519.PublicKey, key ed25519.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = validFrom, validUntil
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
