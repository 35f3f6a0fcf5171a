package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gus/agent/client"
)

// minSize is the size of the smallest value: each is unlike all others, so that
// what was read says which write it came from.
const minSize = 16

// load is clients that work and what they find.
type load struct {
	cfg       benchConfig
	sites     []*loadSite
	inProcess bool
	start     time.Time   // of the warm-up; times in the history are since then
	used      consumption // from the end of the warm-up to the end
	took      time.Duration
	workers   []*worker
}

// loadSite is a site under load.
type loadSite struct {
	name   string
	client *client.Client
	last   atomic.Int64 // nanoseconds since start of the last operation that succeeded
	gap    atomic.Int64 // the longest time between two

	cpu      time.Duration // that the agent has used from the end of the warm-up to the end
	resident int64         // bytes of memory that it has had at most
}

// weigh asks the agent what it has used so far, on behalf of whoever needs the
// difference. Where it does not say, that is nothing.
func (s *loadSite) weigh(ctx context.Context, timeout time.Duration) time.Duration {
	st, err := status(ctx, s.client, timeout)
	if err != nil {
		return 0
	}
	s.resident = st.Resident
	return time.Duration(st.CPU)
}

func newLoadSite(name string, c *client.Client) *loadSite { return &loadSite{name: name, client: c} }

// succeeded notes that an operation succeeded at the time t since start.
func (s *loadSite) succeeded(t time.Duration) {
	gap := int64(t) - s.last.Swap(int64(t))
	for {
		old := s.gap.Load()
		if gap <= old || s.gap.CompareAndSwap(old, gap) {
			return
		}
	}
}

func newLoad(cfg benchConfig) *load { return &load{cfg: cfg} }

// run works through warm-up and measurement. disturb, if any, runs during the
// measurement.
func (l *load) run(ctx context.Context, disturb func(context.Context) error) error {
	l.start = time.Now()
	stop := make(chan struct{})
	var measuring atomic.Bool
	var wg sync.WaitGroup
	for i := range l.cfg.clients {
		w := newWorker(l, i, &measuring)
		l.workers = append(l.workers, w)
		wg.Go(func() { w.run(ctx, stop) })
	}
	sleep(ctx, l.cfg.warmup)
	used := make([]time.Duration, len(l.sites))
	for i, s := range l.sites {
		used[i] = s.weigh(ctx, l.cfg.timeout)
	}
	before, begin := consumed(), time.Now()
	for _, s := range l.sites { // a gap counts from here on
		s.last.Store(int64(time.Since(l.start)))
		s.gap.Store(0)
	}
	measuring.Store(true)
	var err error
	if disturb != nil {
		wg.Go(func() { err = disturb(ctx) })
	}
	sleep(ctx, l.cfg.duration)
	measuring.Store(false)
	l.took, l.used = time.Since(begin), consumed().sub(before)
	for i, s := range l.sites {
		s.cpu = max(0, s.weigh(ctx, l.cfg.timeout)-used[i])
	}
	close(stop)
	wg.Wait()
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// worker is one client.
type worker struct {
	load      *load
	site      *loadSite
	number    int
	random    *rand.Rand
	measuring *atomic.Bool
	count     uint64 // of its operations: makes values unlike each other
	reads     series
	writes    series
	errors    map[string]benchErrors // by kind, all of the time
	history   []operation            // with check
}

func newWorker(l *load, number int, measuring *atomic.Bool) *worker {
	return &worker{
		load: l, site: l.sites[number%len(l.sites)], number: number,
		random:    rand.New(rand.NewPCG(uint64(number), 7487)),
		measuring: measuring, errors: map[string]benchErrors{},
	}
}

func (w *worker) run(ctx context.Context, stop <-chan struct{}) {
	for ctx.Err() == nil {
		select {
		case <-stop:
			return
		default:
		}
		if err := w.operate(ctx); err != nil {
			_, kind := client.Code(err)
			if errors.Is(err, client.ErrNotRunning) {
				kind = "not_running"
				sleep(ctx, 20*time.Millisecond)
			}
			w.errors[kind] = benchErrors{w.errors[kind].Count + 1, err.Error()}
		}
	}
}

// key draws a key: the one of all clients, or one of its own.
func (w *worker) key() string {
	if w.random.Float64() < w.load.cfg.conflict {
		return "bench/contended"
	}
	own := w.load.cfg.keys / w.load.cfg.clients
	return "bench/" + strconv.Itoa(w.number+w.load.cfg.clients*w.random.IntN(own))
}

// operate does one operation and notes what came of it.
func (w *worker) operate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.load.cfg.timeout)
	defer cancel()
	op := operation{key: w.key(), read: w.random.Float64() < w.load.cfg.reads}
	var r client.Result
	var err error
	op.begin = time.Since(w.load.start)
	if op.read {
		r, err = w.site.client.Get(ctx, op.key)
		op.value = valueOf(r.Value)
		if errors.Is(err, client.ErrNotFound) {
			err = nil
		}
	} else {
		v := w.value()
		op.value = valueOf(v)
		r, err = w.site.client.Set(ctx, op.key, v)
	}
	op.end, op.version = time.Since(w.load.start), r.Version
	op.unknown = errors.Is(err, client.ErrUnknownOutcome)
	if w.load.cfg.check && (err == nil || op.unknown) {
		w.history = append(w.history, op)
	}
	if err != nil {
		return err
	}
	w.site.succeeded(op.end)
	if w.measuring.Load() {
		s := &w.writes
		if op.read {
			s = &w.reads
		}
		s.add(op.end-op.begin, r.RoundTrips)
	}
	return nil
}

