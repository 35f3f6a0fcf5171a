package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"gus/agent/client"
)

// benchReport is what a bench came to.
type benchReport struct {
	Clients      int                    `json:"clients"`
	Seconds      float64                `json:"seconds"`
	All          figures                `json:"all"`
	Reads        figures                `json:"reads"`
	Writes       figures                `json:"writes"`
	Sites        []benchSite            `json:"sites"`
	Errors       map[string]benchErrors `json:"errors"` // by code, warm-up included
	InProcess    bool                   `json:"agents_in_process"`
	CPUPer1000   float64                `json:"cpu_seconds_per_1000_ops"` // of this process
	MaxResidentM float64                `json:"max_resident_mib"`         // likewise
	// Of all agents, where they are processes of their own and say so, and of the one that has most.
	AgentsCPUPer1000   float64    `json:"agents_cpu_seconds_per_1000_ops,omitempty"`
	AgentsMaxResidentM float64    `json:"agents_max_resident_mib,omitempty"`
	Check              *judgement `json:"check,omitempty"`
}

// benchSite is what a site's clients found.
type benchSite struct {
	Name       string          `json:"site"`
	Reads      figures         `json:"reads"`
	Writes     figures         `json:"writes"`
	QuorumRTT  client.Duration `json:"quorum_rtt_ms"`
	LongestGap client.Duration `json:"longest_gap_ms"` // between two operations that succeeded
}

// benchErrors are errors of one kind.
type benchErrors struct {
	Count  int    `json:"count"`
	Sample string `json:"sample"` // one of them
}

// consumption is what the process has used.
type consumption struct {
	cpu      time.Duration
	resident float64 // MiB, the most so far
}

func (u consumption) sub(v consumption) consumption { return consumption{u.cpu - v.cpu, u.resident} }

func (r *benchReport) use(u consumption, ops int) {
	r.MaxResidentM = u.resident
	if ops > 0 {
		r.CPUPer1000 = u.cpu.Seconds() / float64(ops) * 1000
	}
}

func (r *benchReport) useAgents(sites []*loadSite, ops int) {
	var cpu time.Duration
	for _, s := range sites {
		cpu += s.cpu
		r.AgentsMaxResidentM = max(r.AgentsMaxResidentM, float64(s.resident)/(1<<20))
	}
	if ops > 0 {
		r.AgentsCPUPer1000 = cpu.Seconds() / float64(ops) * 1000
	}
}

func (r *benchReport) print(w io.Writer) {
	fmt.Fprintf(w, "%-6s %-5s %9s %8s %8s %8s %8s %8s %7s %8s\n", "SITE", "OP", "OPS/S", "P50", "P95", "P99", "P99.9", "MAX", "ONE RT", "QUORUM")
	line := func(site, op string, f figures, quorum client.Duration) {
		if f.Ops == 0 {
			return
		}
		q := "-"
		if quorum > 0 {
			q = ms(quorum)
		}
		fmt.Fprintf(w, "%-6s %-5s %9.0f %8s %8s %8s %8s %8s %6.1f%% %8s\n", site, op, f.PerSecond, ms(f.P50), ms(f.P95), ms(f.P99), ms(f.P999), ms(f.Max), 100*f.OneRound, q)
	}
	for _, s := range r.Sites {
		line(s.Name, "get", s.Reads, s.QuorumRTT)
		line(s.Name, "set", s.Writes, s.QuorumRTT)
	}
	if len(r.Sites) > 1 {
		line("all", "get", r.Reads, 0)
		line("all", "set", r.Writes, 0)
	}
	fmt.Fprintf(w, "\n%d clients, %.1f s, %d operations; times in milliseconds\n", r.Clients, r.Seconds, r.All.Ops)
	whose := "this process, without the agents"
	if r.InProcess {
		whose = "this process, clients and all agents"
	}
	fmt.Fprintf(w, "cpu %.3f s a 1,000 operations, memory %.0f MiB at most (%s)\n", r.CPUPer1000, r.MaxResidentM, whose)
	if r.AgentsCPUPer1000 > 0 {
		fmt.Fprintf(w, "cpu %.3f s a 1,000 operations, memory %.0f MiB at most each (the agents)\n", r.AgentsCPUPer1000, r.AgentsMaxResidentM)
	}
	for _, s := range r.Sites {
		fmt.Fprintf(w, "longest gap between two successes at %s: %s ms\n", s.Name, ms(s.LongestGap))
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(w, "errors: %d %s, for instance: %s\n", r.Errors[kind].Count, kind, r.Errors[kind].Sample)
	}
	if r.Check != nil {
		fmt.Fprintln(w, r.Check)
	}
}

func ms(d client.Duration) string {
	return fmt.Sprintf("%.2f", float64(time.Duration(d).Microseconds())/1000)
}
