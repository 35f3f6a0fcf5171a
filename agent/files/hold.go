package files

import (
	"fmt"
	"time"

	"gus/agent/client"
)

// hold says from when on this site has not heard of all changes, as a watch told
// after all that there was. Until it has heard of all once, files stay as they are: what it knows may be old,
// and a file that is right would become one that was. Later on nothing old can come.
type hold struct {
	whole, depsWhole bool      // each watch has told all, and the site heard of all changes then
	since            time.Time // since when the site does not
	until            time.Time // to be waited
}

// over says whether files may be touched.
func (h *hold) over() bool { return h.whole && h.depsWhole }

// hear takes in what e, an EventSynced or EventAlive, says of the site's age.
func (j *job) hear(e told) {
	h := &j.hold
	whole := &h.whole
	if e.deps {
		whole = &h.depsWhole
	}
	if e.Type == client.EventSynced {
		*whole = e.Age == 0
	} else if e.Age == 0 {
		*whole = true
	}
	switch {
	case h.over():
		j.status.hold = ""
	case e.Age > 0 && j.status.hold == "": // the text stays, so that it is told once
		now := time.Now()
		h.since, h.until = now.Add(-time.Duration(e.Age)), now.Add(j.Ask)
		j.status.session = "" // it does answer
		j.status.hold = fmt.Sprintf("files stay as they are until this site hears of all changes, which it has not since %s UTC", h.since.UTC().Format(time.DateTime))
		j.tell()
	}
}

// tooOld is why a job that ends has done nothing.
func (j *job) tooOld() error {
	return fmt.Errorf("this site does not hear of all changes: its copy is %v old, after waiting %v (--timeout) for more; nothing was changed",
		time.Since(j.hold.since).Round(100*time.Millisecond), j.Ask)
}
