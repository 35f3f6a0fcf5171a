package agent

import "gus/register"

// waiting holds the sets that wait for a quorum to come into reach, in the
// order in which they came. Nobody has been told of them: until they are handed
// out, nothing changed. What desk.admit lets in bounds it.
type waiting struct {
	inputs []input
}

func (w *waiting) add(in input) { w.inputs = append(w.inputs, in) }

func (w *waiting) len() int { return len(w.inputs) }

// take removes the request of op, or returns nil.
func (w *waiting) take(op register.Op) *request {
	for i, in := range w.inputs {
		if in.op == op {
			w.inputs = append(w.inputs[:i], w.inputs[i+1:]...)
			return in.req
		}
	}
	return nil
}

// all removes and returns them.
func (w *waiting) all() []input {
	all := w.inputs
	w.inputs = nil
	return all
}
