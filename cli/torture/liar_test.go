//go:build unix

package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gus/agent/client"
	"gus/register"
	"gus/register/sim"
)

// lie is how an agent answers wrongly, now and then.
type lie int

const (
	honest       lie = iota
	forgets          // acknowledges a write and does not keep it
	stale            // shows the version before the last
	changesAfter     // says that nothing changed, and keeps the write
	hides            // leaves a key out of a listing
	hasty            // shows in a local read what is not settled
)

// impostor answers as the agents of a cluster do: one register for all sites.
type impostor struct {
	lie lie

	mu    sync.Mutex
	ts    uint64
	asked int
	keys  map[string][2]version // the version before, and the last
}

type version struct {
	tag   register.Tag
	found bool
	value string
}

// lies says whether this is the time for it.
func (m *impostor) lies(l lie) bool {
	if m.lie != l {
		return false
	}
	m.asked++
	return m.asked%20 == 0
}

// at serves the API of one site.
func (m *impostor) at(site register.Voter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		key, isKey := strings.CutPrefix(r.URL.Path, "/v1/kv/")
		switch {
		case !isKey:
			m.list(w, r)
		case r.Method == http.MethodGet:
			k := m.keys[key]
			shown := k[1]
			if r.URL.RawQuery == "" && m.lies(stale) {
				shown = k[0]
			}
			if r.URL.RawQuery != "" && m.lies(hasty) {
				shown.tag = register.Tag{TS: m.ts + 1000, Owner: site}
			}
			if !shown.tag.IsZero() {
				w.Header().Set(client.HeaderVersion, shown.tag.String())
			}
			if !shown.found {
				refuse(w, client.ErrNotFound)
				return
			}
			fmt.Fprint(w, shown.value)
		default:
			b, _ := io.ReadAll(r.Body)
			m.ts++
			tag := register.Tag{TS: m.ts, Owner: site}
			if !m.lies(forgets) {
				m.keys[key] = [2]version{m.keys[key][1], {tag, r.Method == http.MethodPut, string(b)}}
			}
			if m.lies(changesAfter) {
				refuse(w, client.ErrNoQuorum)
				return
			}
			w.Header().Set(client.HeaderVersion, tag.String())
		}
	}
}

func refuse(w http.ResponseWriter, err error) {
	status, code := client.Code(err)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(client.Error{Code: code, Message: err.Error()})
}

func (m *impostor) list(w http.ResponseWriter, r *http.Request) {
	p := client.Page{Entries: []client.Entry{}}
	for key, k := range m.keys {
		if k[1].found && strings.HasPrefix(key, r.URL.Query().Get("prefix")) && !m.lies(hides) {
			p.Entries = append(p.Entries, client.Entry{Key: key, Version: client.Version(k[1].tag.String()), Size: len(k[1].value)})
		}
	}
	slices.SortFunc(p.Entries, func(a, b client.Entry) int { return strings.Compare(a.Key, b.Key) })
	_ = json.NewEncoder(w).Encode(p)
}

// serve lets m answer at a socket until the test ends.
func (m *impostor) serve(t *testing.T, site register.Voter, socket string) *client.Client {
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(m.at(site))
	srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	c := client.New(socket)
	t.Cleanup(func() { c.Close(); srv.Close() })
	return c
}

// TestAgentsThatLieAreCaught lets the clients of a run work with agents that
// answer wrongly in one of a few ways.
func TestAgentsThatLieAreCaught(t *testing.T) {
	for name, lie := range map[string]lie{
		"an acknowledged write is forgotten":           forgets,
		"a read is stale":                              stale,
		"a write is kept that changed nothing":         changesAfter,
		"a key is left out of a listing":               hides,
		"what is not settled is shown in a local read": hasty,
	} {
		t.Run(name, func(t *testing.T) {
			h, locals := lieTo(t, lie)
			if err := judge(h, locals, rand.New(rand.NewPCG(1, 1))); err == nil {
				t.Error("the judge finds nothing wrong")
			}
		})
	}
	t.Run("honest agents", func(t *testing.T) {
		h, locals := lieTo(t, honest)
		want(t, judge(h, locals, rand.New(rand.NewPCG(1, 1))), "")
	})
}

// lieTo returns the history of clients at three sites, and their local reads.
func lieTo(t *testing.T, l lie) (h, local sim.History) {
	dir, err := os.MkdirTemp("", "liar-") // short: it is for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &impostor{lie: l, keys: map[string][2]version{}}
	watch := &stopwatch{began: time.Now()}
	odd := &oddities{seen: map[string]int{}}
	var callers []*caller
	var wg sync.WaitGroup
	for i := range 3 {
		site := register.Voter(i + 1)
		cl := m.serve(t, site, filepath.Join(dir, fmt.Sprint(i)))
		for j := range 2 {
			w := &worker{
				caller: caller{watch: watch, site: site, client: cl, odd: odd},
				name:   fmt.Sprint(i, ".", j), window: 1, rng: rand.New(rand.NewPCG(uint64(i), uint64(j))), served: new(atomic.Int64),
			}
			callers = append(callers, &w.caller)
			wg.Go(func() {
				for range 300 {
					_ = w.one() // what it came to is in its history
				}
			})
		}
	}
	wg.Wait()
	if len(odd.seen) > 0 || odd.bad != nil {
		t.Errorf("the clients met %v, %v", odd.seen, odd.bad)
	}
	h = merge(callers)
	number(h)
	return h, locals(callers)
}
