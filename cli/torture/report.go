//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gus/register/sim"
)

// report is what a run did, by kinds of faults.
type report struct {
	rows       map[string]*row
	windows    int
	operations int
	heal       time.Duration // the longest from the end of a load until all was at rest
	caughtUp   time.Duration // and until local reads showed the same
}

// row is what is told of a kind of fault. Operations count where they overlap
// with one.
type row struct {
	times                 int
	done, failed, unknown int
	gap                   time.Duration // the longest without a success at a site that had a quorum in reach all the time
	back                  time.Duration // the longest from the fault's end to the first success at a site that it kept from serving, if it had a quorum in reach
}

// note takes a window's load in.
func (r *report) note(w *world, h *history) {
	if r.rows == nil {
		r.rows = map[string]*row{}
	}
	r.windows++
	r.operations += len(h.ops)
	for _, s := range w.sites {
		h.served = append(h.served, h.successes(s))
	}
	for _, f := range h.faults {
		if r.rows[f.kind] == nil {
			r.rows[f.kind] = &row{}
		}
		row := r.rows[f.kind]
		row.times++
		row.count(h.ops, f)
		for i := range w.sites {
			if slices.Contains(f.victims, i) {
				row.back = max(row.back, h.back(i, f, w.quorum))
			} else {
				row.gap = max(row.gap, h.gap(i, f, w.quorum))
			}
		}
	}
}

// count counts the operations that were under way during f.
func (r *row) count(ops sim.History, f *fault) {
	for _, o := range ops {
		switch {
		case o.Call > f.end || o.Return < f.start:
		case o.Fate == sim.Done:
			r.done++
		case o.Fate == sim.Unknown && o.Kind != sim.Get && o.Kind != sim.List:
			r.unknown++
		default:
			r.failed++
		}
	}
}

// successes returns when operations at s succeeded, between the load's begin
// and end.
func (h *history) successes(s *site) []int64 {
	all := []int64{h.start, h.end}
	for _, o := range h.ops {
		if o.Voter == s.number && o.Fate == sim.Done {
			all = append(all, o.Return)
		}
	}
	slices.Sort(all)
	return all
}

// gap returns the longest time between two successes at site i that overlaps
// with f, while the faults left it a quorum.
func (h *history) gap(i int, f *fault, quorum int) time.Duration {
	var longest int64
	for n := 1; n < len(h.served[i]); n++ {
		from, to := h.served[i][n-1], h.served[i][n]
		if to <= f.start || from >= f.end || to-from <= longest {
			continue
		}
		if h.reach(i, from, to, nil) >= quorum {
			longest = to - from
		}
	}
	return time.Duration(longest)
}

// reach returns how many sites, itself included, the faults but one left to site
// i at least between two moments; none, where they kept it from serving. A site
// that was kept from serving is back when it serves; where that is the question
// about one fault, at the ends of the others.
func (h *history) reach(i int, from, to int64, but *fault) int {
	out := map[int]bool{}
	for _, g := range h.faults {
		if g.start >= to || g == but {
			continue
		}
		for _, v := range g.victims {
			if from < g.end || but == nil && from < h.next(v, g.end) {
				out[v] = true
			}
		}
		if from >= g.end {
			continue
		}
		for _, c := range g.cuts {
			if c[0] == i {
				out[c[1]] = true
			}
			if c[1] == i {
				out[c[0]] = true
			}
		}
	}
	if out[i] {
		return 0
	}
	return len(h.served) - len(out)
}

// next returns when site i served next from a moment on.
func (h *history) next(i int, from int64) int64 {
	n, _ := slices.BinarySearch(h.served[i], from)
	if n == len(h.served[i]) {
		return h.end
	}
	return h.served[i][n]
}

// back returns how long after the end of f site i served again; nothing, where
// other faults did not leave it a quorum all the time.
func (h *history) back(i int, f *fault, quorum int) time.Duration {
	next := h.next(i, f.end)
	if h.reach(i, f.end, next, f) < quorum {
		return 0
	}
	return time.Duration(max(next-f.end, 0))
}

// String prints r as a table.
func (r *report) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fault\ttimes\tdone\tfailed\tunknown\tlongest gap\tlongest return\t")
	for _, k := range slices.SortedFunc(maps.Keys(r.rows), func(a, b string) int { return cmp.Compare(place(a), place(b)) }) {
		x := r.rows[k]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t\n", k, x.times, x.done, x.failed, x.unknown, seconds(x.gap), seconds(x.back))
	}
	w.Flush()
	fmt.Fprintf(&b, "%d windows, %d operations judged; all at rest %s after the load at most", r.windows, r.operations, seconds(r.heal))
	if r.caughtUp > 0 {
		fmt.Fprintf(&b, ", local reads the same everywhere %s after it, reading all keys included", seconds(r.caughtUp))
	}
	return b.String()
}

// place returns that of a kind among all.
func place(name string) int {
	return slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
