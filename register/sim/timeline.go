package sim

import (
	"container/heap"
	"time"
)

// timeline is the virtual time of a run: a heap of what is going to happen.
// Events of the same instant happen in the order in which they were planned.
type timeline struct {
	now    time.Duration
	count  uint64
	events eventHeap
}

type event struct {
	at    time.Duration
	order uint64
	do    func()
}

// after plans do for d from now.
func (t *timeline) after(d time.Duration, do func()) {
	t.count++
	heap.Push(&t.events, event{t.now + max(d, 0), t.count, do})
}

// step lets the next event happen, unless that is later than until, or there
// is none: then it says false, and the time is until.
func (t *timeline) step(until time.Duration) bool {
	if len(t.events) == 0 || t.events[0].at > until {
		t.now = max(t.now, until)
		return false
	}
	e := heap.Pop(&t.events).(event)
	t.now = e.at
	e.do()
	return true
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(e any)   { *h = append(*h, e.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{} // let go of what the closure holds
	*h = old[:len(old)-1]
	return e
}
