package register

import (
	"iter"
	"slices"
	"strings"
)

// The limits of a page of keys.
const (
	MaxPage      = 1000
	maxPageBytes = 256 << 10 // of its keys
)

// listing is a List in progress: one page of keys, each as a read would return
// it (PROTOCOL.md section 5).
type listing struct {
	op            Op
	id            Round
	prefix, after string
	limit         int
	handed        bool
	pages         []page
	entries       []Entry // known so far
	waiting       int     // keys that have to be read
	next          string
	age, trips    int
}

// page is what one voter showed.
type page struct {
	voter   Voter
	entries []Entry
	next    string
}

// List begins a linearizable listing for the local client op: of the keys that
// begin with prefix and are above after, the next limit of them (1 to MaxPage;
// more where voters hold different ones, up to limit from each of a read
// quorum). Deleted keys are left out. Its Result has the Entries and, if not
// all were looked at, Next: the key to go on after.
func (r *Replica) List(op Op, prefix, after string, limit int) {
	l := &listing{op: op, id: r.nextRound(), prefix: prefix, after: after, limit: max(1, min(limit, MaxPage)), trips: min(1, r.n-1)}
	r.listings = append(r.listings, l)
}

// startLists asks all voters which keys they hold. The own page counts once
// all that it shows is durable.
func (r *Replica) startLists() {
	for _, l := range slices.Clone(r.listings) {
		if l.handed {
			continue
		}
		l.handed = true
		r.sendList(l, r.others)
		r.ownPage(l)
	}
}

// ownPage counts this voter's own page, once all that it shows is durable.
func (r *Replica) ownPage(l *listing) {
	own, last := r.page(l.prefix, l.after, l.limit)
	own.voter = r.self
	if last == nil {
		r.gotPage(l, own)
	} else {
		r.after(last, held{list: l, page: &own})
	}
}

func (r *Replica) sendList(l *listing, to Set) {
	if l.handed {
		r.tell(to, &MsgList{Round: l.id, Prefix: l.prefix, After: l.after, Limit: l.limit})
	}
}

// page is what this voter shows, and the register whose last record it rests on
// the longest; nil where it rests on nothing.
func (r *Replica) page(prefix, after string, limit int) (p page, last *register) {
	bytes := 0
	for g := range r.under(prefix, after) {
		if len(p.entries) == limit || bytes > maxPageBytes {
			p.next = p.entries[len(p.entries)-1].Key
			break
		}
		p.entries = append(p.entries, g.entry())
		bytes += len(g.key)
		if last == nil || last.rest < g.rest {
			last = g
		}
	}
	return p, last
}

// under yields the registers whose keys begin with prefix and are above after, in order.
func (r *Replica) under(prefix, after string) iter.Seq[*register] {
	return func(yield func(*register) bool) {
		if after < prefix {
			after = prefix
			if g := r.regs[prefix]; g != nil && !yield(g) { // a key itself, which what is above it leaves out
				return
			}
		}
		for g := range r.index.after(after) {
			if !strings.HasPrefix(g.key, prefix) || !yield(g) {
				return
			}
		}
	}
}

// PeekList returns the keys that begin with prefix and are above after, each
// as Peek shows it, without asking anybody; Aside is Peek's Newer. Of deleted
// keys there is nothing, but they count towards limit (1 to MaxPage), so that a page
// has an end. If not all were looked at, next is the key to go on after.
func (r *Replica) PeekList(prefix, after string, limit int) (entries []Entry, next string) {
	limit = max(1, min(limit, MaxPage))
	seen, bytes := 0, 0
	for g := range r.under(prefix, after) {
		if seen == limit || bytes > maxPageBytes {
			return entries, after
		}
		seen, bytes, after = seen+1, bytes+len(g.key), g.key
		if l := r.Peek(g.key); l.Found {
			entries = append(entries, Entry{Key: g.key, Tag: l.Tag, Size: len(l.Value), Aside: l.Newer})
		}
	}
	return entries, ""
}

// entry is what this voter shows of g.
func (g *register) entry() Entry {
	e := entryOf(g.key, g.cur)
	e.Aside = g.floor != g.cur
	return e
}

func entryOf(key string, v *version) Entry {
	return Entry{Key: key, Tag: v.Tag, Deleted: v.Deleted, Size: len(v.Value)}
}

