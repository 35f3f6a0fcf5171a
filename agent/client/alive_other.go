//go:build !unix

package client

// alive says that an idle connection is not to be used: here is no way to see
// whether the agent has closed it, and a write that was sent into one that is
// closed would have an unknown outcome for no good reason.
func (c *conn) alive() bool { return false }
