package sim

import (
	"slices"

	"gus/register"
)

// Mark is something that has to happen sometimes: a run of many seeds in which
// one of them never does is not the test that it looks like.
type Mark uint8

// The marks, roughly in the order of PROTOCOL.md.
const (
	MarkStale Mark = iota // a stale acknowledgement
	MarkBlind             // one that reports an owner blind to the tag
	MarkOwn               // one that reports a write of the answerer's own
	MarkFree              // that says the answerer is free
	MarkExcl              // that excludes voters
	MarkUndone
	MarkKnown
	MarkRetag
	MarkRetagWithoutValue
	MarkNeed
	MarkRelayedWrite // WRITE by an owner whose clients are gone
	MarkFloorShown
	MarkValueLeftOut // ACK-READ without the value
	MarkForward
	MarkAbandoned
	MarkDroppedUnsent
	MarkCoalesced
	MarkSharedRound
	MarkSaveFailed
	MarkNotSaved // a write's client was told so
	MarkCrashedInSave
	MarkRecoveredPhase1
	MarkRecoveredPhase2
	MarkQueueFull
	MarkReconnected
	MarkSlowWrite
	MarkSlowRead
	MarkQuorumOnly // ended with no more than a quorum up
	MarkNextPage   // a listing that went on after its first page
	MarkListRead   // one that had to read a key
	MarkListAgreed // one that read off all its keys
	MarkListUnheard
	MarkListDropped
	MarkPageBounded // ACK-LIST with a next
	MarkPageAside
	MarkPageDeleted
	MarkCatchup
	MarkCatchupUndecided // of what a read quorum holds and its owner has not decided
	MarkReread
	MarkAsks // a voter that starts and asks first
	MarkHeardLess
	MarkOldStart
	MarkAdopted // a cursor that a voter passes on
	marks
)

var markNames = [marks]string{
	"stale acknowledgement", "blind owner", "own write reported", "free verdict", "excluded voters", "undone tags", "known tags",
	"retag", "commit without value", "NEED", "relayed WRITE", "floor shown", "value left out", "FORWARD", "abandoned write",
	"write dropped unsent", "coalesced writes", "shared round", "failed save", "write not saved", "crash in mid-save",
	"recovered in phase 1", "recovered in phase 2", "full queue", "reconnection", "write of two rounds", "read of two rounds",
	"ended with a quorum only", "next page", "listing with a read", "listing with none", "key listed where it was not heard of",
	"listing dropped", "page with a next", "page with a floor above cur", "page with a tombstone",
	"CATCHUP", "CATCHUP of what is not decided", "reread", "voter that asks", "HEARD of an earlier start", "message of an earlier start",
	"cursor passed on to an observer",
}

// String says what the mark stands for.
func (m Mark) String() string { return markNames[m] }

// Marks counts how often each thing happened.
type Marks [marks]int

func (m *Marks) hit(k Mark, when bool) {
	if when {
		m[k]++
	}
}

// said notes what a message that a voter sends gives away.
func (m *Marks) said(msg register.Message) {
	switch x := msg.(type) {
	case *register.MsgWrite:
		m.hit(MarkKnown, len(x.Write.Known) > 0)
	case *register.MsgAckWrite:
		m.hit(MarkStale, !x.Clean)
		m.hit(MarkBlind, x.Blind != 0)
		m.hit(MarkOwn, x.Own != nil)
		m.hit(MarkFree, x.Own != nil && x.Own.Free)
		m.hit(MarkExcl, x.Own != nil && x.Own.Excl != 0)
		m.hit(MarkUndone, len(x.Undone) > 0)
	case *register.MsgCommit:
		m.hit(MarkRetag, true)
		m.hit(MarkRetagWithoutValue, x.NoValue)
	case *register.MsgNeed:
		m.hit(MarkNeed, true)
	case *register.MsgAckRead:
		m.hit(MarkFloorShown, x.Floor != nil)
		m.hit(MarkValueLeftOut, x.NoValue)
	case *register.MsgForward:
		m.hit(MarkForward, true)
	case *register.MsgCatchup:
		m.hit(MarkCatchup, true)
		m.hit(MarkCatchupUndecided, !x.Write.Decided)
	case *register.MsgHeard:
		m.hit(MarkHeardLess, x.Boot > 0)
	case *register.MsgAckList:
		m.hit(MarkPageBounded, x.Next != "")
		m.hit(MarkPageAside, slices.ContainsFunc(x.Entries, func(e register.Entry) bool { return e.Aside }))
		m.hit(MarkPageDeleted, slices.ContainsFunc(x.Entries, func(e register.Entry) bool { return e.Deleted }))
	}
}
