package cli

import (
	"bufio"
	"context"
	"io"
	"os"
)

// isTerminal says whether somebody sits at stream. The null device looks the
// same and hurts nobody: it has nothing to say, and nobody reads it.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// readLines passes on lines of a terminal until it or ctx ends. A read from a
// terminal cannot be broken off: the reader may stay in it until the process ends.
func readLines(ctx context.Context, r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(r); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}
