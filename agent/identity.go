package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gus/membership"
	"gus/quic"
	"gus/register"
)

// ErrNoIdentity: the data directory holds no identity. A directory that failed
// to mount must not become a new cluster, so Run makes none.
var ErrNoIdentity = errors.New("no identity")

// identify reads who the site of a data directory is, and who counts in its
// cluster.
func identify(data string) (*quic.Identity, membership.Configuration, error) {
	var none membership.Configuration
	dir := filepath.Join(data, membership.IdentityDir)
	id, err := quic.LoadIdentity(dir)
	if errors.Is(err, quic.ErrNoIdentity) && exists(filepath.Join(data, aside, oldMark)) {
		return nil, none, fmt.Errorf("%s holds %w: a recovery was cut off there: run `gus recover` again", data, ErrNoIdentity)
	}
	if errors.Is(err, quic.ErrNoIdentity) {
		return nil, none, fmt.Errorf("%s holds %w: `gus init` founds a cluster, `gus join` joins one, `gus demo` shows one; if this site had an identity, its disk is not mounted here",
			data, ErrNoIdentity)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, none, fmt.Errorf("%w: run as the user to whom %s belongs", err, data)
	}
	if err != nil {
		return nil, none, err
	}
	conf, err := membership.Load(dir, id.CA)
	if err != nil {
		return nil, none, err
	}
	if conf.VoterOf(id.Name) != id.Number { // 0 for an observer, as of a name that is no voter's
		return nil, none, fmt.Errorf("%s: %s is not what configuration %d says, whose voters are %s: put back the identity that belongs to it",
			dir, id.Site, conf.Number, names(conf))
	}
	return id, conf, nil
}

// names lists the voters for people.
func names(c membership.Configuration) string {
	var all []string
	for _, v := range c.Voters {
		all = append(all, v.Name)
	}
	return strings.Join(all, ", ")
}

// voterName returns the name of a voter, also of one that is no more.
func voterName(c membership.Configuration, number register.Voter) string {
	for _, v := range c.Voters {
		if v.Number == number {
			return v.Name
		}
	}
	return fmt.Sprintf("voter %d", number)
}

// Founder is a site of a cluster that Found founds.
type Founder struct {
	Name string // as quic.CheckName wants it
	Data string // its data directory, made if need be
	// Observer is for a site without a vote.
	Observer bool
}

// Found founds a cluster of the given sites, all with their data
// on this machine, and gives each its identity: for demonstrations and tests.
// The authority's key is kept by nobody, so nobody can join. Where all sites
// have an identity already, it changes nothing; where some have, it fails.
func Found(sites []Founder) error {
	found := 0
	var names []string
	for _, s := range sites {
		names = append(names, s.Name)
		switch _, err := quic.LoadIdentity(filepath.Join(s.Data, membership.IdentityDir)); {
		case err == nil:
			found++
		case !errors.Is(err, quic.ErrNoIdentity):
			return err
		}
	}
	switch found {
	case len(sites):
		return nil
	case 0:
		return foundNew(sites)
	}
	return fmt.Errorf("%d of the %d sites %s have an identity: use empty directories, or those of one cluster", found, len(sites), strings.Join(names, ", "))
}

func foundNew(sites []Founder) error {
	authority, err := quic.NewAuthority()
	if err != nil {
		return err
	}
	var voters []membership.Voter
	ids := make([]*quic.Identity, len(sites))
	for i, s := range sites {
		role, number := quic.RoleObserver, register.Voter(0)
		if !s.Observer {
			role, number = quic.RoleVoter, register.Voter(len(voters)+1)
			voters = append(voters, membership.Voter{Name: s.Name, Number: number})
		}
		if ids[i], err = authority.NewIdentity(s.Name, role, number); err != nil {
			return err
		}
	}
	signed, err := membership.Sign(membership.New(authority.Cluster(), 1, voters...), authority)
	if err != nil {
		return err
	}
	for i, s := range sites {
		dir := filepath.Join(s.Data, membership.IdentityDir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
		// The identity comes last: without it the directory is an empty one.
		if err := errors.Join(membership.Save(dir, signed), ids[i].Save(dir)); err != nil {
			return err
		}
	}
	return nil
}
