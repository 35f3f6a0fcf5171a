package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"gus/agent/client"
)

// tour shows what the sites do.
type tour struct {
	out   io.Writer
	sites *demoSites
	mu    sync.Mutex // of out, for what goes on at once
}

// run performs the tour, with the part about a killed site if kill names one.
func (t *tour) run(ctx context.Context, kill string) error {
	var victim *demoSite
	if kill != "" {
		var err error
		if victim, err = t.sites.find(kill); err != nil {
			return err
		}
	}
	if err := t.sites.await(ctx); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%-4s  %-40s  %10s  %6s  %10s\n", "SITE", "OPERATION", "LATENCY", "ROUNDS", "QUORUM RTT")
	steps := []func(context.Context) error{t.writeEverywhere, t.readEverywhere, t.contend, t.observe}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if victim != nil {
		return t.killed(ctx, victim)
	}
	return nil
}

func (t *tour) writeEverywhere(ctx context.Context) error {
	for _, s := range t.sites.voters() {
		if err := t.set(ctx, s, "demo/"+s.name, "hello from "+s.label()); err != nil {
			return err
		}
	}
	return nil
}

// readEverywhere reads at each site what the next one wrote.
func (t *tour) readEverywhere(ctx context.Context) error {
	voters := t.sites.voters()
	for i, s := range voters {
		of := voters[(i+1)%len(voters)]
		if err := t.get(ctx, s, "demo/"+of.name, "hello from "+of.label()); err != nil {
			return err
		}
	}
	return nil
}

// contend has all sites write one key at once and then read it.
func (t *tour) contend(ctx context.Context) error {
	t.say("all at once:")
	voters := t.sites.voters()
	errs := make([]error, len(voters))
	var wg sync.WaitGroup
	for i, s := range voters {
		wg.Go(func() { errs[i] = t.set(ctx, s, "demo/contended", s.label()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	first, err := voters[0].client.Get(ctx, "demo/contended")
	if err != nil {
		return err
	}
	for _, s := range voters {
		if err := t.get(ctx, s, "demo/contended", string(first.Value)); err != nil {
			return err
		}
	}
	return nil
}

// observe reads at the observers what they have a copy of, and writes there.
func (t *tour) observe(ctx context.Context) error {
	for _, s := range t.sites.sites[len(t.sites.voters()):] {
		st, err := s.client.Status(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.label(), err)
		}
		if st.Following == nil {
			return fmt.Errorf("%s: does not follow a voter", s.label())
		}
		t.say("%s is an observer, with a copy of what %s has:", s.label(), strings.ToUpper(st.Following.Voter))
		first := t.sites.voters()[0]
		steps := []func() error{
			func() error { return t.local(ctx, s, "demo/"+first.name, "hello from "+first.label()) },
			func() error { return t.set(ctx, s, "demo/"+s.name, "hello from "+s.label()) },
			func() error { return t.get(ctx, first, "demo/"+s.name, "hello from "+s.label()) },
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}

// copied waits until an observer's copy has a value that was written a moment ago.
func (t *tour) copied(ctx context.Context, s *demoSite, key, want string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		r, err := s.client.GetLocal(ctx, key)
		if err == nil && string(r.Value) == want {
			return nil
		}
		if err != nil && !errors.Is(err, client.ErrNotFound) || ctx.Err() != nil {
			return fmt.Errorf("%s: wait for its copy of %s: %w", s.label(), key, cmp.Or(err, ctx.Err()))
		}
		sleep(ctx, 5*time.Millisecond)
	}
}

// killed stops a site, goes on at the others, and starts it again.
func (t *tour) killed(ctx context.Context, victim *demoSite) error {
	t.kill(victim)
	last := ""
	for _, s := range t.sites.voters() {
		if s.up() {
			last = "written by " + s.label() + " without " + victim.label()
			if err := t.set(ctx, s, "demo/meanwhile", last); err != nil {
				return err
			}
		}
	}
	if err := t.restart(ctx, victim); err != nil {
		return err
	}
	if err := t.get(ctx, victim, "demo/meanwhile", last); err != nil {
		return err
	}
	if err := t.get(ctx, victim, "demo/"+victim.name, "hello from "+victim.label()); err != nil {
		return err
	}
	return t.local(ctx, victim, "demo/"+victim.name, "hello from "+victim.label())
}

func (t *tour) kill(s *demoSite) {
	t.sites.kill(s)
	t.say("%s is stopped without warning:", s.label())
}

func (t *tour) restart(ctx context.Context, s *demoSite) error {
	if err := t.sites.restart(ctx, s); err != nil {
		return err
	}
	if err := t.sites.await(ctx); err != nil {
		return err
	}
	t.say("%s is started again:", s.label())
	return nil
}

func (t *tour) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "      "+format+"\n", args...)
}

func (t *tour) row(s *demoSite, operation string, r client.Result, asksOthers bool) {
	quorum := "-"
	if asksOthers && len(t.sites.rtts) > 0 {
		quorum = millis(t.sites.quorumRTT(s))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%-4s  %-40s  %10s  %6d  %10s\n", s.label(), operation, millis(r.Latency), r.RoundTrips, quorum)
}

func (t *tour) set(ctx context.Context, s *demoSite, key, value string) error {
	r, err := s.client.Set(ctx, key, []byte(value))
	if err != nil {
		return fmt.Errorf("%s: set %s: %w", s.label(), key, err)
	}
	operation := fmt.Sprintf("set %s = %s", key, clip(value, 34-len(key)))
	if r.Via != "" {
		operation += " via " + strings.ToUpper(r.Via)
	}
	t.row(s, operation, r, true)
	return nil
}

// get reads key and insists on the value that must be there.
func (t *tour) get(ctx context.Context, s *demoSite, key, want string) error {
	r, err := s.client.Get(ctx, key)
	return t.got(s, "get "+key, want, r, err, true)
}

// local reads what s knows, which an observer may come to know a moment later.
func (t *tour) local(ctx context.Context, s *demoSite, key, want string) error {
	if s.observes {
		if err := t.copied(ctx, s, key, want); err != nil {
			return err
		}
	}
	r, err := s.client.GetLocal(ctx, key)
	return t.got(s, "get --local "+key, want, r, err, false)
}

func (t *tour) got(s *demoSite, operation, want string, r client.Result, err error, asksOthers bool) error {
	if err != nil {
		return fmt.Errorf("%s: %s: %w", s.label(), operation, err)
	}
	if string(r.Value) != want {
		return fmt.Errorf("%s: %s returned %q, must be %q: this is a bug in gus", s.label(), operation, r.Value, want)
	}
	t.row(s, fmt.Sprintf("%s = %s", operation, clip(want, 37-len(operation))), r, asksOthers)
	return nil
}

// clip cuts s to n letters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:max(n-1, 0)] + "…"
}

// invite says how to talk to the sites.
func (t *tour) invite() {
	fmt.Fprintf(t.out, "\nTalk to the sites from another terminal, for instance:\n")
	for _, s := range t.sites.sites {
		get := "get"
		if s.observes {
			get = "get --local"
		}
		fmt.Fprintf(t.out, "  GUS_SOCKET=%s gus %s demo/%s\n", s.socket(), get, s.name)
	}
	first := t.sites.sites[0].socket()
	fmt.Fprintf(t.out, "  GUS_SOCKET=%s gus set app/port 8080\n", first)
	fmt.Fprintf(t.out, "  GUS_SOCKET=%s gus status\n", first)
}
