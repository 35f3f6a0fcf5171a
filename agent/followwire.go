package agent

import (
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

// purposeFollow is that of a stream on which a voter tells an observer what it
// comes to know as settled; quic/WIRE.md states the bytes.
const purposeFollow quic.Purpose = 7

const (
	// leastPace is the shortest time between two parts that a voter sends to one observer: what
	// comes meanwhile shares the next. It grows by paceFactor for each pair of them, up to mostPace: 20
	// have their turn every 10 ms, 100 every 200 ms. A part costs a voter the same whatever is
	// in it, so the more there are, the more is to share one.
	leastPace  = 10 * time.Millisecond
	paceFactor = 20 * time.Microsecond
	mostPace   = time.Second
	// With clients at the voter an observer that joins is told busyPage keys at once, and then
	// nothing for busyPause.
	busyPage  = 64
	busyPause = 20 * time.Millisecond
	// followAlive is after how long without news there is a part to say so, followSilence
	// after how long an observer that hears nothing takes the voter for gone.
	followAlive   = time.Second
	followSilence = 5 * time.Second
)

// followAsk is what an observer asks: what comes after its cursor into the voter's database.
type followAsk struct {
	Version  uint64       `cbor:"1,keyasint"`
	Database uint64       `cbor:"2,keyasint,omitempty"` // 0: none
	After    register.Seq `cbor:"3,keyasint,omitempty"`
}

// followPart is a part of the answer, which has no end.
type followPart struct {
	Writes   []cbor.RawMessage `cbor:"1,keyasint,omitempty"` // of register.MsgCatchup, in the order in which they are to be learnt
	Database uint64            `cbor:"2,keyasint"`
	Upto     register.Seq      `cbor:"3,keyasint,omitempty"` // with this part all is told that is in a save up to it; 0: no further than before
	Complete bool              `cbor:"4,keyasint,omitempty"` // all is told that the voter knows now
	Cursors  []voterCursor     `cbor:"5,keyasint,omitempty"` // of other voters: what was told up to Upto has all of theirs up to these
}

// voterCursor is how far the voter that tells of it has come with another one.
type voterCursor struct {
	Voter    string       `cbor:"1,keyasint"`
	Database uint64       `cbor:"2,keyasint"`
	Seq      register.Seq `cbor:"3,keyasint"`
}

// encoded is e as observers are sent it, made once.
func (e *event) encoded() cbor.RawMessage {
	e.once.Do(func() {
		m := register.MsgCatchup{Key: e.Key, Write: e.Write, Held: e.Held}
		b, err := streamEncoding.Marshal(&m)
		if err != nil {
			panic(fmt.Sprintf("agent: encode a write: %v", err))
		}
		e.frame = b
	})
	return e.frame
}

// check refuses a part that cannot be.
func (p *followPart) check(upto snapshot.Cursor) error {
	switch {
	case p.Database == 0:
		return nonsense("news of no database")
	case p.Upto != 0 && p.Database == upto.Database && p.Upto < upto.Seq:
		return nonsense("news up to %d after those up to %d", p.Upto, upto.Seq)
	case len(p.Cursors) > int(register.MaxVoters):
		return nonsense("the cursors of %d voters", len(p.Cursors))
	}
	return nil
}
