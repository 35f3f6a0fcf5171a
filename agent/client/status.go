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
	Version   string    `json:"version"`             // of the program
	Data      string    `json:"data"`                // its data directory
	Listen    string    `json:"listen"`              // the UDP address on which other sites reach it
	Advertise string    `json:"advertise,omitempty"` // where it tells them to reach it; empty while it does not know
	Started   time.Time `json:"started"`
	Members   []Member  `json:"members"` // this site included: voters by number, then others by name
	Quorum    Quorum    `json:"quorum"`  // of an observer: whether a voter is in reach
	// Following is nil at a voter.
	Following *Following `json:"following,omitempty"`
	Voting    Voting     `json:"voting"`
	Keys      int        `json:"keys"`       // held, deleted ones that are remembered included
	DataBytes int64      `json:"data_bytes"` // keys and values
	Memory    int64      `json:"memory"`     // bytes that the process has from the system
	Resident  int64      `json:"resident"`   // bytes of memory that it has had at most, by the system's word; 0: unknown
	CPU       Duration   `json:"cpu_ms"`     // processor time that the process has used; 0: unknown
	Disk      int64      `json:"disk"`       // bytes of the database's files
	Epoch     Epoch      `json:"epoch"`      // what a start reads at once
	Past      PastStatus `json:"past"`       // what can be read of the past
	Unsettled int        `json:"unsettled"`  // keys with a write not known to be settled
	Writes    int        `json:"writes"`     // writes under way
	Reads     int        `json:"reads"`      // rounds of reads under way
	Waiting   int        `json:"waiting"`    // writes that wait for a quorum to come into reach
	SaveError string     `json:"save_error,omitempty"`
	SaveSince time.Time  `json:"save_since,omitzero"` // since when a save is under way, if it takes long
	UDP       UDP        `json:"udp"`
	Warnings  []Warning  `json:"warnings,omitempty"` // what somebody should look after
	// Syncs are the jobs of this site that keep files as keys are, in the agent and beside it.
	Syncs []SyncState `json:"syncs,omitempty"`

	// Backups is nil where the agent saves none by itself.
	Backups *BackupSchedule `json:"backups,omitempty"`

	// Disagreements are keys on which this site and another have had different
	// settled versions for two epochs of 10 s. There should be none.
	Disagreements Disagreements `json:"disagreements"`
}

// Following is whom an observer follows, which has no vote.
type Following struct {
	Voter    string    `json:"voter,omitempty"` // empty: none is in reach
	Since    time.Time `json:"since"`           // of that
	Complete bool      `json:"complete"`        // it has all that the voter knew a few seconds ago
	Age      Duration  `json:"age_ms"`          // how old the copy is, at least; 0: a few seconds at most
}

// Epoch is the newest epoch of the database: a start reads it, and then what was
// saved after it.
type Epoch struct {
	Number uint64    `json:"number"`           // 0: there is none yet
	Time   time.Time `json:"time,omitzero"`    // at its beginning, by this site's clock
	Behind uint64    `json:"behind"`           // saves after it
	HeldUp bool      `json:"held_up,omitzero"` // the next one cannot be made: the disk is full
}

// PastStatus is what can be read of the past.
type PastStatus struct {
	Epochs int64     `json:"epochs"`         // how many
	Oldest uint64    `json:"oldest"`         // of those; 0: there is none yet
	Since  time.Time `json:"since,omitzero"` // the end of the oldest, by this site's clock
	Bytes  int64     `json:"bytes"`          // about, of what newer versions have superseded
}

// State is how this site finds another. Nothing that the protocol decides
// depends on it.
type State string

// The states of a member.
const (
	StateUp          State = "up"          // it is this site, or connected
	StateUnreachable State = "unreachable" // others hear of it; this site is not connected with it
	StateDown        State = "down"        // nobody hears of it
	StateUnseen      State = "unseen"      // it was never there
)

// Member is a site as this one sees it.
type Member struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"`             // "voter" or "observer"
	Number  int       `json:"number,omitempty"` // of a voter
	Self    bool      `json:"self,omitempty"`
	State   State     `json:"state"`
	Since   time.Time `json:"since"`             // of the state; where it is not up, not before this agent's start
	RTT     Duration  `json:"rtt_ms"`            // 0: not known
	Address string    `json:"address,omitempty"` // HOST:PORT
	Version string    `json:"version,omitempty"` // of its program
	Failure string    `json:"failure,omitempty"` // why the last attempt to connect failed
	Clock   *Clock    `json:"clock,omitempty"`   // nil: not compared
	Catchup *Catchup  `json:"catchup,omitempty"` // nil: it is this site, or no voter
}

// Clock is how far a site's clock is ahead of this one's.
type Clock struct {
	Ahead Duration `json:"ahead_ms"` // negative: behind
	Error Duration `json:"error_ms"` // by so much it may be wrong either way
}

// Catchup is how far this site is with what another voter has saved.
type Catchup struct {
	Behind  uint64    `json:"behind"`          // saves of that voter that were not looked at yet, as far as is known
	Since   time.Time `json:"since,omitzero"`  // when there began to be some; zero while Behind is 0
	Pulling bool      `json:"pulling"`         // they are being looked at
	Taken   int       `json:"taken,omitempty"` // while Pulling: keys that this site lacked and has been sent, or is about to be
}

// Warning is something that somebody should look after.
type Warning struct {
	Code string `json:"code"`           // for scripts
	Text string `json:"text"`           // what is wrong, in a line
	Cure string `json:"cure,omitempty"` // what to do about it, in a line
}

// Quorum says whether enough voters are in reach to write and to read.
type Quorum struct {
	OK      bool      `json:"ok"` // both
	Voters  int       `json:"voters"`
	Read    int       `json:"read"`
	Write   int       `json:"write"`
	Reached int       `json:"reached"` // voters connected, this site included
	RTT     Duration  `json:"rtt_ms"`  // to the nearest quorum; 0: not known
	Missing []string  `json:"missing,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when it was lost; zero while OK
}

// Voting says whether the site takes part: after each start it first asks the
// others whether it has forgotten anything that it told them.
type Voting struct {
	OK     bool      `json:"ok"`
	Since  time.Time `json:"since"`            // of that
	Awaits []string  `json:"awaits,omitempty"` // while it does not vote: who has not answered
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