func (r *Replica) stepList(from Voter, m *MsgList) {
	p, last := r.page(m.Prefix, m.After, max(1, min(m.Limit, MaxPage)))
	a := &MsgAckList{Round: m.Round, Entries: p.entries, Next: p.next}
	if last == nil {
		r.tell(SetOf(from), a)
	} else {
		r.say(last, SetOf(from), a)
	}
}

func (r *Replica) stepAckList(from Voter, m *MsgAckList) {
	for _, l := range r.listings {
		if l.id == m.Round && l.handed {
			r.gotPage(l, page{from, m.Entries, m.Next})
			return
		}
	}
}

// gotPage counts a voter's page. With those of a read quorum the keys on which
// all agree are read off; each other one is read.
func (r *Replica) gotPage(l *listing, p page) {
	if !slices.Contains(r.listings, l) || len(l.pages) >= r.readQuorum ||
		slices.ContainsFunc(l.pages, func(q page) bool { return q.voter == p.voter }) {
		return
	}
	l.pages = append(l.pages, p)
	if len(l.pages) == r.readQuorum {
		r.compare(l)
	}
}

// compare takes the pages of a read quorum, only as far as all have looked.
func (r *Replica) compare(l *listing) {
	for _, p := range l.pages {
		if p.next != "" && (l.next == "" || p.next < l.next) {
			l.next = p.next
		}
	}
	shown := map[string][]Entry{}
	var keys []string
	for _, p := range l.pages {
		for _, e := range p.entries {
			if l.next != "" && e.Key > l.next || e.Key <= l.after || !strings.HasPrefix(e.Key, l.prefix) {
				continue
			}
			if shown[e.Key] == nil {
				keys = append(keys, e.Key)
			}
			shown[e.Key] = append(shown[e.Key], e)
		}
	}
	for _, key := range keys {
		if agree(shown[key], r.readQuorum) {
			l.entries = append(l.entries, shown[key][0])
			continue
		}
		l.waiting++
		l.trips = max(l.trips, 2*min(1, r.n-1))
		d := r.newRound(r.open(key))
		d.lists = append(d.lists, l)
	}
	r.endList(l)
}

// agree says whether a read quorum shows the same tag and nothing above it.
func agree(shown []Entry, quorum int) bool {
	if len(shown) < quorum {
		return false
	}
	for _, e := range shown {
		if e.Tag != shown[0].Tag || e.Aside {
			return false
		}
	}
	return true
}

// gotEntry takes in what the read of a key returned.
func (r *Replica) gotEntry(l *listing, e Entry) {
	if !slices.Contains(r.listings, l) {
		return
	}
	l.waiting--
	l.entries = append(l.entries, e)
	r.endList(l)
}

func (r *Replica) endList(l *listing) {
	if l.waiting > 0 {
		return
	}
	r.listings = slices.DeleteFunc(r.listings, func(m *listing) bool { return m == l })
	entries := slices.DeleteFunc(l.entries, func(e Entry) bool { return e.Deleted })
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	r.results = append(r.results, Result{Op: l.op, Entries: entries, Next: l.next, RoundTrips: l.trips})
}

// tickLists asks again those that have not answered, this voter among them.
func (r *Replica) tickLists() {
	for _, l := range slices.Clone(r.listings) {
		if l.age++; !l.handed || !due(l.age) || len(l.pages) >= r.readQuorum {
			continue
		}
		r.ownPage(l) // the one before may wait for what cannot be saved
		to := r.others
		for _, p := range l.pages {
			to = to.Without(p.voter)
		}
		r.sendList(l, to)
	}
}

// dropList ends the listing of op, if there is one, and the reads that only it waits for.
func (r *Replica) dropList(op Op) bool {
	i := slices.IndexFunc(r.listings, func(l *listing) bool { return l.op == op })
	if i < 0 {
		return false
	}
	l := r.listings[i]
	r.listings = slices.Delete(r.listings, i, i+1)
	for _, g := range r.active {
		if g.live == nil {
			continue
		}
		for _, d := range slices.Clone(g.live.rounds) {
			if slices.Contains(d.lists, l) {
				d.lists = slices.DeleteFunc(d.lists, func(m *listing) bool { return m == l })
				g.dropRound(d)
			}
		}
		r.quieten(g)
	}
	return true
}
