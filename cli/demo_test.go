package cli

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestADemoLeavesNothingBehind runs a demo and a bench in this process.
func TestADemoLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out, errs bytes.Buffer
	a := &app{out: &out, err: &errs}
	if err := a.run(t.Context(), strings.Fields("demo --once --rtt CA-VA=2,CA-IR=4,VA-IR=3,CA-JP=2,VA-JP=5,IR-JP=5 --kill va")); err != nil {
		t.Fatal(err)
	}
	bench := "bench --demo --rtt off --clients 6 --keys 6 --duration 600ms --warmup 0s --conflict 0.3 --kill ir --check --json"
	if err := a.run(t.Context(), strings.Fields(bench)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"violations":[]`) {
		t.Error(out.String())
	}
	if errs.Len() > 0 {
		t.Error(errs.String())
	}
}

func TestWhatIsTyped(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	sites, err := openDemo(t.Context(), dir, rtts{}, testLog(t), observerName)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	tr := &tour{out: &out, sites: sites}
	if err := sites.await(t.Context()); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"k va", "s", "k va", "k moon", "what", ""} {
		if tr.typed(t.Context(), line) {
			t.Errorf("%q ends it", line)
		}
	}
	if !tr.typed(t.Context(), "q") {
		t.Error("q does not end it")
	}
	for _, want := range []string{"VA is stopped without warning", "VA is stopped\n", "CA: quorum", "JP: observer, ", "VA is started again", `no site "moon"`, "k SITE, s or q"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if err := sites.close(); err != nil {
		t.Error(err)
	}
}
