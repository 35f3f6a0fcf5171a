package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"

	"gus/agent/client"
	"gus/membership"
	"gus/quic"
	"gus/register"
)

// relayWorld is an observer's forwarder and voters that serve it, in virtual time: real
// endpoints, and desks at which the test answers.
type relayWorld struct {
	*forwarder
	t        *testing.T
	voters   []*relayVoter
	observer *quic.Endpoint
	stop     func() // stops the observer's desk, once

	mu     sync.Mutex
	router simnet.PerfectRouter
	cut    map[string]bool // by IP
}

// relayVoter is a voter whose loop is a script.
type relayVoter struct {
	*quic.Endpoint
	name   string
	addr   *net.UDPAddr
	desk   *desk
	server *forwardServer
	stop   func() // once

	mu      sync.Mutex
	asked   []string                      // what came to the desk
	dropped int                           // requests whose clients were gone or out of patience
	answer  func(question) (answer, bool) // false: no answer until it is dropped
	drop    error                         // what a request is told then
	values  map[string][]byte             // what was set
	pending map[register.Op]*request
	most    int // that were pending at once
}

func (w *relayWorld) SendPacket(p simnet.Packet) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut[host(p.From)] || w.cut[host(p.To)] {
		return nil
	}
	return w.router.SendPacket(p)
}

func (w *relayWorld) AddNode(addr net.Addr, r simnet.PacketReceiver) { w.router.AddNode(addr, r) }

func (w *relayWorld) cutOff(v *relayVoter, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[v.addr.IP.String()] = cut
}

// endpoint runs an endpoint at an address; a packet to or from it takes latency. What it
// returns as well stops it, once.
func (w *relayWorld) endpoint(id *quic.Identity, addr *net.UDPAddr, latency time.Duration, handlers map[quic.Purpose]quic.Handler) (*quic.Endpoint, func()) {
	w.t.Helper()
	sim := &simnet.Simnet{Router: w}
	conn := sim.NewEndpoint(addr, simnet.NodeBiDiLinkSettings{Latency: latency})
	if err := sim.Start(); err != nil {
		w.t.Fatal(err)
	}
	e, err := quic.New(quic.Config{
		Identity: id, Conn: conn, Configuration: 1, Boot: 1, Handlers: handlers,
		Log:     slog.New(slog.NewTextHandler(w.t.Output(), nil)).With("at", id.Name),
		Deliver: func(context.Context, register.Voter, quic.Batch) {},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- e.Run(context.Background()) }()
	return e, sync.OnceFunc(func() {
		if err := errors.Join(e.Close(), <-done, sim.Close()); err != nil {
			w.t.Error(err)
		}
	})
}

// inRelay runs f with voters a, b and so on, the first one nearest, and an observer that is
// connected with all of them.
func inRelay(t *testing.T, voters int, f func(t *testing.T, w *relayWorld)) {
	synctest.Test(t, func(t *testing.T) {
		w := &relayWorld{t: t, cut: map[string]bool{}}
		ca, ids, err := quic.MakeVoters([]string{"a", "b", "c"}[:voters]...)
		if err != nil {
			t.Fatal(err)
		}
		var all []membership.Voter
		for i, id := range ids {
			all = append(all, membership.Voter{Name: id.Name, Number: id.Number})
			v := w.voter(id, i+1)
			defer v.stop()
		}
		id, err := ca.NewIdentity("kiosk", quic.RoleObserver, 0)
		if err != nil {
			t.Fatal(err)
		}
		e, stop := w.endpoint(id, address(99), time.Millisecond, nil)
		defer stop()
		stopped := make(chan struct{})
		w.observer, w.stop = e, sync.OnceFunc(func() { close(stopped) })
		w.forwarder = newForwarder(e, membership.New(ca.Cluster(), 1, all...), stopped, slog.New(slog.NewTextHandler(t.Output(), nil)))
		for i, v := range w.voters {
			if err := e.SetPeer(v.name, register.Voter(i+1), v.addr.String()); err != nil {
				t.Fatal(err)
			}
		}
		w.await(voters)
		f(t, w)
	})
}

// voter runs one voter, the further away the higher its number.
func (w *relayWorld) voter(id *quic.Identity, n int) *relayVoter {
	v := &relayVoter{name: id.Name, addr: address(n), desk: newDesk(), values: map[string][]byte{}, pending: map[register.Op]*request{}}
	v.answer = v.keep
	v.drop = fmt.Errorf("%w: nothing changed; missing: everybody", client.ErrNoQuorum)
	v.server = newForwardServer(v.desk, slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	e, stop := w.endpoint(id, v.addr, time.Duration(n)*10*time.Millisecond, map[quic.Purpose]quic.Handler{purposeForward: v.server.serve})
	v.Endpoint = e
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		v.loop()
	}()
	v.stop = sync.OnceFunc(func() {
		close(v.desk.stopped)
		<-ended
		stop()
	})
	w.voters = append(w.voters, v)
	return v
}

// loop is the desk's other side.
func (v *relayVoter) loop() {
	for {
		select {
		case <-v.desk.stopped:
			return
		case in := <-v.desk.inputs:
			v.take(in)
		}
	}
}

func (v *relayVoter) take(in input) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if in.req == nil {
		if req := v.pending[in.op]; req != nil {
			delete(v.pending, in.op)
			v.dropped++
			req.answer <- answer{err: v.drop}
		}
		return
	}
	q := in.req.question
	v.asked = append(v.asked, map[kind]string{kindGet: "get ", kindSet: "set ", kindList: "list "}[q.kind]+q.key)
	if a, ok := v.answer(q); ok {
		in.req.answer <- a
	} else {
		v.pending[in.op] = in.req
		v.most = max(v.most, len(v.pending))
	}
}

