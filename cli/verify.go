package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

// verifyTimeout is for a verification that was given no --timeout.
const verifyTimeout = time.Minute

// maxNamed is how many keys are named, but for --json.
const maxNamed = 100

// errNotCompared: what could be compared agrees, and that was not all.
var errNotCompared = errors.New("not all voters were compared")

// verify compares all that the site holds with the other voters.
func (a *app) verify(c *cli.Context, cl *client.Client) error {
	timeout := verifyTimeout
	if c.IsSet("timeout") {
		timeout = c.Duration("timeout")
	}
	ctx, cancel := context.WithTimeout(c.Context, timeout)
	defer cancel()
	v, err := cl.Verify(ctx)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = a.printJSON(v)
	} else {
		printVerification(a.out, v)
	}
	return errors.Join(err, verdict(v))
}

// printVerification prints a key on which sites disagree a line, or that there is none.
func printVerification(w io.Writer, v client.Verification) {
	show := func(key string) string { return key }
	if isTerminal(w) {
		show = printable
	}
	named := v.Differ[:min(len(v.Differ), maxNamed)]
	for _, d := range named {
		fmt.Fprintf(w, "%s  %s %s  %s %s\n", show(d.Key), v.Site, cmp.Or(string(d.Version), "-"), d.Peer, cmp.Or(string(d.PeerVersion), "-"))
	}
	if more := len(v.Differ) - len(named) + v.More; more > 0 {
		fmt.Fprintf(w, "... and %s more\n", thousands(more))
	}
	if len(v.Differ)+v.More == 0 && len(v.NotCompared) == 0 {
		fmt.Fprintf(w, "all agree: %d keys, %d sites compared\n", v.Keys, len(v.Compared)+1)
	}
}

// verdict returns what is wrong with v, if anything.
func verdict(v client.Verification) error {
	var not []string
	for _, n := range v.NotCompared {
		not = append(not, n.Site+": "+n.Why)
	}
	switch n := len(v.Differ) + v.More; {
	case n > 0 && len(not) > 0:
		return fmt.Errorf("sites differ on keys, %s in all, and not all voters were compared (%s): %s", thousands(n), strings.Join(not, "; "), verifyCure)
	case n > 0:
		return fmt.Errorf("sites differ on keys, %s in all: %s", thousands(n), verifyCure)
	case len(not) > 0:
		return fmt.Errorf("%w: %s; the %d that were agree: see `gus members`", errNotCompared, strings.Join(not, "; "), len(v.Compared)+1)
	}
	return nil
}

const verifyCure = "a site that has just come back catches up by itself, and versions that differ for 20 s are repaired: " +
	"if a key stays, or has one version at both, set it again"
