package cli

import "syscall"

// attributes are those of processes that do not outlive the tests, however these end.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
