package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// siteNames are the demo's voters: California, Virginia, Ireland.
func siteNames() []string { return []string{"ca", "va", "ir"} }

// observerName is the demo's site without a vote: Japan.
const observerName = "jp"

// rtts are the round-trip times between the demo's sites, by pair: "ca-va".
// Empty: as fast as the machine is.
type rtts map[string]time.Duration

func regions() rtts {
	return rtts{
		"ca-va": 72 * time.Millisecond, "ca-ir": 151 * time.Millisecond, "va-ir": 88 * time.Millisecond,
		"ca-jp": 113 * time.Millisecond, "va-jp": 162 * time.Millisecond, "ir-jp": 220 * time.Millisecond,
	}
}

// parseRTTs reads what --rtt gives: "off", or changes to the regions' times as
// in "CA-VA=72,CA-IR=151ms".
func parseRTTs(s string) (rtts, error) {
	if s == "off" {
		return rtts{}, nil
	}
	r, names := regions(), append(siteNames(), observerName)
	for _, part := range strings.FieldsFunc(s, func(c rune) bool { return c == ',' }) {
		pair, value, _ := strings.Cut(part, "=")
		a, b, _ := strings.Cut(strings.ToLower(strings.TrimSpace(pair)), "-")
		d, err := parseMillis(strings.TrimSpace(value))
		if a == b || !slices.Contains(names, a) || !slices.Contains(names, b) || err != nil {
			return nil, usage("--rtt %q: write it as in CA-VA=72,CA-IR=151,VA-IR=88 (milliseconds), or off", part)
		}
		delete(r, b+"-"+a)
		r[a+"-"+b] = d
	}
	return r, nil
}

func parseMillis(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if ms, errMS := strconv.ParseFloat(s, 64); errMS == nil {
		d, err = time.Duration(ms*float64(time.Millisecond)), nil
	}
	if err == nil && (d < 0 || d > time.Minute) {
		err = fmt.Errorf("round-trip time %v", d)
	}
	return d, err
}

// between returns the round-trip time of two sites.
func (r rtts) between(a, b string) time.Duration { return max(r[a+"-"+b], r[b+"-"+a]) }
