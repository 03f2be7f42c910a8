package audit

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

// Verdict is the whole of a report in a word.
type Verdict string

// The verdicts, the worst of the findings' first.
const (
	Damaged     Verdict = "damaged"
	Unaccounted Verdict = "unaccounted"
	Accounted   Verdict = "accounted"
)

// Report is what an audit found.
type Report struct {
	Stream     string            `json:"stream"`
	At         string            `json:"at"`
	Verdict    Verdict           `json:"verdict"`
	Partitions []PartitionReport `json:"partitions"`
	Findings   []Finding         `json:"findings"`
	Notes      []string          `json:"notes"` // what to know when reading the numbers; none of it is a fault
}

// Finding is one thing that keeps a report from saying that all is accounted for.
type Finding struct {
	Kind      string           `json:"kind"` // damage, gap, log, ahead, lost, missing, rows_missing, rows_extra, uncounted, twin, orphan, sink, trail, notes
	Topic     string           `json:"topic,omitempty"`
	Partition *int32           `json:"partition,omitempty"`
	Sink      string           `json:"sink,omitempty"`
	Span      *checkpoint.Span `json:"span,omitempty"`
	Text      string           `json:"text"`
}

// PartitionReport is one partition in numbers. What is not known is null.
type PartitionReport struct {
	Topic      string           `json:"topic"`
	TopicID    string           `json:"topic_id"`
	Partition  int32            `json:"partition"`
	Generation int32            `json:"generation"`
	Broker     *checkpoint.Span `json:"broker"` // the log's start and end
	Raw        *RawReport       `json:"raw"`
	Unread     *int64           `json:"unread"` // offsets that the source has and raw has not yet
	Sinks      []SinkReport     `json:"sinks"`
}

// RawReport is the chain in numbers.
type RawReport struct {
	Genesis    int64 `json:"genesis"`
	Next       int64 `json:"next"`
	Commits    int64 `json:"commits"`
	Records    int64 `json:"records"`
	Contiguous bool  `json:"contiguous"`
	Gaps       []Gap `json:"gaps"`
}

// SinkReport is a sink's part of a partition, in offsets.
type SinkReport struct {
	Name        string            `json:"name"`
	From        string            `json:"from"` // sink, or copies where it is away
	Covered     int64             `json:"covered"`
	LeftOut     map[string]int64  `json:"left_out"` // by reason, of the trail, and of the notes: duplicate
	Pending     int64             `json:"pending"`
	Unaccounted int64             `json:"unaccounted"`
	Missing     []checkpoint.Span `json:"missing"` // the spans that are unaccounted for
	Rows        *RowsReport       `json:"rows"`
}

// RowsReport compares rows with records over all that was counted.
type RowsReport struct {
	Rows     int64 `json:"rows"`
	Records  int64 `json:"records"`
	Rejected int64 `json:"rejected"`
	Dropped  int64 `json:"dropped"` // as duplicates
}

// Judge draws the conclusions. acceptGaps lets gaps pass that raw has recorded, and no others: somebody knows of them.
func Judge(f Facts, acceptGaps bool) Report {
	j := &judge{facts: f, acceptGaps: acceptGaps}
	j.report = Report{Stream: f.Stream, At: f.At.UTC().Format("2006-01-02T15:04:05.000Z07:00"), Partitions: []PartitionReport{},
		Findings: []Finding{}, Notes: []string{}}
	j.whole()
	for i := range f.Partitions {
		j.partition(&f.Partitions[i])
	}
	j.report.Verdict = j.verdict()
	return j.report
}

type judge struct {
	facts      Facts
	acceptGaps bool
	report     Report
}

// whole looks at what belongs to no partition.
func (j *judge) whole() {
	for _, d := range j.facts.Damage {
		j.report.Findings = append(j.report.Findings, Finding{Kind: "damage", Text: d})
	}
	if j.facts.Broker != "" {
		j.note("the source was not compared: %s", j.facts.Broker)
	}
	if j.facts.Trail != "" {
		j.report.Findings = append(j.report.Findings, Finding{Kind: "trail", Text: "the trail cannot be read, so that what it names counts as missing: " + j.facts.Trail})
	}
	if j.facts.Notes != "" {
		j.report.Findings = append(j.report.Findings, Finding{Kind: "notes", Text: "the notes of dropped duplicates cannot be read, so that they are not counted, and what they name counts as missing: " + j.facts.Notes})
	}
	for _, s := range j.facts.Sinks {
		if s.Away != "" {
			j.note("sink %s does not answer, its coverage is that of the copies beside raw: %s", s.Name, s.Away)
		}
		if s.Fresh != "" {
			j.note("sink %s has not begun, the node makes what it needs: %s", s.Name, s.Fresh)
		}
		if s.Copies != "" {
			j.note("the copies of what sink %s covers cannot be read: %s", s.Name, s.Copies)
		}
		if s.Refuse != "" {
			j.report.Findings = append(j.report.Findings, Finding{Kind: "sink", Sink: s.Name, Text: "the sink answers, but cannot be used: " + s.Refuse})
		}
	}
}

