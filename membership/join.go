package membership

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"gus/quic"
)

// Joining is what a site needs to join a cluster. What has no other word is
// required.
type Joining struct {
	Data  string // the data directory, made if need be
	Name  string // of the site
	Token string // as `gus token` prints it
	// Observer is for a site that holds a copy and has no vote; its name is none of
	// the voters'.
	Observer bool
	// Conn is the socket to ask from. Nil: one of its own.
	Conn net.PacketConn
	// Lookup is as in quic.Config.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Joined says how a site has joined.
type Joined struct {
	Site quic.Site // the new one
	Via  quic.Site // the one that was asked
	Addr string    // HOST:PORT of that
}

// Join makes the data directory's site one of the token's cluster. The site's key
// is made here and never leaves; it is on the disk before anybody is asked, so
// that asking again after a lost answer asks for the same. The errors are the
// sentinels of this package, each with one line for people.
func Join(ctx context.Context, j Joining) (Joined, error) {
	token, err := ParseToken(j.Token)
	if err != nil {
		return Joined{}, err
	}
	if err := quic.CheckName(j.Name); err != nil {
		return Joined{}, err
	}
	dir := filepath.Join(j.Data, IdentityDir)
	if err := vacant(dir); err != nil {
		return Joined{}, err
	}
	tmp := dir + ".joining"
	_, err = os.Stat(tmp)
	fresh := errors.Is(err, fs.ErrNotExist)
	key, err := quic.SiteKey(tmp)
	if err != nil {
		return Joined{}, err
	}
	var failures []error
	for _, addr := range token.Addresses {
		a, joined, err := j.ask(ctx, token, addr, key)
		if err == nil {
			return joined, j.settle(tmp, dir, a)
		}
		if final(err) && fresh && len(failures) == 0 {
			_ = os.RemoveAll(tmp) // refused, and never asked before: nobody knows this key
		}
		if final(err) || ctx.Err() != nil {
			return Joined{}, err
		}
		failures = append(failures, fmt.Errorf("%s: %w", addr, err))
	}
	return Joined{}, sum(failures)
}

// final says whether another site would say the same.
func final(err error) bool {
	var said *wireError
	return errors.As(err, &said) && !errors.Is(err, ErrFounderAway) && !errors.Is(err, ErrTooManyAttempts) && !errors.Is(err, errFounderCannot)
}

// sum makes one error of how each address failed.
func sum(failures []error) error {
	foreign := 0
	var lines []string
	for _, err := range failures {
		var said *wireError
		if errors.As(err, &said) {
			return err
		}
		if errors.Is(err, quic.ErrOtherCluster) {
			foreign++
		}
		lines = append(lines, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	kind := ErrNoRoute
	if foreign == len(failures) {
		kind = ErrForeignToken
	}
	return fmt.Errorf("%w: tried %s", kind, strings.Join(lines, "; "))
}

// role is that of the site.
func (j Joining) role() quic.Role {
	if j.Observer {
		return quic.RoleObserver
	}
	return quic.RoleVoter
}

// admitted is what a site that may join was given.
type admitted struct {
	id     *quic.Identity
	signed []byte // the configuration
	peers  []Peer
}

// ask asks the site at addr.
func (j Joining) ask(ctx context.Context, token Token, addr string, key ed25519.PrivateKey) (admitted, Joined, error) {
	conn, err := quic.DialJoin(ctx, quic.JoinDial{
		Addr: addr, Cluster: token.Cluster, Fingerprint: token.Fingerprint, Conn: j.Conn, Lookup: j.Lookup,
	})
	if err != nil {
		return admitted{}, Joined{}, err
	}
	defer conn.Close() // what it returns comes after all that counts
	binding, err := conn.Binding()
	if err != nil {
		return admitted{}, Joined{}, err
	}
	prove := token.key()
	question, err := newQuestion(request{
		Version: questionVersion, Cluster: token.Cluster[:], Name: j.Name, Role: string(j.role()),
		Key: key.Public().(ed25519.PublicKey), Token: prove.Public().(ed25519.PublicKey),
	}, binding, key, prove)
	if err != nil {
		return admitted{}, Joined{}, err
	}
	b, err := conn.Ask(ctx, question)
	if err != nil {
		return admitted{}, Joined{}, err
	}
	a, err := decodeAnswer(b)
	if err != nil {
		return admitted{}, Joined{}, err
	}
	if err := a.err(); err != nil {
		return admitted{}, Joined{}, err
	}
	out, err := j.accept(a, key, conn.CA)
	if err != nil {
		return admitted{}, Joined{}, err
	}
	out.meet(conn.Site, addr)
	return out, Joined{Site: out.id.Site, Via: conn.Site, Addr: addr}, nil
}

// accept checks what was given: a certificate for this key and name, and a
// configuration that has them, both of the authority that the token names.
func (j Joining) accept(a answer, key ed25519.PrivateKey, ca *x509.Certificate) (admitted, error) {
	cert, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return admitted{}, fmt.Errorf("read the certificate: %w", err)
	}
	id, err := quic.NewIdentity(key, cert, ca)
	if err != nil {
		return admitted{}, err
	}
	conf, err := Open(a.Configuration, ca)
	if err != nil {
		return admitted{}, err
	}
	if id.Name != j.Name || id.Role != j.role() || conf.VoterOf(j.Name) != id.Number {
		return admitted{}, fmt.Errorf("asked to be %s %s, was made %s, and is voter %d by the configuration (0: none)", j.role(), j.Name, id.Site, conf.VoterOf(j.Name))
	}
	out := admitted{id: id, signed: a.Configuration}
	for _, p := range a.Peers {
		if p.Validate() == nil && p.Name != j.Name && p.Number != 0 {
			out.peers = append(out.peers, p)
		}
	}
	return out, nil
}

// meet notes where the site is that was asked, if it is a voter: there it did answer.
func (a *admitted) meet(site quic.Site, addr string) {
	if site.Role != quic.RoleVoter {
		return
	}
	for i := range a.peers {
		if a.peers[i].Name == site.Name {
			a.peers[i].Address = addr
			return
		}
	}
	a.peers = append(a.peers, Peer{site.Name, site.Number, addr})
}

// settle writes all that was given, and with one rename makes it the site's
// identity.
func (j Joining) settle(tmp, dir string, a admitted) error {
	if _, err := savePeers(j.Data, a.peers, nil); err != nil {
		return err
	}
	// An attempt that ended here may have left these.
	for _, name := range []string{"site.pem", "ca.pem"} {
		if err := os.Remove(filepath.Join(tmp, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what an earlier attempt left: %w", err)
		}
	}
	if err := Save(tmp, a.signed); err != nil {
		return err
	}
	if err := a.id.Save(tmp); err != nil {
		return err
	}
	return moveInto(tmp, dir)
}
