package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/agent/client"
)

// What an observer has passed on when it stops may take effect: its pipe must not say that nothing changed.
func TestAnObserverThatStopsSaysThatASetMayTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		a := &api{desk: d, age: func() time.Duration { return 0 }, ending: make(chan struct{}), ask: func(ctx context.Context, q question) answer {
			<-ctx.Done()
			time.Sleep(time.Millisecond) // the loop has long stopped
			return answer{via: "site-b", err: fmt.Errorf("%w: site-b was given it", client.ErrUnknownOutcome)}
		}}
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() {
			newPipe(a, theirs, nil).serve()
			theirs.Close()
			close(ended)
		}()
		c := lane{ours, t}
		c.ask(client.PipeRequest{ID: 1, Kind: client.PipeSet, Key: []byte("k")})
		synctest.Wait()
		close(d.stopped)
		close(a.ending)
		if id, said := c.hear(); id != 1 || !strings.Contains(said, "unknown_outcome") {
			t.Errorf("%d: %q", id, said)
		}
		<-ended
		ours.Close()
	})
}

// A set that a voter was given is never said to have failed, whoever lost interest.
func TestAPassedOnSetThatIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &passing{forwarder: &forwarder{stopped: make(chan struct{})}, question: question{kind: kindSet}, deadline: time.Now().Add(time.Minute)}
	if a, again := p.unanswered(ctx, "site-b", net.ErrClosed); again || !errors.Is(a.err, client.ErrUnknownOutcome) {
		t.Errorf("%v, asked again: %v", a.err, again)
	}
	p.kind = kindGet
	if a, again := p.unanswered(ctx, "site-b", net.ErrClosed); again || !errors.Is(a.err, context.Canceled) {
		t.Errorf("a get: %v, asked again: %v", a.err, again)
	}
}

// A client that reads nothing holds no stop up for as long as it may otherwise take.
func TestASlowReaderDoesNotHoldUpAStop(t *testing.T) {
	inLane(t, func(t *testing.T, l *loop, a *api, c lane, ended <-chan struct{}) {
		c.ask(client.PipeRequest{ID: 1, Kind: client.PipeLocal, Key: []byte("k")})
		synctest.Wait() // the reply is being written, and nobody reads
		began := time.Now()
		close(a.ending)
		<-ended
		if took := time.Since(began); took > 2*pipeGrace {
			t.Errorf("the stop took %v", took)
		}
	})
}