// keep answers as a voter that is a quorum by itself, in one round trip.
func (v *relayVoter) keep(q question) (answer, bool) {
	r := register.Result{Tag: register.Tag{TS: 7 << 16, Owner: 1}, RoundTrips: 1}
	switch q.kind {
	case kindGet:
		r.Value, r.Found = v.values[q.key]
	case kindSet:
		v.values[q.key] = q.value
		if q.deleted {
			delete(v.values, q.key)
		}
	case kindList:
		for key, value := range v.values {
			if strings.HasPrefix(key, q.key) && key > q.after && len(r.Entries) < q.limit {
				r.Entries = append(r.Entries, register.Entry{Key: key, Tag: r.Tag, Size: len(value)})
			}
		}
	}
	return answer{result: r}, true
}

// does has the voter answer like that from now on.
func (v *relayVoter) does(f func(question) (answer, bool)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answer = f
}

func never(question) (answer, bool) { return answer{}, false }

func fails(err error) func(question) (answer, bool) {
	return func(question) (answer, bool) { return answer{err: fmt.Errorf("%w: so it is", err)}, true }
}

// count returns how often that came to the voter's desk.
func (v *relayVoter) count(what string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, a := range v.asked {
		if a == what {
			n++
		}
	}
	return n
}

// await waits until the observer is connected with n voters.
func (w *relayWorld) await(n int) {
	w.t.Helper()
	for range 10_000 {
		up := 0
		for _, p := range w.observer.Status().Peers {
			if p.Connected && p.RTT > 0 {
				up++
			}
		}
		if up == n {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Fatalf("not connected with %d voters", n)
}

func (w *relayWorld) get(key string) answer {
	return w.ask(w.t.Context(), question{kind: kindGet, key: key, timeout: 5 * time.Second})
}

func (w *relayWorld) set(key, value string) answer {
	return w.ask(w.t.Context(), question{kind: kindSet, key: key, value: []byte(value), timeout: 5 * time.Second})
}

// wants checks an answer's error, and that it says the words on one line.
func wants(t *testing.T, a answer, target error, words ...string) {
	t.Helper()
	if !errors.Is(a.err, target) {
		t.Fatalf("%v, want %v", a.err, target)
	}
	for _, word := range words {
		if !strings.Contains(a.err.Error(), word) || strings.Contains(a.err.Error(), "\n") {
			t.Errorf("%q does not say %q", a.err, word)
		}
	}
}

func TestTheNearestVoterIsAsked(t *testing.T) {
	inRelay(t, 3, func(t *testing.T, w *relayWorld) {
		a, b := w.voters[0], w.voters[1]
		large := strings.Repeat("x", register.MaxValue)
		for key, value := range map[string]string{"k": "v", "empty": "", strings.Repeat("k", register.MaxKey): large} {
			if r := w.set(key, value); r.err != nil || r.via != "a" || r.result.RoundTrips != 2 || r.result.Tag.TS != 7<<16 {
				t.Fatalf("set: %+v", r)
			}
			if r := w.get(key); r.err != nil || r.via != "a" || !r.result.Found || string(r.result.Value) != value {
				t.Errorf("get: %v via %s, found %v, %d bytes", r.err, r.via, r.result.Found, len(r.result.Value))
			}
		}
		if v, ok := a.values["empty"]; !ok || v == nil {
			t.Errorf("an empty value is %v, %v", v, ok)
		}
		r := w.ask(t.Context(), question{kind: kindList, key: "emp", after: "e", limit: 7, timeout: time.Second})
		if len(r.result.Entries) != 1 || r.result.Entries[0].Key != "empty" || r.result.RoundTrips != 2 {
			t.Errorf("list: %+v", r)
		}
		if r := w.ask(t.Context(), question{kind: kindSet, key: "k", deleted: true, timeout: time.Second}); r.err != nil {
			t.Error(r.err)
		}
		if r := w.get("k"); r.err != nil || r.result.Found || r.result.Tag.IsZero() {
			t.Errorf("a deleted key: %+v", r)
		}
		served := func() uint64 { return a.Status().Peers[0].StreamsServed }
		for range 100 {
			w.get("k")
		}
		if n := served(); n != 1 {
			t.Errorf("one request after the other took %d streams", n)
		}
		time.Sleep(10 * time.Minute) // both ends have given the stream up
		if r := w.set("k", "v"); r.err != nil || served() != 2 {
			t.Errorf("%v; %d streams", r.err, served())
		}
		if len(b.asked) != 0 {
			t.Errorf("b was asked %q", b.asked)
		}
	})
}

// A page of the largest keys passes.
func TestTheLargestPagePasses(t *testing.T) {
	inRelay(t, 1, func(t *testing.T, w *relayWorld) {
		var entries []register.Entry
		for i := range register.MaxPage {
			key := fmt.Sprintf("%0*d", register.MaxKey, i)
			entries = append(entries, register.Entry{Key: key, Tag: register.Tag{TS: 1 << 63, Owner: register.MaxVoter}, Size: register.MaxValue, Deleted: true, Aside: true})
		}
		next := entries[len(entries)-1].Key
		w.voters[0].does(func(question) (answer, bool) {
			return answer{result: register.Result{Entries: entries, Next: next, RoundTrips: 2}}, true
		})
		r := w.ask(t.Context(), question{kind: kindList, limit: register.MaxPage, timeout: 5 * time.Second})
		if r.err != nil || len(r.result.Entries) != len(entries) || r.result.Entries[999] != entries[999] || r.result.Next != next || r.result.RoundTrips != 3 {
			t.Errorf("%v, %d entries", r.err, len(r.result.Entries))
		}
	})
}

// What a voter says an observer's client hears, with the same sentinels.
func TestErrorsPass(t *testing.T) {
	inRelay(t, 1, func(t *testing.T, w *relayWorld) {
		for _, err := range []error{
			client.ErrNoQuorum, client.ErrUnknownOutcome, client.ErrNotSent, client.ErrNotSaved, client.ErrRefused, client.ErrStopping, client.ErrTooLarge,
		} {
			w.voters[0].does(fails(err))
			a := w.set("k", "v")
			wants(t, a, err, "a answered: "+err.Error()+": so it is")
			if a.via != "a" {
				t.Errorf("%v is not said to be of a", err)
			}
		}
		n := len(w.voters[0].asked)
		w.voters[0].does(w.voters[0].keep)
		// The voter checks as it does for its own clients.
		for _, c := range []struct {
			q    question
			want error
		}{
			{question{kind: kindGet, key: "a\nb"}, client.ErrRefused},
			{question{kind: kindGet, key: strings.Repeat("x", 1025)}, client.ErrTooLarge},
			{question{kind: kindSet, key: "_gus/x"}, client.ErrRefused},
			{question{kind: kindSet, key: client.SyncKeys + "lamp/x"}, client.ErrRefused},
			{question{kind: kindSet, key: client.SyncKeys + "kiosk"}, client.ErrRefused},
			{question{kind: kindSet, key: "x", value: make([]byte, register.MaxValue+1)}, client.ErrTooLarge},
			{question{kind: kindSet, key: ""}, client.ErrRefused},
			{question{kind: kindList, key: "a\nb", limit: 1}, client.ErrRefused},
			{question{kind: kindList, after: "a\x00", limit: 1}, client.ErrRefused},
		} {
			c.q.timeout = time.Second
			wants(t, w.ask(t.Context(), c.q), c.want)
		}
		if len(w.voters[0].asked) != n {
			t.Errorf("it came to the desk: %q", w.voters[0].asked[n:])
		}
		if r := w.set(client.SyncKeys+"kiosk/x", "{}"); r.err != nil {
			t.Errorf("how its own files are: %v", r.err)
		}
	})
}

// Where the nearest voter has certainly done nothing, the next one is asked.
func TestTheNextVoterIsAsked(t *testing.T) {
	inRelay(t, 3, func(t *testing.T, w *relayWorld) {
		a, b, c := w.voters[0], w.voters[1], w.voters[2]
		for _, err := range []error{client.ErrNotSent, client.ErrNotSaved, client.ErrStopping} {
			a.does(fails(err))
			if r := w.set("k", "v"); r.err != nil || r.via != "b" {
				t.Errorf("%v: %+v", err, r)
			}
			if r := w.get("k"); r.err != nil || r.via != "b" || string(r.result.Value) != "v" {
				t.Errorf("%v: %+v", err, r)
			}
		}
		b.does(fails(client.ErrNotSent))
		c.does(fails(client.ErrNotSaved))
		wants(t, w.set("k", "v"), client.ErrNotSaved, "c answered")
		a.stop()
		b.does(b.keep)
		w.await(2)
		if r := w.set("k", "w"); r.err != nil || r.via != "b" {
			t.Errorf("after a has stopped: %+v", r)
		}
		// Refused by one is refused by all.
		b.does(fails(client.ErrRefused))
		wants(t, w.set("k", "v"), client.ErrRefused, "b answered")
	})
}

// A voter dies without a word: a read goes elsewhere, the write that it was given never
// does, and what comes after asks others first until it is back.
func TestAVoterThatDies(t *testing.T) {
	inRelay(t, 3, func(t *testing.T, w *relayWorld) {
		a, b, c := w.voters[0], w.voters[1], w.voters[2]
		w.set("k", "v")
		w.get("k")
		w.cutOff(a, true)
		r := w.set("lost", "v")
		wants(t, r, client.ErrUnknownOutcome, "a was given it", "5s", "it may still take effect; read the key to see")
		if r.via != "a" || b.count("set lost")+c.count("set lost") != 0 {
			t.Errorf("via %q; b was asked %q, c %q", r.via, b.asked, c.asked)
		}
		if r := w.set("next", "v"); r.err != nil || r.via != "b" {
			t.Errorf("the next write: %+v", r)
		}
		if r := w.get("next"); r.err != nil || r.via != "b" || r.result.RoundTrips != 2 {
			t.Errorf("a read: %+v", r)
		}
		w.await(2)
		w.cutOff(a, false)
		w.await(3)
		if r := w.set("again", "v"); r.err != nil || r.via != "a" {
			t.Errorf("back again: %+v", r)
		}
		if n := a.count("set lost"); n > 1 {
			t.Errorf("a was given it %d times", n)
		}
	})
}

// A read that its voter does not answer in time is asked of the next one.
func TestAReadThatIsNotAnswered(t *testing.T) {
	inRelay(t, 3, func(t *testing.T, w *relayWorld) {
		a, b, c := w.voters[0], w.voters[1], w.voters[2]
		c.values["k"] = []byte("v")
		a.does(never)
		b.does(never)
		if r := w.get("k"); r.err != nil || r.via != "c" || string(r.result.Value) != "v" {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Second)
		a.mu.Lock()
		if a.dropped != 1 || len(a.pending) != 0 {
			t.Errorf("a has dropped %d, and %d wait", a.dropped, len(a.pending))
		}
		a.mu.Unlock()
		if r := w.get("k"); r.via != "c" || a.count("get k") != 1 {
			t.Errorf("the next one is asked of %s", r.via)
		}
		c.does(never)
		r := w.ask(t.Context(), question{kind: kindGet, key: "k", timeout: 2 * time.Second})
		wants(t, r, client.ErrNoQuorum, "nothing changed")
		time.Sleep(doubtRead)
		a.does(a.keep)
		if r := w.get("k"); r.err != nil || r.via != "a" {
			t.Errorf("later: %+v", r)
		}
	})
}

// A connection that breaks under a write leaves its outcome open, and under a read does
// not matter.
func TestAConnectionThatBreaks(t *testing.T) {
	for _, k := range []kind{kindSet, kindGet, kindList} {
		inRelay(t, 2, func(t *testing.T, w *relayWorld) {
			a, b := w.voters[0], w.voters[1]
			a.does(never)
			done := make(chan answer, 1)
			go func() { done <- w.ask(t.Context(), question{kind: k, key: "k", limit: 1, timeout: time.Minute}) }()
			time.Sleep(100 * time.Millisecond)
			w.cutOff(a, true)
			switch r := <-done; {
			case k == kindSet:
				wants(t, r, client.ErrUnknownOutcome, "a was given it", "was lost before it answered")
				if len(b.asked) != 0 {
					t.Errorf("b was asked %q", b.asked)
				}
			case r.err != nil || r.via != "b":
				t.Errorf("%+v", r)
			}
		})
	}
}

// Nobody is in reach: the error says so, and a voter that comes in time is asked.
func TestNoVoterIsInReach(t *testing.T) {
	inRelay(t, 2, func(t *testing.T, w *relayWorld) {
		for _, v := range w.voters {
			w.cutOff(v, true)
		}
		w.await(0)
		wants(t, w.set("k", "v"), client.ErrNoQuorum, "none of the voters (a, b) is in reach: nothing changed", "UDP")
		wants(t, w.get("k"), client.ErrNoQuorum, "none of the voters (a, b)")
		done := make(chan answer, 1)
		go func() {
			done <- w.ask(t.Context(), question{kind: kindSet, key: "k", value: []byte("v"), timeout: time.Minute})
		}()
		time.Sleep(20 * time.Second)
		w.cutOff(w.voters[1], false)
		if r := <-done; r.err != nil || r.via != "b" {
			t.Errorf("%+v", r)
		}
	})
}

// Many at once use a bounded number of streams and wait for their turn, until their time
// is over.
func TestManyAtOnce(t *testing.T) {
	inRelay(t, 1, func(t *testing.T, w *relayWorld) {
		a := w.voters[0]
		ask := func(n int, timeout time.Duration) map[string]int {
			var mu sync.Mutex
			came := map[string]int{}
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					r := w.ask(t.Context(), question{kind: kindSet, key: "k", timeout: timeout})
					mu.Lock()
					defer mu.Unlock()
					_, code := client.Code(r.err)
					if r.err == nil {
						code = "done"
					}
					came[code]++
				})
			}
			wg.Wait()
			return came
		}
		if came := ask(500, 5*time.Second); came["done"] != 500 {
			t.Errorf("%v", came)
		}
		if n := a.Status().Peers[0].StreamsServed; n < 2 || n > 500 {
			t.Errorf("%d streams", n)
		}
		a.does(never)
		came := ask(maxForwards+10, time.Second)
		if came["no_quorum"]+came["not_sent"] != maxForwards+10 || a.most != maxForwards {
			t.Errorf("%v, %d at once", came, a.most)
		}
		a.does(a.keep)
		if r := w.set("k", "v"); r.err != nil {
			t.Error(r.err)
		}
		a.server.mu.Lock()
		defer a.server.mu.Unlock()
		if n := len(a.server.guests["kiosk"].streams); n > maxIdleForwards+1 || a.server.requests != 0 || a.server.bytes != 0 || a.desk.count.Load() != 0 {
			t.Errorf("%d streams are kept, %d requests of %d bytes", n, a.server.requests, a.server.bytes)
		}
	})
}

