package client

import (
	"cmp"
	"strconv"
	"strings"
)

// Version names a version of a key: "TIME.VOTER". Empty where the key was never
// written.
type Version string

// Compare returns -1, 0 or 1 as v is older than w, the same, or newer. Versions
// of different keys have no order that means anything.
func (v Version) Compare(w Version) int {
	vt, vo := v.parts()
	wt, wo := w.parts()
	return cmp.Or(cmp.Compare(vt, wt), cmp.Compare(vo, wo))
}

// Valid says whether v can be a version, and is not empty.
func (v Version) Valid() bool {
	t, o, _ := strings.Cut(string(v), ".")
	_, terr := strconv.ParseUint(t, 10, 64)
	_, oerr := strconv.ParseUint(o, 10, 8)
	return terr == nil && oerr == nil
}

// parts returns zeros for what is not a version: older than any.
func (v Version) parts() (ts, owner uint64) {
	t, o, _ := strings.Cut(string(v), ".")
	ts, _ = strconv.ParseUint(t, 10, 64)
	owner, _ = strconv.ParseUint(o, 10, 64)
	return ts, owner
}
