// Gus keeps small values the same at all sites of a network: linearizable
// registers without a leader. See `gus help`.
package main

import (
	"os"

	"gus/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
