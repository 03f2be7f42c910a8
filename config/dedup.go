package config

import (
	"fmt"
	"strings"

	"github.com/stream-arrow/twgd/unit"
)

// Contract is what a stream's records are known to keep.
type Contract struct {
	Unique bool `yaml:"unique" default:"false" doc:"No two distinct events have equal content, as dedup.on compares it. Only who knows the producers can say so; dropping needs it."`
}

// Dedup says which records of a stream count as repeated, and what becomes of them.
type Dedup struct {
	Mode       string        `yaml:"mode" default:"none" enum:"none|measure|drop" doc:"measure counts records whose content another record had within the window; drop also leaves them out of the sinks. Raw has every record in any case."`
	Window     unit.Duration `yaml:"window" default:"5m" min:"1s" max:"1d" doc:"How long a content is remembered: as long as the producers go on trying, not more."`
	On         string        `yaml:"on" default:"value" enum:"value|fields" doc:"What is compared: the whole value, byte by byte, or fields of a JSON value."`
	Fields     []string      `yaml:"fields" form:"names of members with dots between them, such as pay.sum" pattern:"^[^.$\\[\\]][^.\\[\\]]*(\\.[^.\\[\\]]+)*$" example:"#[order_id, meta.attempt]" doc:"The fields, as dotted paths, with on: fields. A record without one of them is never a duplicate."`
	Timeout    unit.Duration `yaml:"timeout" default:"250ms" min:"10ms" max:"2s" doc:"How long the cluster may take to say what was seen; then a batch passes whole. At most half of window. Intake does not wait for it, sinks do."`
	MaxEntries int           `yaml:"max_entries" default:"5000000" min:"1000" max:"500000000" doc:"How many contents are remembered, about 33 bytes each on every node with a replica; beyond it the oldest are forgotten early."`
}

// Active reports whether records are compared at all.
func (d Dedup) Active() bool { return d.Mode == "measure" || d.Mode == "drop" }

// checkDedup finds what the keys say together.
func (d *decoder) checkDedup(cfg *Config, s *Stream, path string) {
	x := s.Dedup
	if x.Mode == "drop" && !s.Contract.Unique && !d.bad[path+".contract"] && !d.bad[path+".contract.unique"] {
		d.problem(path+".dedup.mode", Problem{Found: show(x.Mode), Text: "dropping is for streams whose producers never send two distinct events with equal content: " +
			"say so with contract.unique: true, or run mode: measure first, which counts and drops nothing"})
	}
	if x.Mode == "drop" && cfg.Cluster.Size == 0 {
		d.problem(path+".dedup.mode", Problem{Found: show(x.Mode), Text: "what was seen is remembered by the cluster, and cluster.size is 0: a size of 1 is enough for one node"})
	}
	if x.Active() && x.Timeout > x.Window/2 && !d.bad[path+".dedup.window"] && !d.bad[path+".dedup.timeout"] {
		d.problem(path+".dedup.timeout", Problem{Found: d.foundAt(path+".dedup.timeout", x.Timeout.String()),
			Text: fmt.Sprintf("a question may be repeated for so long, and what it claimed must not be forgotten meanwhile: at most half of window (%s)", x.Window)})
	}
	d.checkDedupFields(x, path+".dedup")
}

func (d *decoder) checkDedupFields(x Dedup, path string) {
	switch {
	case x.On == "fields" && len(x.Fields) == 0:
		d.problem(path+".fields", Problem{Text: "no field is named: with on: fields this key says which are compared, such as [order_id]"})
	case x.On == "value" && len(x.Fields) > 0:
		d.problem(path+".on", Problem{Found: show(x.On), Text: "fields are named, but the whole value would be compared: add on: fields"})
	}
	for i, f := range x.Fields {
		for j, g := range x.Fields[:i] {
			d.checkPair(fmt.Sprintf("%s.fields[%d]", path, i), f, fmt.Sprintf("%s.fields[%d]", path, j), g)
		}
	}
}

// checkPair finds two fields that cannot both be compared.
func (d *decoder) checkPair(at, f, first, g string) {
	line := d.place(first).line
	switch {
	case f == g:
		d.problem(at, Problem{Text: fmt.Sprintf("a field is named twice: %s, in line %d, has it too", first, line)})
	case strings.HasPrefix(f, g+"."), strings.HasPrefix(g, f+"."):
		d.problem(at, Problem{Found: show(f), Text: fmt.Sprintf("one of this and %s, in line %d, is a part of the other: a field that is compared is no object", first, line)})
	}
}
