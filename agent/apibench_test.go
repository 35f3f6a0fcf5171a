package agent

import (
	"fmt"
	"testing"

	"gus/agent/client"
)

// BenchmarkLocalAPI measures a request of the local API at a site that is a quorum by itself, so that
// there is no network in it: a get over plain HTTP, one after the other and by 32 callers at a
// time, and the same over one pipe; a get of this site's own copy; a set, which waits for its sync.
func BenchmarkLocalAPI(b *testing.B) {
	d := newDoor(b)
	piped := client.NewPipelined(d.socket)
	defer piped.Close()
	if _, err := d.client.Set(b.Context(), "k", []byte("0123456789abcdef")); err != nil {
		b.Fatal(err)
	}
	get := func(c *client.Client) func() error {
		return func() error { _, err := c.Get(b.Context(), "k"); return err }
	}
	for _, x := range []struct {
		what    string
		callers int
		request func() error
	}{
		{"get/http", 1, get(d.client)},
		{"get/http", 32, get(d.client)},
		{"get/pipe", 1, get(piped)},
		{"get/pipe", 32, get(piped)},
		{"local/pipe", 32, func() error { _, err := piped.GetLocal(b.Context(), "k"); return err }},
		{"set/pipe", 32, func() error { _, err := piped.Set(b.Context(), "k", []byte("0123456789abcdef")); return err }},
	} {
		b.Run(fmt.Sprintf("%s/callers=%d", x.what, x.callers), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(max(1, x.callers/2))
			if x.callers == 1 {
				for b.Loop() {
					if err := x.request(); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := x.request(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
