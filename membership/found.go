package membership

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gus/quic"
	"gus/register"
)

// IdentityDir is the directory of a site's identity in its data directory.
const IdentityDir = "identity"

// Init founds a cluster with its data directory's site as the founding one: it makes the
// authority, whose key stays there, the site's identity, and configuration 1 of
// the voters, who get their numbers in the order given. name must be among
// them. It does all of that or nothing, and replaces nothing: the error is
// ErrHasIdentity where there is an identity. Configuration.Advice may have
// something to say about the result.
func Init(data, name string, voters []string) (Configuration, error) {
	authority, err := quic.NewAuthority()
	if err != nil {
		return Configuration{}, err
	}
	conf, err := founding(authority.Cluster(), name, voters)
	if err != nil {
		return Configuration{}, err
	}
	dir := filepath.Join(data, IdentityDir)
	if err := vacant(dir); err != nil {
		return Configuration{}, err
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return Configuration{}, fmt.Errorf("make the data directory: %w", err)
	}
	// What is left of an attempt that did not end has signed nothing.
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return Configuration{}, fmt.Errorf("remove what an earlier attempt left: %w", err)
	}
	if err := writeFounding(tmp, authority, conf, name); err != nil {
		return Configuration{}, err
	}
	return conf, moveInto(tmp, dir)
}

// founding is configuration 1.
func founding(cluster quic.Cluster, name string, voters []string) (Configuration, error) {
	if err := quic.CheckName(name); err != nil {
		return Configuration{}, err
	}
	if !slices.Contains(voters, name) {
		return Configuration{}, fmt.Errorf("the founding site %s must be one of the voters, which are %s", name, strings.Join(voters, ", "))
	}
	if len(voters) > register.MaxVoters {
		return Configuration{}, fmt.Errorf("%d voters: at most %d", len(voters), register.MaxVoters)
	}
	var all []Voter
	for i, v := range voters {
		all = append(all, Voter{v, register.Voter(i + 1)})
	}
	conf := New(cluster, 1, all...)
	return conf, conf.Validate()
}

// Advice says what a number of voters is not good at, "" where there is nothing
// to say.
func (c Configuration) Advice() string {
	if n := len(c.Voters); n%2 == 0 {
		return fmt.Sprintf("%d voters go on without %d of them, as %d would: an odd number does the same with one site less", n, (n-1)/2, n-1)
	}
	return ""
}

func writeFounding(dir string, authority *quic.Authority, conf Configuration, name string) error {
	id, err := authority.NewIdentity(name, quic.RoleVoter, conf.VoterOf(name))
	if err != nil {
		return err
	}
	signed, err := Sign(conf, authority)
	if err != nil {
		return err
	}
	if err := authority.Save(dir); err != nil {
		return err
	}
	if err := Save(dir, signed); err != nil {
		return err
	}
	names := nameBook{path: filepath.Join(dir, namesFile), keys: map[string][]byte{}}
	if err := names.give(name, id.Certificate.PublicKey); err != nil {
		return err
	}
	return id.Save(dir)
}

// vacant says whether an identity may be put into dir.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for an identity: %w", err)
	}
	id, err := quic.LoadIdentity(dir)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s is %s of cluster %s: use another directory", ErrHasIdentity, dir, id.Site, id.Cluster)
	case errors.Is(err, quic.ErrNoIdentity):
		return fmt.Errorf("%s holds files of something else: move them away, or use another directory", dir)
	}
	return fmt.Errorf("%w, which cannot be read: %w", ErrHasIdentity, err)
}

// moveInto makes dir of the finished tmp. Where there is a dir it is empty.
func moveInto(tmp, dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put the identity in place: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("put the identity in place: %w", err)
	}
	return SyncDir(filepath.Dir(dir))
}
