package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// report is what a run has found.
type report struct {
	Records    int      `json:"records"`
	ValueSize  int      `json:"value_size"`
	Partitions int      `json:"partitions"`
	Runs       int      `json:"runs"`
	CPUs       int      `json:"cpus"`
	Took       float64  `json:"took_s"`
	Figures    []figure `json:"figures"`

	section string
}

// figure is one thing that was measured, once a run.
type figure struct {
	Section string    `json:"section"`
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Values  []float64 `json:"values"`
	Median  float64   `json:"median"`
	Aim     *aim      `json:"aim,omitempty"`
	Met     *bool     `json:"met,omitempty"`
}

// aim is what the median should be.
type aim struct {
	AtMost  float64 `json:"at_most,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
}

func (a *aim) met(v float64) bool {
	return (a.AtMost == 0 || v <= a.AtMost) && (a.AtLeast == 0 || v >= a.AtLeast)
}

func (a *aim) String() string {
	if a.AtMost != 0 {
		return fmt.Sprintf("<= %v", a.AtMost)
	}
	return fmt.Sprintf(">= %v", a.AtLeast)
}

// add adds a figure of the section that runs.
func (r *report) add(name, unit string, values []float64, aims ...aim) {
	f := figure{Section: r.section, Name: name, Unit: unit, Values: values, Median: median(values)}
	if len(aims) > 0 {
		met := aims[0].met(f.Median)
		f.Aim, f.Met = &aims[0], &met
	}
	r.Figures = append(r.Figures, f)
}

// table is the report for people.
func (r *report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d records, values of %d bytes, %d partitions, %d runs, %d CPUs, %.0f s in all\n", r.Records, r.ValueSize, r.Partitions, r.Runs, r.CPUs, r.Took)
	section := ""
	for _, f := range r.Figures {
		if f.Section != section {
			section = f.Section
			fmt.Fprintf(&b, "\n%-64s %12s  %-25s %s\n", strings.ToUpper(section), "median", "spread", "aim")
		}
		fmt.Fprintf(&b, "%-64s %12s  %-25s %s\n", f.Name+", "+f.Unit, number(f.Median), f.spread(), f.verdict())
	}
	return b.String()
}

func (f *figure) spread() string {
	if len(f.Values) < 2 {
		return ""
	}
	return number(slices.Min(f.Values)) + " – " + number(slices.Max(f.Values))
}

func (f *figure) verdict() string {
	switch {
	case f.Aim == nil:
		return ""
	case *f.Met:
		return f.Aim.String() + " ok"
	}
	return f.Aim.String() + " SHORT"
}

// number writes v with three digits or more.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < 1e15, a >= 100:
		return thousands(int64(math.Round(v)))
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// median of values, which stay in their order.
func median(values []float64) float64 { return percentile(values, 50) }

// percentile by linear interpolation between the two nearest; 0 where there are no values.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := p / 100 * float64(len(sorted)-1)
	lo := int(at)
	hi := min(lo+1, len(sorted)-1)
	return sorted[lo] + (at-float64(lo))*(sorted[hi]-sorted[lo])
}

// each combines values run by run.
func each(f func(run int) float64, runs int) []float64 {
	out := make([]float64, runs)
	for i := range out {
		out[i] = f(i)
	}
	return out
}
