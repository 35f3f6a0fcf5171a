//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// idle is how long an agent takes a connection to a silent site for good.
const idle = 15 * time.Second

// action is a fault, all chosen.
type action struct {
	text    string // what it does to whom
	lasts   time.Duration
	holds   []int    // sites whose processes it has in its hands
	victims []int    // sites that it may keep from serving
	cuts    [][2]int // pairs of sites that it parts, apart from those
	// do begins it, waits until ctx ends, and ends it.
	do func(ctx context.Context) error
}

// kind is a kind of fault.
type kind struct {
	name string
	draw func(w *world, r *rand.Rand, lasts time.Duration) action
}

// kinds are all kinds of faults.
var kinds = []kind{
	{"kill", drawKill}, {"kill-all", drawKillAll}, {"stop", drawStop}, {"stop-all", drawStopAll},
	{"freeze", drawFreeze}, {"cut", drawCut}, {"cut-off", drawCutOff}, {"one-way", drawOneWay},
	{"loss", drawLoss}, {"disorder", drawDisorder}, {"delay", drawDelay},
	{"clock", drawClock}, {"clock-restart", drawClockRestart}, {"disk-full", drawDiskFull},
}

// outage ends some sites at once by a signal, and starts them again in any order.
func outage(w *world, r *rand.Rand, sig syscall.Signal, victims []int, before func() error) func(context.Context) error {
	order := slices.Clone(victims)
	r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	gap := time.Duration(r.Int64N(int64(800 * time.Millisecond)))
	return func(ctx context.Context) error {
		err := w.everywhere(func(i int, s *site) error {
			if !slices.Contains(victims, i) {
				return nil
			}
			return s.stop(sig)
		})
		if err != nil {
			return err
		}
		<-ctx.Done()
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		for n, i := range order {
			if n > 0 {
				time.Sleep(gap)
			}
			if err := w.sites[i].start(); err != nil {
				return err
			}
		}
		return nil
	}
}

func drawKill(w *world, r *rand.Rand, lasts time.Duration) action {
	s := []int{r.IntN(len(w.sites))}
	return action{text: "kill -9 " + w.names(s), lasts: lasts, holds: s, victims: s, do: outage(w, r, syscall.SIGKILL, s, nil)}
}

func drawKillAll(w *world, r *rand.Rand, lasts time.Duration) action {
	s := r.Perm(len(w.sites))
	return action{text: "kill -9 " + w.names(s), lasts: lasts / 2, holds: s, victims: s, do: outage(w, r, syscall.SIGKILL, s, nil)}
}

func drawStop(w *world, r *rand.Rand, lasts time.Duration) action {
	s := []int{r.IntN(len(w.sites))}
	return action{text: "SIGTERM " + w.names(s), lasts: lasts, holds: s, victims: s, do: outage(w, r, syscall.SIGTERM, s, nil)}
}

func drawStopAll(w *world, r *rand.Rand, lasts time.Duration) action {
	s := r.Perm(len(w.sites))
	return action{text: "SIGTERM " + w.names(s), lasts: lasts / 2, holds: s, victims: s, do: outage(w, r, syscall.SIGTERM, s, nil)}
}

func drawFreeze(w *world, r *rand.Rand, lasts time.Duration) action {
	s := []int{r.IntN(len(w.sites))}
	return action{text: "SIGSTOP " + w.names(s), lasts: lasts, holds: s, victims: s, do: func(ctx context.Context) error {
		if err := w.sites[s[0]].signal(syscall.SIGSTOP); err != nil {
			return err
		}
		<-ctx.Done()
		return w.sites[s[0]].signal(syscall.SIGCONT)
	}}
}

// spoil changes links.
func spoil(w *world, apply func(from, to int, l *link)) func(context.Context) error {
	return func(ctx context.Context) error {
		defer w.relay.put(apply)()
		<-ctx.Done()
		return nil
	}
}

func drawCut(w *world, r *rand.Rand, lasts time.Duration) action {
	s := r.Perm(len(w.sites))[:2]
	return action{text: "cut between " + w.names(s), lasts: lasts, cuts: [][2]int{{s[0], s[1]}}, do: spoil(w, func(from, to int, l *link) {
		l.cut = l.cut || slices.Contains(s, from) && slices.Contains(s, to)
	})}
}

func drawCutOff(w *world, r *rand.Rand, lasts time.Duration) action {
	s := r.IntN(len(w.sites))
	return action{text: "cut around " + w.names([]int{s}), lasts: lasts, victims: []int{s}, do: spoil(w, func(from, to int, l *link) {
		l.cut = l.cut || from == s || to == s
	})}
}

func drawOneWay(w *world, r *rand.Rand, lasts time.Duration) action {
	p := r.Perm(len(w.sites))
	switch a, b := p[0], p[1]; r.IntN(3) {
	case 0:
		return action{text: "nothing leaves " + w.names(p[:1]), lasts: lasts, victims: p[:1], do: spoil(w, func(from, _ int, l *link) {
			l.cut = l.cut || from == a
		})}
	case 1:
		return action{text: "nothing reaches " + w.names(p[:1]), lasts: lasts, victims: p[:1], do: spoil(w, func(_, to int, l *link) {
			l.cut = l.cut || to == a
		})}
	default:
		return action{text: "cut from " + w.names(p[:1]) + " to " + w.names(p[1:2]), lasts: lasts, cuts: [][2]int{{a, b}}, do: spoil(w, func(from, to int, l *link) {
			l.cut = l.cut || from == a && to == b
		})}
	}
}