// What finds all streams to the nearest voter taken goes to the next one.
func TestWhatIsTooMuchForOneVoter(t *testing.T) {
	inRelay(t, 2, func(t *testing.T, w *relayWorld) {
		a, b := w.voters[0], w.voters[1]
		a.does(never)
		a.drop = client.ErrUnknownOutcome
		var wg sync.WaitGroup
		for range maxForwards {
			wg.Go(func() { w.ask(t.Context(), question{kind: kindSet, key: "stuck", timeout: 10 * time.Second}) })
		}
		time.Sleep(500 * time.Millisecond) // a is not in doubt yet
		if r := w.set("k", "v"); r.err != nil || r.via != "b" {
			t.Errorf("%+v", r)
		}
		wg.Wait()
		if b.count("set stuck") != 0 || a.count("set stuck") != maxForwards {
			t.Errorf("a was asked %d times, b %d times", a.count("set stuck"), b.count("set stuck"))
		}
	})
}

// Whose client is gone needs no answer, and the voter hears of it.
func TestAClientOfAnObserverThatIsGone(t *testing.T) {
	inRelay(t, 2, func(t *testing.T, w *relayWorld) {
		a, b := w.voters[0], w.voters[1]
		a.does(never)
		for _, k := range []kind{kindSet, kindGet} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan answer, 1)
			go func() { done <- w.ask(ctx, question{kind: k, key: "k", timeout: time.Hour}) }()
			time.Sleep(200 * time.Millisecond)
			cancel()
			if r := <-done; !errors.Is(r.err, context.Canceled) {
				t.Errorf("%+v", r)
			}
		}
		time.Sleep(time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.dropped != 2 || len(a.pending) != 0 || len(b.asked) != 0 {
			t.Errorf("a has dropped %d, and %d wait; b was asked %q", a.dropped, len(a.pending), b.asked)
		}
	})
}

