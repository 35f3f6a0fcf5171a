package register

// Write is a write as it travels and as it is kept: a tag and the value that
// the tag is the version of (PROTOCOL.md section 1). Whoever is given a Write
// may read its slices and must not change them.
type Write struct {
	Tag     Tag    `cbor:"1,keyasint"`
	Value   []byte `cbor:"2,keyasint,omitempty"`
	Known   []Tag  `cbor:"4,keyasint,omitempty"` // what the owner had accepted undecided when it issued Tag
	Deleted bool   `cbor:"3,keyasint,omitempty"` // a tombstone, or never written: there is no value
	Decided bool   `cbor:"5,keyasint,omitempty"` // the owner's decision: Tag is final
}

// Round names one round of reads for ever: a voter's boot, raised at each of
// its starts, and a counter.
type Round struct {
	_     struct{} `cbor:",toarray"`
	Boot  uint64
	Count uint64
}

// Verdict is what an owner says of its own writes above another's tag
// (PROTOCOL.md section 2, heard).
type Verdict struct {
	Free bool `cbor:"1,keyasint,omitempty"` // no complete write of its own and no orphan was above the tag
	Excl Set  `cbor:"2,keyasint,omitempty"` // acknowledged a complete one above it before they had accepted the tag
}

// Message is what one voter says to another, about one key but for LIST and for those about voters. The types
// below are all there are; each is used by pointer, and whoever is given one
// may read it and must not change it. Who sent it is known from the
// connection, never from the message.
type Message interface {
	Kind() Kind
	// Register returns the key that the message is about, empty where it is about none.
	Register() string
}

// Kind tells the messages apart, in memory and on the wire.
type Kind uint8

// The kinds of message; their numbers are the wire's.
const (
	KindWrite Kind = iota + 1
	KindAckWrite
	KindCommit
	KindNeed
	KindAckCommit
	KindUpdateView
	KindRead
	KindAckRead
	KindForward
	KindList
	KindAckList
	KindCatchup
	KindAsk
	KindHeard
	KindVotes
)

var kindNames = [...]string{"", "WRITE", "ACK-WRITE", "COMMIT", "NEED", "ACK-COMMIT", "UPDATE-VIEW", "READ", "ACK-READ", "FORWARD", "LIST", "ACK-LIST", "CATCHUP", "ASK", "HEARD", "VOTES"}

// String returns the kind's name in PROTOCOL.md.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return "UNKNOWN"
	}
	return kindNames[k]
}

// MsgWrite is WRITE: an owner asks all to accept its write (section 3). After
// abandonment and recovery the owner sends it once more as a relay.
type MsgWrite struct {
	Key   string `cbor:"1,keyasint"`
	Write Write  `cbor:"2,keyasint"`
}

// MsgAckWrite is ACK-WRITE: what the sender makes of the write Tag (section 3).
type MsgAckWrite struct {
	Key    string   `cbor:"1,keyasint"`
	Tag    Tag      `cbor:"2,keyasint"`
	Clean  bool     `cbor:"3,keyasint,omitempty"` // it holds Tag as accepted; otherwise it is stale
	Blind  Set      `cbor:"4,keyasint,omitempty"` // stale: the owners of higher tags that were issued blind to Tag
	Own    *Verdict `cbor:"5,keyasint,omitempty"` // stale: it has a write of its own above Tag
	MaxTS  uint64   `cbor:"6,keyasint"`           // the highest timestamp of the key that it has seen
	Undone []Tag    `cbor:"7,keyasint,omitempty"` // accepted undecided, and its own pending tag of phase 1
}

// MsgCommit is COMMIT: an owner replaces its speculative tag Old by a decided
// one (section 4). NoValue says that the value is left out: the receiver has it
// under Old.
type MsgCommit struct {
	Key     string `cbor:"1,keyasint"`
	Old     Tag    `cbor:"2,keyasint"`
	Write   Write  `cbor:"3,keyasint"`
	NoValue bool   `cbor:"4,keyasint,omitempty"`
}

// MsgNeed is NEED: the sender has no value for the committed Tag (section 4).
type MsgNeed struct {
	Key string `cbor:"1,keyasint"`
	Tag Tag    `cbor:"2,keyasint"`
}

// MsgAckCommit is ACK-COMMIT: the sender has accepted the decided Tag.
type MsgAckCommit struct {
	Key    string `cbor:"1,keyasint"`
	Tag    Tag    `cbor:"2,keyasint"`
	Undone []Tag  `cbor:"3,keyasint,omitempty"`
}

// MsgUpdateView is UPDATE-VIEW: the sender has accepted Tag (section 3).
type MsgUpdateView struct {
	Key     string `cbor:"1,keyasint"`
	Tag     Tag    `cbor:"2,keyasint"`
	Decided bool   `cbor:"3,keyasint,omitempty"`
}

// MsgRead is READ: what do you hold (section 5)? The answer may leave out the
// value of Have, which the sender has saved.
type MsgRead struct {
	Key   string `cbor:"1,keyasint"`
	Round Round  `cbor:"2,keyasint"`
	Have  Tag    `cbor:"3,keyasint,omitzero"`
}

// MsgAckRead is ACK-READ: the highest write that the sender has accepted, and
// the write of its floor where that is higher (section 5).
type MsgAckRead struct {
	Key     string `cbor:"1,keyasint"`
	Round   Round  `cbor:"2,keyasint"`
	Cur     Write  `cbor:"3,keyasint"`
	NoValue bool   `cbor:"4,keyasint,omitempty"` // Cur's value is left out: the reader has it
	Floor   *Write `cbor:"5,keyasint,omitempty"`
}

