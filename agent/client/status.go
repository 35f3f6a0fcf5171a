package client

import (
	"fmt"
	"strconv"
	"time"
)

// Status is how an agent is.
type Status struct {
	Site      string    `json:"site"`
	Cluster   string    `json:"cluster"`
	Version   string    `json:"version"` // of the program
	Data      string    `json:"data"`    // its data directory
	Listen    string    `json:"listen"`  // the UDP address on which other sites reach it
	Started   time.Time `json:"started"`
	Voters    []Voter   `json:"voters"` // by number, this site included
	Quorum    Quorum    `json:"quorum"`
	Keys      int       `json:"keys"`       // held, deleted ones that are remembered included
	DataBytes int64     `json:"data_bytes"` // keys and values
	Memory    int64     `json:"memory"`     // bytes that the process has from the system
	Disk      int64     `json:"disk"`       // bytes of the database's files
	Unsettled int       `json:"unsettled"`  // keys with a write not known to be settled
	Writes    int       `json:"writes"`     // writes under way
	Reads     int       `json:"reads"`      // rounds of reads under way
	Waiting   int       `json:"waiting"`    // writes that wait for a quorum to come into reach
	SaveError string    `json:"save_error,omitempty"`
	UDP       UDP       `json:"udp"`
}

// Voter is a voter as this site sees it.
type Voter struct {
	Name      string    `json:"name"`
	Number    int       `json:"number"`
	Self      bool      `json:"self,omitempty"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`  // of the connection, or of its absence
	RTT       Duration  `json:"rtt_ms"` // 0: not known
	Address   string    `json:"address,omitempty"`
}

// Quorum says whether enough voters are in reach to write and to read.
type Quorum struct {
	OK      bool      `json:"ok"` // both
	Read    int       `json:"read"`
	Write   int       `json:"write"`
	Reached int       `json:"reached"` // voters connected, this site included
	RTT     Duration  `json:"rtt_ms"`  // to the nearest quorum; 0: not known
	Missing []string  `json:"missing,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when it was lost; zero while OK
}

// UDP tells how large the socket's buffers are, in bytes.
type UDP struct {
	Receive int `json:"receive"`
	Send    int `json:"send"`
	Wanted  int `json:"wanted"`
}

// Duration is a time.Duration that JSON shows in milliseconds.
type Duration time.Duration

// MarshalJSON returns milliseconds.
func (d Duration) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(time.Duration(d).Microseconds())/1000, 'f', -1, 64), nil
}

// UnmarshalJSON reads milliseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	ms, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return fmt.Errorf("read milliseconds: %w", err)
	}
	*d = Duration(ms * float64(time.Millisecond))
	return nil
}
