package quic

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	quicgo "github.com/quic-go/quic-go"
)

// ALPN is the protocol that two sites agree on; it carries the version.
const ALPN = "gus/1"

// strangerError says that a certificate is of another cluster.
type strangerError struct {
	ours   Cluster
	theirs string // what the certificate claims
}

func (e *strangerError) Error() string {
	return fmt.Sprintf("a stranger: its certificate is of %s, this cluster is %s", e.theirs, e.ours)
}

// verify returns the site that a chain of certificates proves: one certificate,
// signed by ca, that names a site of ca's cluster. It looks at no clock.
func verify(chain []*x509.Certificate, ca *x509.Certificate) (Site, error) {
	if len(chain) != 1 {
		return Site{}, fmt.Errorf("%d certificates: a site has exactly one", len(chain))
	}
	ours, err := AuthorityCluster(ca)
	if err != nil {
		return Site{}, err
	}
	site, err := siteOf(chain[0])
	if err != nil {
		return Site{}, &strangerError{ours, "no gus cluster"}
	}
	if site.Cluster != ours {
		return Site{}, &strangerError{ours, "cluster " + site.Cluster.String()}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err = chain[0].Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: validAt,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return Site{}, fmt.Errorf("the certificate of %s is not signed by this cluster's authority: %w", site, err)
	}
	return site, nil
}

// tlsConfig returns what both directions of connecting share. refused is told
// of incoming connections whose certificate is refused, which nobody else
// hears of. With join, those are let in too who have no certificate and ask for
// nothing but JoinALPN.
func tlsConfig(id *Identity, join bool, refused func(from net.Addr, err error)) *tls.Config {
	base := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{ALPN},
		Certificates:           []tls.Certificate{{Certificate: [][]byte{id.Certificate.Raw}, PrivateKey: id.Key}},
		SessionTicketsDisabled: true, // connections live long; each is proved afresh
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // the names and clock of the web do not count here: VerifyConnection judges
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := verify(state.PeerCertificates, id.CA)
			return err
		},
	}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if join && len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == JoinALPN {
			return joinServer(id), nil
		}
		c := base.Clone()
		c.GetConfigForClient = nil
		from := hello.Conn.RemoteAddr()
		c.VerifyConnection = func(state tls.ConnectionState) error {
			_, err := verify(state.PeerCertificates, id.CA)
			if err != nil {
				refused(from, err)
			}
			return err
		}
		return c, nil
	}
	return base
}

// resetKey derives the key of stateless resets from the site's private key: a
// restarted agent then tells its peers that their connections are gone, and
// they need not wait for the idle timeout.
func resetKey(id *Identity) (*quicgo.StatelessResetKey, error) {
	k, err := hkdf.Key(sha256.New, id.Key.Seed(), nil, "gus stateless reset", len(quicgo.StatelessResetKey{}))
	if err != nil {
		return nil, fmt.Errorf("derive the reset key: %w", err)
	}
	return (*quicgo.StatelessResetKey)(k), nil
}

// explain puts a failure to connect into words that say what to look at.
func explain(err error) error {
	var t *quicgo.TransportError
	if errors.As(err, &t) && t.Remote && t.ErrorCode.IsCryptoError() {
		return fmt.Errorf("the other side refused this site's certificate or version (is it of another cluster?): %w", err)
	}
	return err
}