// MsgForward is FORWARD: a reader relays the highest write that it knows
// (section 5); the answer is as to READ.
type MsgForward struct {
	Key   string `cbor:"1,keyasint"`
	Round Round  `cbor:"2,keyasint"`
	Write Write  `cbor:"3,keyasint"`
}

// MsgList is LIST: which keys do you hold that begin with Prefix and are above
// After (section 5)? The answer has up to Limit of them.
type MsgList struct {
	Round  Round  `cbor:"1,keyasint"`
	Prefix string `cbor:"2,keyasint,omitempty"`
	After  string `cbor:"3,keyasint,omitempty"`
	Limit  int    `cbor:"4,keyasint"`
}

// MsgAckList is ACK-LIST: the keys in order. Next, if not empty, is how far the
// sender has looked: it may hold more above it.
type MsgAckList struct {
	Round   Round   `cbor:"1,keyasint"`
	Entries []Entry `cbor:"2,keyasint,omitempty"`
	Next    string  `cbor:"3,keyasint,omitempty"`
}

// MsgCatchup is CATCHUP: a settled write that the receiver lacks (section 5).
type MsgCatchup struct {
	Key   string `cbor:"1,keyasint"`
	Write Write  `cbor:"2,keyasint"`
	Held  bool   `cbor:"3,keyasint,omitempty"` // a read quorum is known to have accepted it
}

// MsgAsk is ASK: the sender has started and does not vote yet. What was heard of
// it before (section 7, forgetting)?
type MsgAsk struct {
	Boot  uint64 `cbor:"1,keyasint"`           // the sender's
	Saved Seq    `cbor:"2,keyasint,omitempty"` // the highest record that it started from
}

// MsgHeard is HEARD: the highest that the sender has heard of the receiver before
// it asked; zero where nothing.
type MsgHeard struct {
	Boot  uint64 `cbor:"1,keyasint,omitempty"`
	Saved Seq    `cbor:"2,keyasint,omitempty"`
	Asked uint64 `cbor:"3,keyasint"` // the boot of the ASK that this answers
}

// MsgVotes is VOTES: the sender votes from now on, and what is unfinished is to
// be sent to it again.
type MsgVotes struct{}

// Entry is a key as LIST shows it. On the wire it says what one voter holds; in
// a Result what a read returned.
type Entry struct {
	Key     string `cbor:"1,keyasint"`
	Tag     Tag    `cbor:"2,keyasint"`           // of cur
	Deleted bool   `cbor:"3,keyasint,omitempty"` // it is a tombstone
	Size    int    `cbor:"4,keyasint,omitempty"` // of its value in bytes
	Aside   bool   `cbor:"5,keyasint,omitempty"` // the sender's floor is above cur
}

func (*MsgWrite) Kind() Kind      { return KindWrite }
func (*MsgAckWrite) Kind() Kind   { return KindAckWrite }
func (*MsgCommit) Kind() Kind     { return KindCommit }
func (*MsgNeed) Kind() Kind       { return KindNeed }
func (*MsgAckCommit) Kind() Kind  { return KindAckCommit }
func (*MsgUpdateView) Kind() Kind { return KindUpdateView }
func (*MsgRead) Kind() Kind       { return KindRead }
func (*MsgAckRead) Kind() Kind    { return KindAckRead }
func (*MsgForward) Kind() Kind    { return KindForward }
func (*MsgList) Kind() Kind       { return KindList }
func (*MsgAckList) Kind() Kind    { return KindAckList }
func (*MsgCatchup) Kind() Kind    { return KindCatchup }
func (*MsgAsk) Kind() Kind        { return KindAsk }
func (*MsgHeard) Kind() Kind      { return KindHeard }
func (*MsgVotes) Kind() Kind      { return KindVotes }

func (m *MsgWrite) Register() string      { return m.Key }
func (m *MsgAckWrite) Register() string   { return m.Key }
func (m *MsgCommit) Register() string     { return m.Key }
func (m *MsgNeed) Register() string       { return m.Key }
func (m *MsgAckCommit) Register() string  { return m.Key }
func (m *MsgUpdateView) Register() string { return m.Key }
func (m *MsgRead) Register() string       { return m.Key }
func (m *MsgAckRead) Register() string    { return m.Key }
func (m *MsgForward) Register() string    { return m.Key }
func (*MsgList) Register() string         { return "" }
func (*MsgAckList) Register() string      { return "" }
func (m *MsgCatchup) Register() string    { return m.Key }
func (*MsgAsk) Register() string          { return "" }
func (*MsgHeard) Register() string        { return "" }
func (*MsgVotes) Register() string        { return "" }

// NewMessage returns an empty message of the kind for a decoder to fill, or
// nil for a kind that does not exist.
func NewMessage(k Kind) Message {
	switch k {
	case KindWrite:
		return new(MsgWrite)
	case KindAckWrite:
		return new(MsgAckWrite)
	case KindCommit:
		return new(MsgCommit)
	case KindNeed:
		return new(MsgNeed)
	case KindAckCommit:
		return new(MsgAckCommit)
	case KindUpdateView:
		return new(MsgUpdateView)
	case KindRead:
		return new(MsgRead)
	case KindAckRead:
		return new(MsgAckRead)
	case KindForward:
		return new(MsgForward)
	case KindList:
		return new(MsgList)
	case KindAckList:
		return new(MsgAckList)
	case KindCatchup:
		return new(MsgCatchup)
	case KindAsk:
		return new(MsgAsk)
	case KindHeard:
		return new(MsgHeard)
	case KindVotes:
		return new(MsgVotes)
	}
	return nil
}
