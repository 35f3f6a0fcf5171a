package sim

import (
	"fmt"

	"gus/register"
)

// Kind is what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Get Kind = iota
	Set
	Delete
)

// Fate is what a client knows of its operation in the end.
type Fate uint8

// What became of an operation.
const (
	Open    Fate = iota // in progress, or (at the end of a history) as Unknown
	Done                // complete
	Unknown             // given up or cut off by a crash: a write may take effect, now or later
	Never               // it was said, or is certain, that a write never takes effect
)

// Operation is one operation of a client, as the client saw it.
type Operation struct {
	ID         register.Op
	Voter      register.Voter // where its client is
	Key        string
	Kind       Kind
	Value      string // a Set's, unique to it unless empty; that of a Get which is Done
	Found      bool   // of a Get: there was a value
	Fate       Fate
	Call       int64        // when it began
	Return     int64        // when it was Done; all Call and Return of a history differ
	Tag        register.Tag // of one that is Done: the version read or written
	RoundTrips int
}

// String describes o for a trace.
func (o *Operation) String() string {
	s := fmt.Sprintf("op %d at v%d: %s %s %q", o.ID, o.Voter, [...]string{"get", "set", "delete"}[o.Kind], o.Key, o.Value)
	switch o.Fate {
	case Done:
		s += fmt.Sprintf(" done, version %v in %d rounds", o.Tag, o.RoundTrips)
		if o.Kind == Get && !o.Found {
			s += ", no value"
		}
	case Unknown:
		s += " unknown"
	case Never:
		s += " never"
	}
	return s
}

// History is all operations of a run, in the order of their calls.
type History []*Operation
