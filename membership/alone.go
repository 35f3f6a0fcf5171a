package membership

import (
	"os"
	"path/filepath"

	"gus/quic"
	"gus/register"
)

// FoundAlone makes, in the directory dir, which it makes too, the identity directory of the
// one site of a new cluster, with the authority's key: for data that come from another
// cluster. The site is the voter number, which is none of those that have
// written the data: a number is given once. It is durable when FoundAlone returns, and the caller
// puts it in place.
func FoundAlone(dir, name string, number register.Voter) (Configuration, error) {
	if err := quic.CheckName(name); err != nil {
		return Configuration{}, err
	}
	authority, err := quic.NewAuthority()
	if err != nil {
		return Configuration{}, err
	}
	conf := New(authority.Cluster(), 1, Voter{name, number})
	if err := conf.Validate(); err != nil {
		return Configuration{}, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return Configuration{}, err
	}
	if err := writeFounding(dir, authority, conf, name); err != nil {
		return Configuration{}, err
	}
	return conf, SyncDir(filepath.Dir(dir))
}

// SavedPeers returns where the other voters of the site with the data directory data were
// last: none where that is not known.
func SavedPeers(data string) ([]Peer, error) { return loadPeers(data) }
