package files

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// counter keeps log lines.
type counter struct {
	mu  sync.Mutex
	all []string
}

func (c *counter) logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(c, nil))
}

func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, string(p))
	return len(p), nil
}

func (c *counter) count(part string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range c.all {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}
