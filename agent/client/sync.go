package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// SyncKeys is the prefix of the keys that tell which site has which files: below
// it SITE/NAME, with a SyncState as JSON.
const SyncKeys = "_gus/sync/"

// SyncState is how a job is that keeps the files of a directory as the keys below a
// prefix are.
type SyncState struct {
	Prefix string `json:"prefix"`
	Dir    string `json:"dir"`
	// Version is a sum over the keys that are in place and their versions, 16 hexadecimal
	// digits: two sites with the same one have the same. Empty until something was put in place.
	Version      string    `json:"version,omitempty"`
	Keys         int       `json:"keys"`                    // in place
	Pending      int       `json:"pending,omitempty"`       // keys that are not in place as they should be
	Changed      time.Time `json:"changed,omitzero"`        // when a file was last changed
	Checked      time.Time `json:"checked,omitzero"`        // when the agent was last heard
	Error        string    `json:"error,omitempty"`         // a line: the first of what is wrong
	ErrorSince   time.Time `json:"error_since,omitzero"`    // since when something is
	ExecFailures int       `json:"exec_failures,omitempty"` // runs of the command in a row that failed
	Once         bool      `json:"once,omitempty"`          // it looks once and ends
	Stopped      bool      `json:"stopped,omitempty"`       // nobody hears of it any more
}

// Name names the job among those of its site, by prefix and directory. It has up to
// 41 letters, digits, '-' and '.'.
func (s SyncState) Name() string {
	sum := sha256.Sum256([]byte(s.Prefix + "\x00" + s.Dir))
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.':
			return r
		}
		return '-'
	}, s.Dir)
	plain = strings.Trim(plain, "-.")
	plain = strings.TrimLeft(plain[max(0, len(plain)-32):], "-.") // the end tells more
	if plain == "" {
		plain = "dir"
	}
	return plain + "-" + hex.EncodeToString(sum[:4])
}

// Same says whether s and o tell the same, but for the times.
func (s SyncState) Same(o SyncState) bool {
	s.Changed, s.Checked, s.ErrorSince = o.Changed, o.Checked, o.ErrorSince
	return s == o
}

// PutSync tells the agent how a job is that runs beside it. The agent tells all
// sites, when something but the times changed, and takes the job for stopped when it
// has not heard of it for two minutes.
func (c *Client) PutSync(ctx context.Context, s SyncState) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, request{method: http.MethodPut, target: "/v1/sync/" + url.PathEscape(s.Name()), body: body, writes: true})
	return err
}
