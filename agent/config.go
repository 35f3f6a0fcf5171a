package agent

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
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
	// Peers are hints of where other sites are, HOST:PORT by name. Names are
	// resolved anew at each attempt to connect. A site that is not among them
	// must connect by itself.
	Peers map[string]string
	// Version is the program's, for status. Empty: unknown.
	Version string
	// Logger gets a line for each change of state. Nil: nobody is told.
	Logger *slog.Logger
	// Ready is called once, when the local API answers. Nil: nobody is told.
	Ready func()
}

// Validate says what is wrong with c, if anything.
func (c Config) Validate() error {
	if c.Data == "" {
		return errors.New("an agent needs a data directory")
	}
	if c.Conn != nil && c.Listen != "" {
		return errors.New("an agent has a socket or an address to listen at, not both")
	}
	for name, addr := range c.Peers {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return errors.Join(errors.New("the address of site "+name+" is not HOST:PORT"), err)
		}
	}
	return nil
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
	return c
}