func (j *judge) note(format string, args ...any) {
	j.report.Notes = append(j.report.Notes, fmt.Sprintf(format, args...))
}

func (j *judge) found(p record.Partition, kind, sink string, s *checkpoint.Span, format string, args ...any) {
	n := p.Number
	j.report.Findings = append(j.report.Findings, Finding{kind, p.Topic, &n, sink, s, fmt.Sprintf(format, args...)})
}

func (j *judge) partition(f *PartitionFacts) {
	p := f.Partition
	out := PartitionReport{Topic: p.Topic, TopicID: hex.EncodeToString(p.TopicID[:]), Partition: p.Number, Generation: p.Generation,
		Broker: f.Log, Sinks: []SinkReport{}}
	within := checkpoint.Span{}
	end := int64(0)
	if c := f.Chain; c != nil {
		within, end = checkpoint.Span{From: c.Genesis, To: c.Next}, c.End
		out.Raw = j.chain(p, c)
	}
	out.Unread = j.log(f, within)
	j.orphans(f, within)
	for i := range f.Sinks {
		out.Sinks = append(out.Sinks, j.sink(f, j.facts.Sinks[i], &f.Sinks[i], within, end))
	}
	j.report.Partitions = append(j.report.Partitions, out)
}

// chain looks at raw alone.
func (j *judge) chain(p record.Partition, c *Chain) *RawReport {
	for _, d := range c.Damage {
		j.found(p, "damage", "", nil, "raw of %v is damaged: %s", p, d)
	}
	for _, g := range c.Gaps {
		if j.acceptGaps {
			j.note("%v: the gap %v is accepted: %s", p, g.Span, g.Reason)
		} else {
			j.found(p, "gap", "", &g.Span, "%d offsets %v of %v were lost before raw had them: %s", g.Len(), g.Span, p, g.Reason)
		}
	}
	gaps := c.Gaps
	if gaps == nil {
		gaps = []Gap{}
	}
	return &RawReport{c.Genesis, c.Next, c.Commits, c.Records, len(c.Damage) == 0, gaps}
}

// log compares the source's log with raw, and counts what raw has still to take.
func (j *judge) log(f *PartitionFacts, raw checkpoint.Span) *int64 {
	if f.Log == nil {
		return nil
	}
	unread := max(0, f.Log.To-max(raw.To, f.Log.From))
	if f.Chain == nil {
		return &unread
	}
	lost := checkpoint.Span{From: raw.To, To: f.Log.From}
	switch {
	case !lost.Empty(): // nobody has decided on it: only what is recorded can be accepted
		j.found(f.Partition, "gap", "", &lost, "%d offsets %v of %v are gone from the source, and raw has neither got them nor recorded their loss", lost.Len(), lost, f.Partition)
	case f.Log.To < raw.To:
		beyond := checkpoint.Span{From: f.Log.To, To: raw.To}
		j.found(f.Partition, "log", "", &beyond, "the source's log of %v ends at %d, below raw's head %d: it is not the log that raw was filled from, has been cut, "+
			"or was skipped too far; what it takes up to %d will not be read", f.Partition, f.Log.To, raw.To, raw.To)
	}
	return &unread
}

// sink compares one sink with raw. end is raw's head after the sink was asked.
func (j *judge) sink(f *PartitionFacts, s SinkFacts, h *Holding, within checkpoint.Span, end int64) SinkReport {
	p := f.Partition
	out := SinkReport{Name: s.Name, From: "sink", LeftOut: map[string]int64{}, Missing: []checkpoint.Span{}}
	if s.Away != "" || s.Refuse != "" {
		out.From = "copies"
	}
	ahead := h.Coverage.Clone()
	ahead.Remove(checkpoint.Span{From: within.From, To: end})
	for _, a := range ahead.Spans() {
		j.found(p, "ahead", s.Name, &a, "sink %s holds %v of %v, which raw does not: a part of raw is gone", s.Name, a, p)
	}
	rest := h.Coverage.Within(within)
	out.Covered = rest.Len()
	for reason, set := range h.Trail {
		if named := set.Within(within); named.Len() > 0 {
			out.LeftOut[reason] = named.Len()
			rest.Union(named)
		}
	}
	if named := min(f.Dropped, within.Len()); named > 0 { // covered all the same, so that they excuse nothing
		out.LeftOut["duplicate"] += named
	}
	j.missing(p, s, h, rest.Missing(within), &out)
	j.twins(p, s, h.Twins.Within(within), &out)
	j.rows(p, s, h, &out)
	return out
}

// missing tells what was there once, what is pending, and what is neither.
func (j *judge) missing(p record.Partition, s SinkFacts, h *Holding, missing []checkpoint.Span, out *SinkReport) {
	for _, m := range missing {
		lost := h.Copies.Within(m)
		for _, l := range lost.Spans() {
			out.unaccounted(l)
			j.found(p, "lost", s.Name, &l, "sink %s no longer holds %v of %v, which it held before; with the node running this writes it again:\n%s",
				s.Name, l, p, j.remedy(p, s.Name, l))
		}
		for _, n := range lost.Missing(m) {
			old := checkpoint.Span{From: n.From, To: min(n.To, h.Young)}
			out.Pending += n.Len() - old.Len()
			if !old.Empty() {
				out.unaccounted(old)
				j.found(p, "missing", s.Name, &old, "sink %s has not got %v of %v, %d offsets that are older than its deadline", s.Name, old, p, old.Len())
			}
		}
	}
}