// value returns a value that no other write has: the client, its count, and
// when the load began.
func (w *worker) value() []byte {
	w.count++
	b := make([]byte, w.load.cfg.size)
	binary.BigEndian.PutUint64(b, uint64(w.load.start.UnixNano()))
	binary.BigEndian.PutUint64(b[8:], uint64(w.number)<<40|w.count)
	return b
}

// valueOf returns what tells a value of a load from others.
func valueOf(b []byte) [minSize]byte {
	var v [minSize]byte
	copy(v[:], b)
	return v
}

// report sums up.
func (l *load) report(ctx context.Context) (*benchReport, error) {
	if ctx.Err() != nil {
		return nil, errors.New("interrupted, and nothing is reported")
	}
	r := &benchReport{Clients: l.cfg.clients, Seconds: l.took.Seconds(), InProcess: l.inProcess, Errors: map[string]benchErrors{}}
	var all, reads, writes series
	for _, s := range l.sites {
		var sr, sw series
		for _, w := range l.workers {
			if w.site == s {
				sr.merge(&w.reads)
				sw.merge(&w.writes)
			}
		}
		reads.merge(&sr)
		writes.merge(&sw)
		site := benchSite{Name: s.name, LongestGap: client.Duration(s.gap.Load())}
		if st, err := status(ctx, s.client, l.cfg.timeout); err == nil {
			site.QuorumRTT = st.Quorum.RTT
		}
		site.Reads, site.Writes = sr.figures(l.took), sw.figures(l.took)
		r.Sites = append(r.Sites, site)
	}
	all.merge(&reads)
	all.merge(&writes)
	r.Reads, r.Writes, r.All = reads.figures(l.took), writes.figures(l.took), all.figures(l.took)
	for _, w := range l.workers {
		for kind, e := range w.errors {
			r.Errors[kind] = benchErrors{r.Errors[kind].Count + e.Count, e.Sample}
		}
	}
	r.use(l.used, all.count)
	if !l.inProcess {
		r.useAgents(l.sites, all.count)
	}
	if l.cfg.check {
		r.Check = checkHistory(l.workers)
	}
	return r, nil
}
