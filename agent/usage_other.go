//go:build !unix

package agent

import "time"

// usage returns zeros: this system is not asked.
func usage() (cpu time.Duration, resident int64) { return 0, 0 }
