package quic

import (
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gus/register"
)

func TestIdentitySurvivesItsDirectory(t *testing.T) {
	ca, ids, err := MakeVoters("site-a", "site-b")
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []string{"authority", "identity"} {
		dir := filepath.Join(t.TempDir(), "identity")
		saves := []func(string) error{ca.Save, ids[1].Save}
		if first == "identity" {
			saves[0], saves[1] = saves[1], saves[0]
		}
		for _, save := range saves {
			if err := save(dir); err != nil {
				t.Fatalf("%s first: %v", first, err)
			}
		}
		id, err := LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		if id.Site != ids[1].Site || !id.Key.Equal(ids[1].Key) || !id.Certificate.Equal(ids[1].Certificate) || !id.CA.Equal(ca.Certificate()) {
			t.Errorf("loaded %v, saved %v", id.Site, ids[1].Site)
		}
		again, err := LoadAuthority(dir)
		if err != nil {
			t.Fatal(err)
		}
		if again.Cluster() != ca.Cluster() {
			t.Errorf("the authority is of cluster %s, was of %s", again.Cluster(), ca.Cluster())
		}
		if _, err := again.NewIdentity("site-c", RoleVoter, 3); err != nil {
			t.Errorf("the authority issues no more: %v", err)
		}
		for _, save := range saves {
			if err := save(dir); err == nil || !strings.Contains(err.Error(), "is not replaced") {
				t.Errorf("a key was replaced: %v", err)
			}
		}
	}
}

func TestDamagedIdentities(t *testing.T) {
	_, ids, err := MakeVoters("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	_, strangers, err := MakeVoters("a")
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := strangers[0].Save(other); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join(other, fileCA))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		damage func(dir string) error
		want   []string
	}{
		{"no certificate", func(d string) error { return os.Remove(filepath.Join(d, fileSite)) }, []string{fileSite, "restore"}},
		{"no authority", func(d string) error { return os.Remove(filepath.Join(d, fileCA)) }, []string{fileCA, "restore"}},
		{"an empty key", func(d string) error { return os.Truncate(filepath.Join(d, fileSiteKey), 0) }, []string{fileSiteKey, "restore"}},
		{"half a certificate", func(d string) error { return os.Truncate(filepath.Join(d, fileSite), 100) }, []string{fileSite, "restore"}},
		{"a key for all to read", func(d string) error { return os.Chmod(filepath.Join(d, fileSiteKey), 0o640) }, []string{fileSiteKey, "chmod 0600"}},
		{"another cluster's authority", func(d string) error { return os.WriteFile(filepath.Join(d, fileCA), theirs, 0o644) },
			[]string{ids[0].Cluster.String(), strangers[0].Cluster.String()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "identity")
			if err := ids[0].Save(dir); err != nil {
				t.Fatal(err)
			}
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			_, err := LoadIdentity(dir)
			if err == nil || errors.Is(err, ErrNoIdentity) {
				t.Fatalf("loaded: %v", err)
			}
			for _, want := range append(c.want, dir) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
	if _, err := LoadIdentity(t.TempDir()); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := LoadAuthority(other); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("a directory without an authority: %v", err)
	}
}

func TestNamesRolesAndNumbers(t *testing.T) {
	ca, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		role   Role
		number register.Voter
		ok     bool
	}{
		{"a", RoleVoter, 1, true},
		{"edge-7.plant.example", RoleVoter, 63, true},
		{strings.Repeat("n", 63), RoleObserver, 0, true},
		{"", RoleVoter, 1, false},
		{strings.Repeat("n", 64), RoleVoter, 1, false},
		{"A", RoleVoter, 1, false},
		{"-a", RoleVoter, 1, false},
		{"a/b", RoleVoter, 1, false},
		{"a.", RoleVoter, 1, false},
		{"a", RoleVoter, 0, false},
		{"a", RoleVoter, 64, false},
		{"a", RoleObserver, 1, false},
		{"a", "king", 1, false},
	} {
		cert, err := ca.Issue(c.name, c.role, c.number, key.Public().(ed25519.PublicKey))
		if (err == nil) != c.ok {
			t.Errorf("%q %s %d: %v", c.name, c.role, c.number, err)
			continue
		}
		if err != nil {
			continue
		}
		site, err := verify([]*x509.Certificate{cert}, ca.Certificate())
		if want := (Site{ca.Cluster(), c.name, c.role, c.number}); err != nil || site != want {
			t.Errorf("the certificate says %v, want %v: %v", site, want, err)
		}
	}
}

func TestACertificateMeansOneSite(t *testing.T) {
	c := Cluster{0xab}.String()
	for _, bad := range []string{
		"https://" + c + "/voter/1/a", "gus://" + c + "/voter/01/a", "gus://" + c + "/voter/1/a/", "gus://" + c + "/voter/1",
		"gus://" + c + "/voter/64/a", "gus://" + c + "/voter/0/a", "gus://" + c + "/observer/1/a", "gus://" + c + "/voter/1/%61",
		"gus://" + c + "/voter/1/a?x", "gus://" + c + "/voter/1/a#x", "gus://u@" + c + "/voter/1/a", "gus://" + c + ":1/voter/1/a",
		"gus://" + strings.ToUpper(c) + "/voter/1/a", "gus://" + c[2:] + "/voter/1/a", "gus:///voter/1/a", "gus://" + c,
	} {
		u, err := url.Parse(bad)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := siteOf(&x509.Certificate{URIs: []*url.URL{u}}); err == nil {
			t.Errorf("%s is %v", bad, s)
		}
	}
	u := Site{Cluster{0xab}, "a", RoleVoter, 1}.uri()
	if _, err := siteOf(&x509.Certificate{URIs: []*url.URL{u}}); err != nil {
		t.Errorf("%s: %v", u, err)
	}
	if _, err := siteOf(&x509.Certificate{URIs: []*url.URL{u, u}}); err == nil {
		t.Error("two names in one certificate")
	}
}

// A site's key must not make sites: only the authority's does.
func TestASiteIsNoAuthority(t *testing.T) {
	ca, ids, err := MakeVoters("a")
	if err != nil {
		t.Fatal(err)
	}
	upstart := &Authority{cluster: ca.Cluster(), key: ids[0].Key, cert: ids[0].Certificate}
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := upstart.Issue("b", RoleVoter, 2, key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	for _, chain := range [][]*x509.Certificate{{cert}, {cert, ids[0].Certificate}, {}, {ca.Certificate()}} {
		if s, err := verify(chain, ca.Certificate()); err == nil {
			t.Errorf("a chain of %d proves %v", len(chain), s)
		}
	}
	if _, err := NewIdentity(key, ids[0].Certificate, ca.Certificate()); err == nil {
		t.Error("an identity with another's key")
	}
	if _, err := AuthorityCluster(ids[0].Certificate); err == nil {
		t.Error("a site's certificate is an authority's")
	}
	signature := ca.Sign([]byte("text"))
	if !Signed(ca.Certificate(), []byte("text"), signature) || Signed(ca.Certificate(), []byte("text!"), signature) || Signed(ids[0].Certificate, []byte("text"), signature) {
		t.Error("signatures are not judged by the authority's key and the text")
	}
}