// firstTwins is how many offsets a finding names of the twins of a partition.
const firstTwins = 5

// twins tells which content the sink lacks because it was dropped for the sake of a record that the sink then rejected: once, with one
// command, however many they are and wherever they lie.
func (j *judge) twins(p record.Partition, s SinkFacts, twins checkpoint.SpanSet, out *SinkReport) {
	spans := twins.Spans()
	if len(spans) == 0 {
		return
	}
	for _, t := range spans {
		out.unaccounted(t)
	}
	whole := checkpoint.Span{From: spans[0].From, To: spans[len(spans)-1].To}
	what := fmt.Sprintf("sink %s was not given %d records of %v (%s), duplicates of records that it has rejected and has not got", s.Name, twins.Len(), p, firstOf(twins))
	if s.Files {
		j.found(p, "twin", s.Name, &whole, "%s; the files that cover them are written, and nothing can be added to those", what)
		return
	}
	j.found(p, "twin", s.Name, &whole, "%s; with the node running this gives it these, of which it rejects again what it does not take:\n%s", what, j.remedy(p, s.Name, whole))
}

// firstOf names the first offsets of a set.
func firstOf(set checkpoint.SpanSet) string {
	var first []string
	for _, s := range set.Spans() {
		for o := s.From; o < s.To && len(first) <= firstTwins; o++ {
			first = append(first, strconv.FormatInt(o, 10))
		}
	}
	if len(first) > firstTwins {
		first[firstTwins] = "…"
	}
	return "offsets " + strings.Join(first, ", ")
}

// orphans tells what was dropped for the sake of records that nobody has any more: its content is in no sink that left it out.
func (j *judge) orphans(f *PartitionFacts, within checkpoint.Span) {
	set := f.Orphans.Within(within)
	for _, o := range set.Spans() {
		j.found(f.Partition, "orphan", "", &o, "%v of %v were dropped as duplicates, and raw has no record that stands for them: a part of raw is gone, or was read anew beside its notes. "+
			"No sink that left them out has their content; with the notes of this partition, %s/_duplicates/%s, moved away, tables are given it by:\n%s",
			o, f.Partition, j.facts.Stream, f.Partition.Path(), j.remedy(f.Partition, "SINK", o))
	}
}

// remedy is the command that replays a span into a sink, ready to paste.
func (j *judge) remedy(p record.Partition, sink string, s checkpoint.Span) string {
	return fmt.Sprintf("  twgd recover -c %s --stream %s --sink %s --topic %s --partition %d --from %d --to %d",
		cmp.Or(j.facts.File, "FILE"), j.facts.Stream, sink, p.Topic, p.Number, s.From, s.To)
}

func (s *SinkReport) unaccounted(m checkpoint.Span) {
	s.Unaccounted += m.Len()
	s.Missing = append(s.Missing, m)
}

// rows compares what was counted with raw.
func (j *judge) rows(p record.Partition, s SinkFacts, h *Holding, out *SinkReport) {
	if h.Uncount != "" {
		j.found(p, "uncounted", s.Name, nil, "the rows of %v in sink %s could not be counted: %s", p, s.Name, h.Uncount)
		return
	}
	if h.Rows == nil {
		return
	}
	out.Rows = &RowsReport{}
	var present int64 // although they were noted as dropped, or rejected once
	for _, r := range h.Rows {
		out.Rows.add(r)
		if r.Dropped > 0 {
			present += max(0, min(r.Rows, r.Records)-r.needed())
		}
		if n := r.missing(); n > 0 {
			j.found(p, "rows_missing", s.Name, &r.Span, "sink %s has %d rows too few in %v of %v: %d, where raw has %d records, of which %d were rejected and %d dropped as duplicates; "+
				"with the node running this writes those again that a table has lost:\n%s", s.Name, n, r.Span, p, r.Rows, r.Records, r.Rejected, r.Dropped, j.remedy(p, s.Name, r.Span))
		}
		if n := r.extra(); n > 0 {
			j.found(p, "rows_extra", s.Name, &r.Span, "sink %s has %d rows too many in %v of %v: %d, where raw has %d records", s.Name, n, r.Span, p, r.Rows, r.Records)
		}
	}
	if present > 0 {
		j.note("sink %s has %d rows of %v that were noted as dropped or rejected, and passed all the same: their batch passed whole, or a later attempt was taken", s.Name, present, p)
	}
}

func (r *RowsReport) add(s Rows) {
	r.Rows, r.Records, r.Rejected, r.Dropped = r.Rows+s.Rows, r.Records+s.Records, r.Rejected+s.Rejected, r.Dropped+s.Dropped
}

func (j *judge) verdict() Verdict {
	v := Accounted
	for _, f := range j.report.Findings {
		if f.Kind == "damage" {
			return Damaged
		}
		v = Unaccounted
	}
	return v
}
