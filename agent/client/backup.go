package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Backup asks the agent for a backup of all that its site holds, and returns it as a stream, which the
// caller closes. Whether it is whole the backup itself says: where the agent could not make it to its
// end, the last thing in it is why. The error is ErrNotSent where two others are under way. ctx ends the stream.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	cn, err := c.pool.dial(ctx)
	if err != nil {
		return nil, err
	}
	x := &Watch{conn: cn, ctx: ctx, stop: context.AfterFunc(ctx, func() { cn.Close() })}
	if err := x.begin(request{method: http.MethodGet, target: "/v1/snapshot"}, silence); err != nil {
		x.Close()
		return nil, err
	}
	return &backup{x}, nil
}

// backup is the body of a backup.
type backup struct{ *Watch }

func (b *backup) Read(p []byte) (int, error) {
	b.conn.SetDeadline(time.Now().Add(silence))
	n, err := b.resp.Body.Read(p)
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return n, err
	case b.ctx.Err() != nil:
		return n, b.ctx.Err()
	}
	return n, fmt.Errorf("%w: the backup broke off: %v", ErrNotRunning, err)
}

// BackupSchedule is how an agent's own backups go.
type BackupSchedule struct {
	Dir   string    `json:"dir"`
	Every Duration  `json:"every_ms"`
	Keep  int       `json:"keep"`
	Last  time.Time `json:"last,omitzero"` // when the site was last found saved there: as a file, or unchanged since the newest
	File  string    `json:"file,omitempty"`
	Kept  int       `json:"kept"`                 // files of this site's
	Error string    `json:"error,omitempty"`      // why the last attempt failed
	Since time.Time `json:"error_since,omitzero"` // when attempts began to fail
}
