package agent

import "time"

// silent returns since when the voter of that name is silent, as far as following it tells; zero where it is not, or
// is not followed. The transport misses a voter that died without a word only after 15 s, and a write that is given to
// it meanwhile ends unknown; one that is followed says something each second. It may be slow all the same, so that
// others are asked first, and no more than that.
func (o *observer) silent(name string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.voter == name && o.complete.After(o.since) && time.Since(o.complete) > 3*followAlive:
		return o.complete
	case time.Since(o.doubted[name]) < observeDoubt: // it is followed no more
		return o.doubted[name]
	}
	return time.Time{}
}
