package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"time"

	"gus/register"
)

// world is one run: voters, what connects them, and what their clients saw.
type world struct {
	cfg      Config
	rng      *rand.Rand
	line     timeline
	net      *network
	voters   []*voter
	ids      []register.Voter
	byID     [register.MaxVoter + 1]*voter
	keys     []string
	history  History
	peeks    History // what voters knew to be settled without asking: as reads, but possibly old ones
	watch    watch
	observer *observer
	movers   []*mover
	outcome  Outcome
	clock    int64                   // orders calls and returns
	arrived  int                     // operations begun by clients
	orphans  int                     // restarts and abandoned writes: owners that no longer know all of their own writes
	healing  bool                    // no more faults
	finals   map[string]register.Tag // the versions that all agree on in the end
}

// Outcome is what came of a run.
type Outcome struct {
	Config  Config
	Err     error   // the first thing that was not as it has to be; nil: all was well
	Trace   uint64  // a hash of all that happened
	History History // of all operations
	Stats   Stats
	Marks   Marks
	Forgot  bool // a voter noticed that it has forgotten what it promised: the run ends there
}

// Stats counts what happened in a run.
type Stats struct {
	Operations                                   int // judged
	FastWrites, SlowWrites, FastReads, SlowReads int // by whether one message round was enough
	FastLists, SlowLists                         int // pages, likewise
	Messages, Lost, Saves                        int
	Crashes, Recoveries                          int
}

// Add adds the counts of other.
func (s *Stats) Add(other Stats) {
	for _, p := range [...][2]*int{
		{&s.Operations, &other.Operations}, {&s.FastWrites, &other.FastWrites}, {&s.SlowWrites, &other.SlowWrites},
		{&s.FastReads, &other.FastReads}, {&s.SlowReads, &other.SlowReads},
		{&s.FastLists, &other.FastLists}, {&s.SlowLists, &other.SlowLists}, {&s.Messages, &other.Messages},
		{&s.Lost, &other.Lost}, {&s.Saves, &other.Saves}, {&s.Crashes, &other.Crashes}, {&s.Recoveries, &other.Recoveries},
	} {
		*p[0] += *p[1]
	}
}

// Run plays one run and judges it. A panic of the replica, which asserts its
// invariants, is an outcome like others.
func Run(cfg Config) Outcome {
	if cfg.New == nil {
		cfg.New = register.New
	}
	w := &world{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 2)), watch: newWatch()}
	w.outcome.Config = cfg
	w.play()
	w.outcome.History = w.history
	w.outcome.Stats.Operations = len(w.history)
	if w.outcome.Err == nil {
		w.outcome.Err = w.judge()
	}
	return w.outcome
}

func (w *world) play() {
	defer func() {
		if p := recover(); p != nil {
			w.fail("panic: %v\n%s", p, debug.Stack())
		}
	}()
	w.build()
	span := time.Duration(w.cfg.Ops)*w.cfg.Pace + w.exp(20*w.cfg.Unit)
	w.planFaults(span)
	w.arrive()
	for !w.over() && w.line.step(span) {
	}
	if !w.over() && w.cfg.QuorumFirst {
		w.healQuorum()
	}
	if !w.over() {
		w.healAll()
	}
	if !w.over() && w.cfg.PowerCut {
		w.powerCut()
	}
}

// build builds the voters, all up and connected.
func (w *world) build() {
	n := w.cfg.Voters
	for i := range w.cfg.Keys {
		w.keys = append(w.keys, "k"+strconv.Itoa(i+1))
	}
	next := register.Voter(1)
	for i := range n {
		w.ids = append(w.ids, next)
		v := &voter{w: w, pos: i, id: next, slow: math.Exp(3*w.rng.Float64() - 2)}
		v.setClock(w.rng)
		v.follower = &follower{v: v, rng: rand.New(rand.NewPCG(w.cfg.Seed, 16+uint64(i))), seen: map[string]register.Tag{}, last: map[string]register.Tag{}}
		v.puller = newPuller(v)
		v.cursors, v.kept = make([]register.Seq, n), make([]register.Seq, n)
		w.voters, w.byID[next] = append(w.voters, v), v
		next++
		if w.rng.IntN(8) == 0 { // permanent numbers have gaps
			next += register.Voter(w.rng.IntN(6))
		}
	}
	w.net = newNetwork(w, n)
	for _, v := range w.voters {
		v.start()
	}
	w.observer = w.newObserver()
	for i := range movers {
		if w.cfg.Adopt > 0 && !w.cfg.unwatched {
			w.movers = append(w.movers, w.newMover(i))
		}
	}
}

// over says whether the run has failed, or ended early: nothing that follows matters then.
func (w *world) over() bool { return w.outcome.Err != nil || w.outcome.Forgot }

func (w *world) fail(format string, args ...any) {
	if w.outcome.Err == nil {
		w.outcome.Err = fmt.Errorf(format, args...)
		w.log(traceFail, 0, func() string { return "FAIL " + w.outcome.Err.Error() })
	}
}

// judge judges the history: by versions always, by search where it is short.
func (w *world) judge() error {
	if err := w.history.Check(); err != nil {
		return err
	}
	for _, ops := range append(w.history[:len(w.history):len(w.history)], w.peeks...).byKey() {
		if err := checkReads(ops); err != nil {
			return fmt.Errorf("with what voters knew without asking: %w", err)
		}
	}
	return w.history.Linearizable()
}
