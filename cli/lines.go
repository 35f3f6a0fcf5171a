package cli

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// isTerminal says whether somebody sits at stream.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
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
