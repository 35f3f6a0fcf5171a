//go:build !unix

package cli

import "os/exec"

// runGroup runs c, and kills it when its context ends.
func runGroup(c *exec.Cmd) error { return c.Run() }