// some draws which links are spoilt: all, or those of one site.
func some(w *world, r *rand.Rand) (text string, of func(from, to int) bool) {
	if r.IntN(2) == 0 {
		return "everywhere", func(int, int) bool { return true }
	}
	s := r.IntN(len(w.sites))
	return "around " + w.names([]int{s}), func(from, to int) bool { return from == s || to == s }
}

func drawLoss(w *world, r *rand.Rand, lasts time.Duration) action {
	where, of := some(w, r)
	p := 0.01 + 0.25*r.Float64()
	return action{text: fmt.Sprintf("%.0f %% lost %s", 100*p, where), lasts: lasts, do: spoil(w, func(from, to int, l *link) {
		if of(from, to) {
			l.loss = max(l.loss, p)
		}
	})}
}

func drawDisorder(w *world, r *rand.Rand, lasts time.Duration) action {
	where, of := some(w, r)
	twice, late := 0.3*r.Float64(), 0.02+0.3*r.Float64()
	return action{text: fmt.Sprintf("%.0f %% twice, %.0f %% overtaken %s", 100*twice, 100*late, where), lasts: lasts, do: spoil(w, func(from, to int, l *link) {
		if of(from, to) {
			l.repeat, l.reorder = max(l.repeat, twice), max(l.reorder, late)
		}
	})}
}

func drawDelay(w *world, r *rand.Rand, lasts time.Duration) action {
	where, of := some(w, r)
	d := 50*time.Millisecond + time.Duration(r.Int64N(int64(350*time.Millisecond)))
	return action{text: fmt.Sprintf("%v to %v more delay %s", d.Round(time.Millisecond), 2*d.Round(time.Millisecond), where), lasts: lasts, do: spoil(w, func(from, to int, l *link) {
		if of(from, to) {
			l.delay, l.jitter = l.delay+d, l.jitter+d
		}
	})}
}

// wrong draws how far off a clock is: hours to decades either way, 1970, or not.
func wrong(r *rand.Rand) time.Duration {
	const hour, year = time.Hour, 365 * 24 * time.Hour
	d := hour + time.Duration(r.Int64N(int64(20*hour)))
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return time.Until(time.Unix(0, 0)).Round(hour)
	case 2, 3:
		d = year + time.Duration(r.Int64N(int64(35*year)))
	}
	if r.IntN(2) == 0 {
		d = -d
	}
	return d.Round(hour)
}

func drawClock(w *world, r *rand.Rand, lasts time.Duration) action {
	of := r.Perm(len(w.sites))[:1+r.IntN(len(w.sites))]
	var text []string
	clocks := map[int]time.Duration{}
	for _, i := range of {
		clocks[i] = wrong(r)
		text = append(text, fmt.Sprintf("the clock of %s off by %v", w.sites[i].name, clocks[i]))
	}
	return action{text: strings.Join(text, ", "), lasts: lasts, do: func(ctx context.Context) error {
		for i, d := range clocks {
			if err := w.sites[i].setClock(d); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil // it stays wrong, until another fault
	}}
}

func drawClockRestart(w *world, r *rand.Rand, lasts time.Duration) action {
	s := []int{r.IntN(len(w.sites))}
	sig, how := syscall.SIGKILL, "kill -9 "
	if r.IntN(2) == 0 {
		sig, how = syscall.SIGTERM, "SIGTERM "
	}
	d := wrong(r)
	text := fmt.Sprintf("%s%s, which starts with its clock off by %v", how, w.names(s), d)
	return action{text: text, lasts: lasts / 2, holds: s, victims: s, do: outage(w, r, sig, s, func() error { return w.sites[s[0]].setClock(d) })}
}

// drawDiskFull fills the small disk. Whoever is on it serves no sets meanwhile.
func drawDiskFull(w *world, _ *rand.Rand, lasts time.Duration) action {
	s := []int{w.small}
	return action{text: "the disk of " + w.names(s) + " is full", lasts: lasts, holds: s, victims: s, do: func(ctx context.Context) error {
		ballast := w.sites[w.small].path("disk/ballast")
		if err := fill(ballast); err != nil {
			return err
		}
		<-ctx.Done()
		return os.Remove(ballast)
	}}
}

// fill writes a file until there is no room for another byte.
func fill(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for len(b) > 0 {
		n, err := f.Write(b)
		if err == nil {
			continue
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return errors.Join(err, f.Close())
		}
		if n == 0 {
			b = b[:len(b)/2]
		}
	}
	return f.Close()
}

// names returns the names of sites.
func (w *world) names(of []int) string {
	var names []string
	for _, i := range of {
		names = append(names, w.sites[i].name)
	}
	return strings.Join(names, ", ")
}
