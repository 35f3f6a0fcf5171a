package register

// Seq numbers the saves of one voter: each Ready that has records has the next
// one. A Seq is never used twice, not across restarts either; peers learn the
// highest saved one with each batch (PROTOCOL.md section 6).
type Seq uint64

// Record is what one voter durably knows of one key: its whole state of
// PROTOCOL.md section 6, or (IsMark) no more than a note about the state saved
// before. Replaying an older Record before a newer one does no harm; the other
// way round it would. The register makes and reads records; a store keeps them
// and folds them together with Fold.
type Record struct {
	Key      string   `cbor:"1,keyasint"`
	Cur      Write    `cbor:"2,keyasint"`
	Floor    Tag      `cbor:"3,keyasint,omitzero"`  // omitted where it is Cur's tag
	Recs     []Rec    `cbor:"4,keyasint,omitempty"` // less the one that is Cur
	Pending  *Pending `cbor:"5,keyasint,omitempty"`
	Orphan   uint64   `cbor:"6,keyasint,omitempty"` // the timestamp of the highest orphan
	Readable bool     `cbor:"7,keyasint,omitempty"` // a read quorum holds Cur
	Mark     Tag      `cbor:"8,keyasint,omitzero"`  // a mark: of all the fields only Key, Mark, Cur.Decided and Readable count

	// The record of no key is the voter's note of what it has heard of voters
	// (PROTOCOL.md section 7, forgetting): only these two count.
	Heard  []Progress `cbor:"9,keyasint,omitempty"`
	Forgot *Progress  `cbor:"10,keyasint,omitempty"` // this voter has forgotten what it promised
}

// Rec is the latest write of one owner that the voter has heard of, where that is not Cur.
type Rec struct {
	Write    Write `cbor:"1,keyasint"`
	Accepted bool  `cbor:"2,keyasint,omitempty"`
	NoValue  bool  `cbor:"3,keyasint,omitempty"` // the value has been let go: nobody needs it
}

// Pending is the voter's own write in progress.
type Pending struct {
	Write Write `cbor:"1,keyasint"`
	Spec  Tag   `cbor:"2,keyasint"` // the speculative tag of phase 1; Write.Tag is another in phase 2
}

// IsMark says whether r only marks the write saved before as decided or
// readable. Marks need not be saved for safety (PROTOCOL.md section 6); they
// let a site that starts alone show what it knew to be settled.
func (r Record) IsMark() bool { return !r.Mark.IsZero() }

// Fold returns the state that older and then newer leave behind. Both are of
// one key; an older one that is not there is the zero Record.
func Fold(older, newer Record) Record {
	if !newer.IsMark() {
		return newer
	}
	if older.Cur.Tag == newer.Mark {
		older.Cur.Decided = older.Cur.Decided || newer.Cur.Decided
		older.Readable = older.Readable || newer.Readable
	}
	return older
}