// The observer's agent stops: each request has an answer at once, and it is the truth.
func TestAnObserverThatStops(t *testing.T) {
	inRelay(t, 1, func(t *testing.T, w *relayWorld) {
		w.voters[0].does(never)
		var all []chan answer
		for _, k := range []kind{kindSet, kindGet} {
			done := make(chan answer, 1)
			go func() { done <- w.ask(t.Context(), question{kind: k, key: "k", timeout: time.Hour}) }()
			all = append(all, done)
		}
		time.Sleep(100 * time.Millisecond)
		w.stop()
		if err := w.observer.Close(); err != nil {
			t.Error(err)
		}
		wants(t, <-all[0], client.ErrUnknownOutcome, "this agent stopped")
		wants(t, <-all[1], client.ErrStopping)
		wants(t, w.set("k", "v"), client.ErrStopping, "nothing changed")
	})
}

// The local API of an observer passes on what needs a quorum, says where to, and answers
// what needs none by itself.
func TestTheAPIOfAnObserver(t *testing.T) {
	inRelay(t, 1, func(t *testing.T, w *relayWorld) {
		own := newDesk()
		door := &testSite{w: &world{t: t}, node: &node{api: &api{desk: own, ask: w.ask, age: func() time.Duration { return 0 }, writer: func(register.Voter) string { return "a" }}}}
		via := func(r reply) string { return strings.Join(r.header[client.HeaderVia], " ") }
		if r := door.set("k", "v"); r.err() != nil || via(r) != "a" || r.header[client.HeaderRoundTrips][0] != "2" {
			t.Errorf("set: %+v", r)
		}
		if r := door.get("k"); r.body != "v" || via(r) != "a" {
			t.Errorf("get: %+v", r)
		}
		if r := door.get("absent"); !errors.Is(r.err(), client.ErrNotFound) || via(r) != "a" {
			t.Errorf("get: %+v", r)
		}
		if r := door.ask(t.Context(), "GET", listPath+"?prefix=k", "1s", ""); r.err() != nil || via(r) != "a" || !strings.Contains(r.body, `"key":"k"`) {
			t.Errorf("list: %+v", r)
		}
		n := len(w.voters[0].asked)
		if r := door.set("_gus/x", "v"); !errors.Is(r.err(), client.ErrRefused) {
			t.Errorf("a system key: %+v", r)
		}
		go func() {
			for range 2 {
				in := <-own.inputs
				in.req.answer <- answer{local: register.Local{Found: true, Value: []byte("here")}}
			}
		}()
		if r := door.local("k"); r.body != "here" || via(r) != "" {
			t.Errorf("get --local: %+v", r)
		}
		if r := door.ask(t.Context(), "GET", listPath+"?local=true", "1s", ""); r.err() != nil || via(r) != "" {
			t.Errorf("list --local: %+v", r)
		}
		if len(w.voters[0].asked) != n {
			t.Errorf("a was asked %q", w.voters[0].asked[n:])
		}
	})
}
