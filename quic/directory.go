package quic

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// The files of an identity directory.
const (
	fileCA      = "ca.pem"   // the authority's certificate
	fileSite    = "site.pem" // the site's certificate
	fileSiteKey = "site.key" // the site's private key
	fileCAKey   = "ca.key"   // the authority's private key, at the founding site only
)

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY" // PKCS #8
)

// ErrNoIdentity is returned where a directory holds no identity, or no
// authority, at all.
var ErrNoIdentity = errors.New("no identity")

// Save writes the identity into dir, which it makes, durably. It never
// replaces a file: an identity that is lost by mistake cannot be had again. Where
// the site's key is there already (SiteKey), it stays.
func (id *Identity) Save(dir string) error {
	key, err := x509.MarshalPKCS8PrivateKey(id.Key)
	if err != nil {
		return fmt.Errorf("encode the site's key: %w", err)
	}
	// The key comes last: a directory without it holds no identity.
	files := []file{{fileSite, pemCertificate, id.Certificate.Raw, 0o644}, {fileSiteKey, pemKey, key, 0o600}}
	if there, err := loadKey(dir, fileSiteKey); err == nil && there.Equal(id.Key) {
		files = files[:1]
	}
	return saveFiles(dir, id.CA, files...)
}

// SiteKey returns the site's key in dir, which it makes, durably, where there is
// none: a site has its key before it has a certificate for it.
func SiteKey(dir string) (ed25519.PrivateKey, error) {
	key, err := loadKey(dir, fileSiteKey)
	if err == nil || !errors.Is(err, ErrNoIdentity) {
		return key, err
	}
	if key, err = NewKey(); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the site's key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the identity directory: %w", err)
	}
	// By a rename, so that half a key is never taken for one.
	path := filepath.Join(dir, fileSiteKey)
	tmp := path + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("write the site's key: %w", err)
	}
	if err := saveFile(tmp, file{fileSiteKey, pemKey, der, 0o600}); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, fmt.Errorf("write the site's key: %w", err)
	}
	return key, syncDirectory(dir)
}

// LoadIdentity reads the identity in dir and checks that its parts belong
// together. The error is ErrNoIdentity where there is none; any other names
// the file and what to do.
func LoadIdentity(dir string) (*Identity, error) {
	key, err := loadKey(dir, fileSiteKey)
	if err != nil {
		return nil, err
	}
	cert, err := loadCertificate(dir, fileSite)
	if err != nil {
		return nil, err
	}
	ca, err := loadCertificate(dir, fileCA)
	if err != nil {
		return nil, err
	}
	id, err := NewIdentity(key, cert, ca)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: restore the directory from a backup, or have the site join anew", dir, err)
	}
	return id, nil
}

// Save writes the authority's key and certificate into dir, which it makes,
// durably, and replaces no key. It may be called before or after the identity
// of the founding site was saved there.
func (a *Authority) Save(dir string) error {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return fmt.Errorf("encode the authority's key: %w", err)
	}
	return saveFiles(dir, a.cert, file{fileCAKey, pemKey, key, 0o600})
}

// LoadAuthority reads the authority in dir. The error is ErrNoIdentity where
// there is none.
func LoadAuthority(dir string) (*Authority, error) {
	key, err := loadKey(dir, fileCAKey)
	if err != nil {
		return nil, err
	}
	cert, err := loadCertificate(dir, fileCA)
	if err != nil {
		return nil, err
	}
	cluster, err := AuthorityCluster(cert)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: restore it from a backup", filepath.Join(dir, fileCA), err)
	}
	if public, ok := cert.PublicKey.(ed25519.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, fmt.Errorf("%s is not the key of %s: restore both from one backup",
			filepath.Join(dir, fileCAKey), fileCA)
	}
	return &Authority{cluster: cluster, key: key, cert: cert}, nil
}

type file struct {
	name, kind string
	der        []byte
	mode       fs.FileMode
}

// saveFiles writes files into dir, after the authority's certificate unless
// that is there already.
func saveFiles(dir string, ca *x509.Certificate, files ...file) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the identity directory: %w", err)
	}
	if there, err := loadCertificate(dir, fileCA); err != nil || !there.Equal(ca) {
		files = append([]file{{fileCA, pemCertificate, ca.Raw, 0o644}}, files...)
	}
	for _, f := range files {
		if err := saveFile(filepath.Join(dir, f.name), f); err != nil {
			return err
		}
	}
	return syncDirectory(dir)
}

// syncDirectory makes durable which files are in dir.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync the identity directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil && runtime.GOOS != "windows" {
		return fmt.Errorf("sync the identity directory: %w", err)
	}
	return nil
}

func saveFile(path string, f file) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists and is not replaced: use another directory, or move the old identity away", path)
	}
	if err != nil {
		return fmt.Errorf("write the identity: %w", err)
	}
	err = pem.Encode(out, &pem.Block{Type: f.kind, Bytes: f.der})
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func loadCertificate(dir, name string) (*x509.Certificate, error) {
	der, err := loadPEM(dir, name, pemCertificate)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: restore it from a backup", filepath.Join(dir, name), err)
	}
	return cert, nil
}

func loadKey(dir, name string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s does not exist", ErrNoIdentity, path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s may be read by others (mode %04o): chmod 0600 %s", path, mode, path)
	}
	der, err := loadPEM(dir, name, pemKey)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: restore it from a backup", path, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is not an Ed25519 key: restore it from a backup", path)
	}
	return private, nil
}

func loadPEM(dir, name, kind string) ([]byte, error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: restore it from a backup", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the identity: %w", err)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != kind || len(rest) != 0 {
		return nil, fmt.Errorf("%s is not one PEM block %q: restore it from a backup", path, kind)
	}
	return block.Bytes, nil
}
