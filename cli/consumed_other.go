//go:build !unix

package cli

// consumed returns zeros: this system is not asked.
func consumed() consumption { return consumption{} }
