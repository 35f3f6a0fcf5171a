package sim

import "slices"

// beginList lets a client at v begin to list keys: small pages and large ones,
// prefixes that are keys themselves, and such as nothing begins with.
func (w *world) beginList(v *voter) {
	p := &Page{
		Prefix: []string{"", "", "k", "k1", "k2", "l"}[w.rng.IntN(6)],
		Limit:  []int{1, 2, 3, 5, 1000}[w.rng.IntN(5)],
	}
	if w.rng.IntN(4) == 0 {
		p.After = w.keys[w.rng.IntN(len(w.keys))]
	}
	w.list(v, p)
}

// list begins to list p at v, in a client that may lose patience.
func (w *world) list(v *voter, p *Page) {
	o := &Operation{Voter: v.id, Kind: List, Page: p}
	for _, k := range w.keys {
		if v.disk.Current(k).Key == "" {
			p.unheard = append(p.unheard, k)
		}
	}
	w.invoke(v, o)
	if !w.healing {
		w.losePatience(v, o)
	}
}

// listed takes the result of the List o. Most clients go on to the next page.
func (w *world) listed(v *voter, o *Operation) {
	p := o.Page
	for _, e := range p.Entries {
		w.outcome.Marks.hit(MarkListUnheard, slices.Contains(p.unheard, e.Key))
	}
	if p.Next == "" || !w.healing && w.rng.IntN(8) == 0 {
		return
	}
	w.outcome.Marks.hit(MarkNextPage, true)
	next := &Page{Prefix: p.Prefix, After: p.Next, Limit: p.Limit}
	if w.healing || w.rng.IntN(2) == 0 {
		w.list(v, next)
		return
	}
	life := v.life
	w.line.after(w.exp(10*w.cfg.Unit), func() {
		if life == v.life && !w.over() {
			w.list(v, next)
		}
	})
}

// listEverywhere lists all keys at each voter, page by page, when all is over.
func (w *world) listEverywhere() {
	for i, v := range w.voters {
		w.list(v, &Page{Limit: 1 + (i+int(w.cfg.Seed))%4})
		if !w.until(w.allEnded) {
			w.hang("when all was over")
		}
		if w.over() {
			return
		}
	}
}
