package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Listing says which keys to list. The zero value lists all, linearizably.
type Listing struct {
	Prefix string // of the keys
	After  string // only keys above this one
	// Local lists what this site knows to be settled, without asking another.
	// It may be stale, and lack keys.
	Local bool
	// Epoch lists what this site knew at the end of that epoch, where it is not 0.
	Epoch uint64
	// Timeout is that of each page. 0: five seconds.
	Timeout time.Duration
	// Aged is called for each page of a local listing that may be old, with its Result's
	// Age. Nil: nobody is told.
	Aged func(age time.Duration)
}

// Entry is a key as List shows it.
type Entry struct {
	Key     string    `json:"key"`
	Version Version   `json:"version"`
	Size    int       `json:"size"`            // of the value, in bytes
	Time    time.Time `json:"time"`            // when it was written, by the clock of the site that wrote it; UTC
	Writer  string    `json:"writer"`          // the site that wrote it
	Newer   bool      `json:"newer,omitempty"` // of a local listing: something newer has been heard of and is not known to be settled
}

// Page is one page of a listing as the agent answers.
type Page struct {
	Entries []Entry `json:"entries"`        // by key
	Next    string  `json:"next,omitempty"` // the key to go on after; empty after the last page
}

// List yields the keys that l asks for, in order, page by page: what is held in memory
// is one page. It is no snapshot across keys: each key is as Get would have shown it
// at some moment of the listing, deleted ones are left out. An error is yielded once, and ends it.
// No page is asked for after ctx has ended.
func (c *Client) List(ctx context.Context, l Listing) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for {
			p, err := c.page(ctx, l)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range p.Entries {
				if !yield(e, nil) {
					return
				}
			}
			if p.Next == "" {
				return
			}
			l.After = p.Next
		}
	}
}

func (c *Client) page(ctx context.Context, l Listing) (Page, error) {
	if l.Timeout <= 0 {
		l.Timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	q := url.Values{"prefix": {l.Prefix}, "after": {l.After}}
	if l.Local {
		q.Set("local", "true")
	}
	if l.Epoch > 0 {
		q.Set("epoch", strconv.FormatUint(l.Epoch, 10))
	}
	r, err := c.do(ctx, request{method: http.MethodGet, target: "/v1/kv?" + q.Encode()})
	if err != nil {
		return Page{}, err
	}
	if r.Age > 0 && l.Aged != nil {
		l.Aged(r.Age)
	}
	var p Page
	if err := json.Unmarshal(r.Value, &p); err != nil {
		return Page{}, fmt.Errorf("read a page of keys: %w", err)
	}
	if p.Next != "" && p.Next <= l.After {
		return Page{}, fmt.Errorf("read a page of keys: it is after %q and goes on after %q", l.After, p.Next)
	}
	return p, nil
}
