package sim

import (
	"fmt"
	"strings"

	"gus/register"
)

// Kind is what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Get Kind = iota
	Set
	Delete
	List // one page of keys
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
	Page       *Page  // of a List
	Fate       Fate
	Call       int64        // when it began
	Return     int64        // when it was Done; all Call and Return of a history differ
	Tag        register.Tag // of one that is Done: the version read or written
	RoundTrips int

	page bool // a Get that is what a page said of its key: of the value no more is known than its size
	size int
}

// writes says whether o is a write.
func (o *Operation) writes() bool { return o.Kind == Set || o.Kind == Delete }

// Page is what a List asks for and, once it is Done, what it got.
type Page struct {
	Prefix, After string
	Limit         int
	Entries       []register.Entry
	Next          string

	unheard []string // keys that its voter's disk knew nothing of when it began
}

// covers says whether a page that is Done says something of key, be it by not
// showing it.
func (p *Page) covers(key string) bool {
	return strings.HasPrefix(key, p.Prefix) && key > p.After && (p.Next == "" || key <= p.Next)
}

// String describes o for a trace.
func (o *Operation) String() string {
	s := fmt.Sprintf("op %d at v%d: %s %s %q", o.ID, o.Voter, [...]string{"get", "set", "delete", "list"}[o.Kind], o.Key, o.Value)
	switch {
	case o.Kind == List:
		s = fmt.Sprintf("op %d at v%d: list %q after %q, up to %d", o.ID, o.Voter, o.Page.Prefix, o.Page.After, o.Page.Limit)
	case o.page:
		s = fmt.Sprintf("op %d at v%d: %s in a listing", o.ID, o.Voter, o.Key)
	}
	switch o.Fate {
	case Done:
		if o.Kind == List {
			return s + fmt.Sprintf(" done: %+v, next %q in %d rounds", o.Page.Entries, o.Page.Next, o.RoundTrips)
		}
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
