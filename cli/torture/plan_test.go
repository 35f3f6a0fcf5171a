//go:build unix

package torture

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// plans returns the plans of some windows of a world of three sites.
func plans(seed uint64, length time.Duration) (all [][]planned) {
	w := &world{opts: options{seed: seed, time: length}, sites: []*site{{name: "a"}, {name: "b"}, {name: "c"}}}
	w.deck = deck{rng: w.random(streamDeck, 0)}
	for _, k := range kinds {
		w.deck.kinds = append(w.deck.kinds, k.name)
	}
	for range 30 {
		w.window++
		all = append(all, w.plan())
	}
	return all
}

// text tells plans, without the one clock that is set to 1970.
func text(all [][]planned) (text []string) {
	for _, plan := range all {
		for _, p := range plan {
			if p.kind != "clock" && p.kind != "clock-restart" {
				text = append(text, fmt.Sprint(p.at, p.kind, p.text, p.lasts, p.holds, p.victims))
			}
		}
	}
	return text
}

func TestOneSeedHasOnePlan(t *testing.T) {
	one := text(plans(7, time.Hour))
	if !slices.Equal(one, text(plans(7, time.Hour))) {
		t.Error("the same seed has two plans")
	}
	if slices.Equal(one, text(plans(8, time.Hour))) {
		t.Error("two seeds have the same plan")
	}
}

// TestAllKindsComeEquallyOften, and those that outlast connections in long runs only.
func TestAllKindsComeEquallyOften(t *testing.T) {
	times, outlast := map[string]int{}, 0
	for _, plan := range plans(7, time.Hour) {
		for _, p := range plan {
			times[p.kind]++
			if p.lasts >= idle {
				outlast++
			}
		}
	}
	if len(times) != len(kinds) {
		t.Errorf("of %d kinds %d are planned", len(kinds), len(times))
	}
	for kind, n := range times {
		if n < times["kill"]-1 || n > times["kill"]+1 {
			t.Errorf("%s is planned %d times, kill %d times", kind, n, times["kill"])
		}
	}
	if outlast == 0 {
		t.Error("in a long run no fault outlasts the connections")
	}
	for _, plan := range plans(7, time.Minute) {
		for _, p := range plan {
			if p.lasts >= idle {
				t.Errorf("in a short run %s lasts %v", p.text, p.lasts)
			}
		}
	}
}

// TestOptions are read from the environment, and bad ones named.
func TestOptions(t *testing.T) {
	t.Setenv("GUS_TORTURE_TIME", "1h")
	t.Setenv("GUS_TORTURE_SEED", "7")
	t.Setenv("GUS_TORTURE_KINDS", "kill,loss")
	o, err := readOptions()
	if err != nil || o.time != time.Hour || o.seed != 7 || o.voters != 3 || !o.agree || !slices.Equal(o.kinds, []string{"kill", "loss"}) {
		t.Errorf("the options are %+v, %v", o, err)
	}
	for name, value := range map[string]string{"TIME": "long", "SEED": "-1", "VOTERS": "2", "KINDS": "kil"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GUS_TORTURE_"+name, value)
			if _, err := readOptions(); err == nil || !strings.Contains(err.Error(), "GUS_TORTURE_"+name) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
