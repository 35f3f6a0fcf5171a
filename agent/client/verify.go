package client

import (
	"context"
	"net/http"
	"time"
)

// Disagreement is a key on which this site and another show different settled writes.
type Disagreement struct {
	Key         string    `json:"key"`
	Version     Version   `json:"version,omitempty"` // at this site; empty where it has none
	Peer        string    `json:"peer"`
	PeerVersion Version   `json:"peer_version,omitempty"` // the same one where the contents differ
	Since       time.Time `json:"since"`                  // when it was seen first
}

// Disagreements are the keys on which this site disagrees with others.
type Disagreements struct {
	Count int            `json:"count"`          // of pairs of a key and a site
	Keys  []Disagreement `json:"keys,omitempty"` // up to 10 of them
}

// NotCompared is a voter that could not be compared.
type NotCompared struct {
	Site string `json:"site"`
	Why  string `json:"why"`
}

// Verification is what came of comparing all that a site holds with the others.
type Verification struct {
	Site        string         `json:"site"` // that has compared
	Keys        int            `json:"keys"` // held there, deleted ones that are remembered included
	Compared    []string       `json:"compared"`
	NotCompared []NotCompared  `json:"not_compared,omitempty"`
	Differ      []Disagreement `json:"differ"`         // in the order of keys; up to 10,000 a site
	More        int            `json:"more,omitempty"` // further ones, which differed when they were looked at once
}

// Verify has the agent compare all that its site holds with each other voter, and
// look again, for some 3 s, at what differs. What is on its way meanwhile is no
// difference; what a site that was away has not caught up with is. The error is
// ErrNotSent where another verification is under way.
func (c *Client) Verify(ctx context.Context) (v Verification, err error) {
	err = c.ask(ctx, request{method: http.MethodGet, target: "/v1/verify"}, &v)
	return v, err
}
