package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// ErrNoEpoch: an epoch cannot be read: it is not kept any more, or not there yet.
var ErrNoEpoch = errors.New("no such epoch")

// Past is a version of a key: a settled write that was the newest one at the end of an epoch.
type Past struct {
	Version Version   `json:"version"`
	Epoch   uint64    `json:"epoch,omitempty"` // since which it is, or was, there; 0: it is in none yet
	Time    time.Time `json:"time"`            // when it was written, by the clock of the site that wrote it; UTC
	Writer  string    `json:"writer"`          // the site that wrote it
	Size    int       `json:"size"`            // of the value, in bytes
	Deleted bool      `json:"deleted,omitempty"`
}

// History is a page of the versions of a key, as the agent answers.
type History struct {
	Versions []Past `json:"versions"`       // the newest first
	Next     uint64 `json:"next,omitempty"` // the next page is before this epoch; 0 after the last page
}

// PastEpoch is an epoch that can be read.
type PastEpoch struct {
	Number uint64    `json:"number"`
	Time   time.Time `json:"time"`  // at its end, by the site's clock; UTC
	Save   uint64    `json:"save"`  // it covers this site's saves up to that number
	Keys   int64     `json:"keys"`  // that it has changed
	Bytes  int64     `json:"bytes"` // about, of the versions that it has superseded
}

// Epochs is a page of epochs as the agent answers.
type Epochs struct {
	Epochs []PastEpoch `json:"epochs"`         // the newest first
	Next   uint64      `json:"next,omitempty"` // the next page is before it; 0 after the last page
}

// GetAt reads key as this site knew it at the end of an epoch: ErrNotFound where it was not there
// then, ErrNoEpoch where that epoch cannot be read.
func (c *Client) GetAt(ctx context.Context, key string, epoch uint64) (Result, error) {
	return c.do(ctx, request{method: http.MethodGet, target: target(key) + "?epoch=" + strconv.FormatUint(epoch, 10)})
}

// GetVersion reads one version of key: ErrNotFound where this site has it no more, or it is a
// deletion, then with the version in the Result.
func (c *Client) GetVersion(ctx context.Context, key string, v Version) (Result, error) {
	return c.do(ctx, request{method: http.MethodGet, target: target(key) + "?version=" + url.QueryEscape(string(v))})
}

// History yields the versions of key that this site has, the newest first, page by page. An error is
// yielded once, and ends it.
func (c *Client) History(ctx context.Context, key string) iter.Seq2[Past, error] {
	return func(yield func(Past, error) bool) {
		path := "/v1/history/" + url.PathEscape(key)
		for before := ""; ; {
			var h History
			if err := c.ask(ctx, request{method: http.MethodGet, target: path + before}, &h); err != nil {
				yield(Past{}, err)
				return
			}
			for _, v := range h.Versions {
				if !yield(v, nil) {
					return
				}
			}
			if h.Next == 0 {
				return
			}
			before = "?before=" + strconv.FormatUint(h.Next, 10)
		}
	}
}

// Epochs returns a page of the epochs that this site can read: those before one (0: all).
func (c *Client) Epochs(ctx context.Context, before uint64) (p Epochs, err error) {
	target := "/v1/epochs"
	if before > 0 {
		target += "?before=" + strconv.FormatUint(before, 10)
	}
	err = c.ask(ctx, request{method: http.MethodGet, target: target}, &p)
	return p, err
}

// EpochAt returns the last epoch that this site's clock dates up to t, or ErrNoEpoch.
func (c *Client) EpochAt(ctx context.Context, t time.Time) (PastEpoch, error) {
	var p Epochs
	err := c.ask(ctx, request{method: http.MethodGet, target: "/v1/epochs?at=" + url.QueryEscape(t.UTC().Format(time.RFC3339Nano))}, &p)
	if err == nil && len(p.Epochs) != 1 {
		err = ErrNoEpoch
	}
	if err != nil {
		return PastEpoch{}, err
	}
	return p.Epochs[0], nil
}
