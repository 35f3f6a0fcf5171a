//go:build unix && !linux

package cli

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
