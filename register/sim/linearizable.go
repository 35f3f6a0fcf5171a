package sim

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"

	"gus/register"
)

// Linearizable judges a history by search: is there an order of its operations
// in which each takes effect between its begin and its end, and each read
// returns the last value written? It knows nothing of versions, and so judges
// Check as well. Since the search takes time exponential in how many operations
// are in progress at a time, keys with too many of them are left out.
func (h History) Linearizable() error {
	for _, ops := range h.byKey() {
		ops.recall()
		search := ops.operations()
		if len(search) <= maxSearch && atOnce(search) <= maxAtOnce && !porcupine.CheckOperations(registerModel, search) {
			return fmt.Errorf("the history of key %s is not linearizable", ops[0].Key)
		}
	}
	return nil
}

// Up to so many operations of a key, and so many at a time, a search takes less
// time than the run that it judges.
const (
	maxSearch = 60
	maxAtOnce = 8
)

// atOnce returns the highest number of operations in progress at a time.
func atOnce(ops []porcupine.Operation) int {
	most := 0
	for _, o := range ops {
		n := 0
		for _, p := range ops {
			if p.Call <= o.Call && o.Call <= p.Return {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// absent is what a register holds before the first write and after a deletion.
const absent = "absent"

// present is what a page says of a key whose value nobody read: there is one.
const present = "present"

const endOfTime = math.MaxInt64

// registerModel is a register: the state is what it holds, the input what is
// written (nil: a read), the output what was read.
var registerModel = porcupine.Model{
	Init: func() any { return absent },
	Step: func(state, input, output any) (bool, any) {
		if input == nil {
			return state == output || output == present && state != absent, state
		}
		return true, input
	},
}

// operations are ops in the search's terms. A write of unknown outcome is open
// to the end; one that nobody read can be left out, as it fits in there.
func (ops History) operations() []porcupine.Operation {
	read := map[string]bool{}
	shown := map[register.Voter]bool{} // whose writes were shown without their value
	for _, o := range ops {
		switch {
		case o.Kind == Get && o.Fate == Done && o.page && o.Found:
			shown[o.Tag.Owner] = true
		case o.Kind == Get && o.Fate == Done:
			read[contents(o)] = true
		}
	}
	var out []porcupine.Operation
	for _, o := range ops {
		p := porcupine.Operation{ClientId: int(o.Voter), Call: o.Call, Return: o.Return}
		switch {
		case o.Fate == Never, o.Fate != Done && (o.Kind == Get || !read[contents(o)] && !shown[o.Voter]):
			continue
		case o.Fate != Done:
			p.Return = endOfTime
		}
		if o.Kind == Get {
			p.Output = contents(o)
		} else {
			p.Input = contents(o)
		}
		out = append(out, p)
	}
	return out
}

// contents is what a register holds after o, or what o found in it.
func contents(o *Operation) string {
	if o.Kind == Delete || o.Kind == Get && !o.Found {
		return absent
	}
	if o.page {
		return present
	}
	return "value " + o.Value
}
