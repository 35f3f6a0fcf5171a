package membership

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"gus/quic"
	"gus/register"
)

// Peer is a site as it is remembered: who it is and where it was last.
type Peer struct {
	Name    string         `json:"name" cbor:"1,keyasint"`
	Number  register.Voter `json:"number,omitempty" cbor:"2,keyasint"` // 0 for an observer
	Address string         `json:"address" cbor:"3,keyasint"`          // HOST:PORT
}

// Validate says what is wrong with p, if anything.
func (p Peer) Validate() error {
	if err := quic.CheckName(p.Name); err != nil {
		return err
	}
	if p.Number > register.MaxVoter {
		return fmt.Errorf("voter number %d of site %s", p.Number, p.Name)
	}
	return checkAddress(p.Address)
}

// peersFile is in the data directory, and has the voters: those can be dialled. It is a memory, not a truth: it may be
// removed at any time, and seeds then lead back to the others.
const peersFile = "peers.json"

const maxPeersFile = 1 << 20 // bytes

// loadPeers reads the sites that were seen. There are none where there is no file.
func loadPeers(data string) ([]Peer, error) {
	path := filepath.Join(data, peersFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > maxPeersFile {
		err = fmt.Errorf("it has %d bytes, the limit is %d", info.Size(), maxPeersFile)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	var peers []Peer
	if err == nil {
		err = json.Unmarshal(b, &peers)
	}
	for _, p := range peers {
		err = errors.Join(err, p.Validate())
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: it may be removed", path, err)
	}
	return peers[:min(len(peers), maxMembers)], nil
}

// savePeers writes the sites that were seen. before is what the file is known to
// hold; where that is the same, nothing is written. It returns what it holds now.
func savePeers(data string, peers []Peer, before []byte) ([]byte, error) {
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	b, err := json.MarshalIndent(peers, "", "  ")
	if err != nil {
		return before, fmt.Errorf("encode the peers: %w", err)
	}
	b = append(b, '\n')
	if bytes.Equal(b, before) {
		return before, nil
	}
	if err := replaceFile(filepath.Join(data, peersFile), b); err != nil {
		return before, err
	}
	return b, nil
}
