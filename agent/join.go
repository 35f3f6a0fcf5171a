package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"gus/agent/client"
	"gus/membership"
)

// Founding is a cluster that Init has founded.
type Founding struct {
	Cluster string   `json:"cluster"`
	Site    string   `json:"site"`
	Voters  []string `json:"voters"`
	CAKey   string   `json:"ca_key"`           // the file that lets sites join; to be backed up
	Advice  string   `json:"advice,omitempty"` // what to think about before going on
}

// Init founds a cluster whose founding site is the one called name, with its data in
// the directory data. The voters, name among them, get numbers in their order. It
// replaces nothing: the error is client.ErrRefused where data holds an identity.
func Init(data, name string, voters []string) (Founding, error) {
	conf, err := membership.Init(data, name, voters)
	if err != nil {
		return Founding{}, refusal(err)
	}
	return Founding{
		Cluster: conf.Cluster.String(), Site: name, Voters: voters, Advice: conf.Advice(),
		CAKey: filepath.Join(data, membership.IdentityDir, "ca.key"),
	}, nil
}

// Joining is what a site needs to join a cluster.
type Joining struct {
	Data  string // the data directory, made if need be
	Name  string // of the site
	Token string // as `gus token` prints it
	// Observer is for a site that holds a copy of all data and has no vote. Its name is
	// none of the voters'.
	Observer bool
	// Listen is the UDP address HOST:PORT to ask from, for firewalls that let
	// no other pass. Empty: any.
	Listen string
}

// Joined says how a site has joined.
type Joined struct {
	Cluster string `json:"cluster"`
	Site    string `json:"site"`
	Number  int    `json:"number,omitempty"` // of a voter
	Via     string `json:"via"`              // the site that was asked
	Address string `json:"address"`          // where that was
	Role    string `json:"role"`             // "voter" or "observer"
}

// Join makes the data directory's site one of the token's cluster. It may be
// called again after any failure. The error is client.ErrRefused where asking
// again would bring the same answer.
func Join(ctx context.Context, j Joining) (Joined, error) {
	m := membership.Joining{Data: j.Data, Name: j.Name, Token: j.Token, Observer: j.Observer}
	if j.Listen != "" {
		conn, err := net.ListenPacket("udp", j.Listen)
		if err != nil {
			return Joined{}, fmt.Errorf("open a UDP socket: %w", err)
		}
		defer conn.Close()
		m.Conn = conn
	}
	got, err := membership.Join(ctx, m)
	switch {
	case err == nil:
	case errors.Is(err, membership.ErrNoRoute), ctx.Err() != nil:
		return Joined{}, fmt.Errorf("%w: see that an agent runs there and that UDP passes, or make a token at another site", noRoute(err))
	default:
		return Joined{}, refusal(err)
	}
	return Joined{
		Cluster: got.Site.Cluster.String(), Site: got.Site.Name, Number: int(got.Site.Number),
		Via: got.Via.Name, Address: got.Addr, Role: string(got.Site.Role),
	}, nil
}

// noRoute makes membership.ErrNoRoute of an error that came of impatience.
func noRoute(err error) error {
	if errors.Is(err, membership.ErrNoRoute) {
		return err
	}
	return fmt.Errorf("%w: %w", membership.ErrNoRoute, err)
}

// refusal makes client.ErrRefused of an error that stays what it is.
func refusal(err error) error {
	for _, is := range []error{
		membership.ErrDamagedToken, membership.ErrExpiredToken, membership.ErrUnknownToken, membership.ErrForeignToken,
		membership.ErrNameTaken, membership.ErrNotVoter, membership.ErrVotersName, membership.ErrManyObservers, membership.ErrHasIdentity,
	} {
		if errors.Is(err, is) {
			return fmt.Errorf("%w: %w", client.ErrRefused, err)
		}
	}
	return err
}
