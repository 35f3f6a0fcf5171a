package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"

	"gus/agent/files"
	"gus/snapshot"
)

// DefaultListen is where an agent listens for other sites: on all addresses, at
// UDP port 7487.
const DefaultListen = ":7487"

// Config is what an agent needs to know. Data is required; the zero values of
// all else are good ones.
type Config struct {
	// Data is the directory that holds the identity and the database. It must
	// be there, with mode 0700.
	Data string
	// Socket is the path of the local API's unix socket, of 107 bytes at most.
	// Empty: gus.sock in Data.
	Socket string
	// Listen is the UDP address HOST:PORT for other sites. Empty: DefaultListen.
	Listen string
	// Conn is used in place of a socket at Listen. The agent closes it.
	Conn net.PacketConn
	// Advertise is the address HOST:PORT at which others reach this site. Empty:
	// that of the socket, or where that is none in particular, the one from
	// which the others see it come.
	Advertise string
	// Seeds are addresses HOST:PORT at which some site of the cluster may be,
	// besides those that joining told and that were seen before. Names are
	// looked up anew at each attempt and need not be known yet.
	Seeds []string
	// Syncs are directories whose files the agent keeps as keys are. Their Once and
	// DryRun, and whom they tell, are the agent's.
	Syncs []files.Pull
	// Reloads gets what Syncs are to be from then on. Nil: they stay as they are.
	Reloads <-chan []files.Pull
	// Retain is how much of the past is kept. Its zero values: a day, a tenth of the disk
	// that Data is on, and any number of epochs.
	Retain snapshot.Retention
	// Backups are what the agent saves by itself.
	Backups BackupPlan
	// Version is the program's, for status. Empty: unknown.
	Version string
	// Logger gets a line for each change of state. Nil: nobody is told.
	Logger *slog.Logger
	// Ready is called once, when the local API answers. Nil: nobody is told.
	Ready func()

	lookup func(ctx context.Context, host string) ([]netip.Addr, error) // nil: the system's
	saving func()                                                       // holds up the end of each save, as a slow disk does; nil: nothing does
}

// Validate says what is wrong with c, if anything.
func (c Config) Validate() error {
	if c.Data == "" {
		return errors.New("an agent needs a data directory")
	}
	if c.Conn != nil && c.Listen != "" {
		return errors.New("an agent has a socket or an address to listen at, not both")
	}
	for _, addr := range append([]string{c.Advertise}, c.Seeds...) {
		if host, port, err := net.SplitHostPort(addr); addr != "" && (err != nil || host == "" || !isPort(port)) {
			return fmt.Errorf("the address %q is not HOST:PORT with a port of 1 to 65535", addr)
		}
	}
	if err := c.Backups.Validate(); err != nil {
		return err
	}
	return checkSyncs(c.Data, c.Syncs)
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// withDefaults returns c with its zero values replaced.
func (c Config) withDefaults() Config {
	if c.Socket == "" {
		c.Socket = filepath.Join(c.Data, "gus.sock")
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Version == "" {
		c.Version = "unknown"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Ready == nil {
		c.Ready = func() {}
	}
	if c.saving == nil {
		c.saving = func() {}
	}
	return c
}
