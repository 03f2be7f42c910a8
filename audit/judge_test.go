package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
)

func set(spans ...int64) checkpoint.SpanSet {
	var out checkpoint.SpanSet
	for i := 0; i < len(spans); i += 2 {
		out.Add(checkpoint.Span{From: spans[i], To: spans[i+1]})
	}
	return out
}

func at(from, to int64) *checkpoint.Span { return &checkpoint.Span{From: from, To: to} }

// whole is a stream of one partition, raw [0, 100), all of it in one sink; change makes it another.
func whole(change func(*Facts, *PartitionFacts, *Holding)) Facts {
	f := Facts{Stream: "orders", Sinks: []SinkFacts{{Name: "lake"}}, Partitions: []PartitionFacts{{
		Partition: record.Partition{Topic: "orders"}, Log: at(0, 100), Chain: &Chain{Next: 100, End: 100, Commits: 4, Records: 90},
		Sinks: []Holding{{Coverage: set(0, 100), Copies: set(0, 80), Young: Never}},
	}}}
	if change != nil {
		change(&f, &f.Partitions[0], &f.Partitions[0].Sinks[0])
	}
	return f
}

// inShort is a verdict with the kinds and spans of the findings.
func inShort(r Report) string {
	var b strings.Builder
	b.WriteString(string(r.Verdict))
	for _, f := range r.Findings {
		b.WriteString("; " + f.Kind)
		if f.Span != nil {
			fmt.Fprintf(&b, " %v", *f.Span)
		}
	}
	return b.String()
}

func TestJudge(t *testing.T) {
	f := func(name string, change func(*Facts, *PartitionFacts, *Holding), want string) {
		t.Helper()
		if got := inShort(Judge(whole(change), false)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	f("all there", nil, "accounted")
	f("nothing was ever written", func(_ *Facts, p *PartitionFacts, h *Holding) { *p.Chain, h.Coverage, h.Copies = Chain{}, set(), set() }, "accounted")
	f("raw lags the source", func(_ *Facts, p *PartitionFacts, _ *Holding) { p.Log = at(0, 500) }, "accounted")
	f("the source was not asked", func(f *Facts, p *PartitionFacts, _ *Holding) { f.Broker, p.Log = "away", nil }, "accounted")
	f("the source has a partition that raw has not begun", func(_ *Facts, p *PartitionFacts, h *Holding) {
		p.Chain, h.Coverage, h.Copies = nil, set(), set()
	}, "accounted")

	f("a file is gone that a copy knew", func(_ *Facts, _ *PartitionFacts, h *Holding) { h.Coverage = set(0, 40, 60, 100); h.Young = 0 }, "unaccounted; lost [40, 60)")
	f("half of it is gone, half was never known", func(_ *Facts, _ *PartitionFacts, h *Holding) { h.Coverage = set(0, 70); h.Young = 90 },
		"unaccounted; lost [70, 80); missing [80, 90)")
	f("what is young is pending", func(_ *Facts, _ *PartitionFacts, h *Holding) { h.Coverage = set(0, 80); h.Young = 80 }, "accounted")
	f("what is old is not", func(_ *Facts, _ *PartitionFacts, h *Holding) { h.Coverage = set(0, 80) }, "unaccounted; missing [80, 100)")
	f("D32 the trail names what is left out", func(_ *Facts, _ *PartitionFacts, h *Holding) {
		h.Coverage, h.Trail = set(0, 80), map[string]checkpoint.SpanSet{"duplicate": set(80, 100)}
	}, "accounted")
	f("the trail names a part of it", func(_ *Facts, _ *PartitionFacts, h *Holding) {
		h.Coverage, h.Trail = set(0, 80), map[string]checkpoint.SpanSet{"duplicate": set(80, 99)}
	}, "unaccounted; missing [99, 100)")

	f("raw's last segment is gone", func(_ *Facts, p *PartitionFacts, _ *Holding) { p.Chain.Next, p.Chain.End = 75, 75 }, "unaccounted; ahead [75, 100)")
	f("the whole chain is gone", func(_ *Facts, p *PartitionFacts, _ *Holding) { p.Chain = nil }, "unaccounted; ahead [0, 100)")
	f("raw grew while the sinks were asked", func(_ *Facts, p *PartitionFacts, h *Holding) { h.Coverage, p.Chain.End = set(0, 120), 120 }, "accounted")
	f("raw cannot be read", func(_ *Facts, p *PartitionFacts, _ *Holding) { p.Chain.Damage = []string{"a flip"} }, "damaged; damage")
	f("raw is damaged elsewhere", func(f *Facts, _ *PartitionFacts, _ *Holding) { f.Damage = []string{"no genesis"} }, "damaged; damage")
	f("D25 a gap is a loss", func(_ *Facts, p *PartitionFacts, _ *Holding) { p.Chain.Gaps = []Gap{{*at(10, 20), "retention"}} }, "unaccounted; gap [10, 20)")
	f("retention has overtaken raw", func(_ *Facts, p *PartitionFacts, _ *Holding) { p.Log = at(130, 200) }, "unaccounted; gap [100, 130)")

	f("a sink that is away", func(f *Facts, _ *PartitionFacts, _ *Holding) { f.Sinks[0].Away = "no route" }, "accounted")
	f("a sink whose table is missing", func(f *Facts, _ *PartitionFacts, _ *Holding) { f.Sinks[0].Refuse = "table missing" }, "unaccounted; sink")
	f("a sink that has not begun", func(f *Facts, p *PartitionFacts, h *Holding) {
		f.Sinks[0].Fresh, *p.Chain, h.Coverage, h.Copies = "table missing", Chain{}, set(), set()
	}, "accounted")
	f("a sink that has not begun, and raw is old", func(f *Facts, _ *PartitionFacts, h *Holding) {
		f.Sinks[0].Fresh, h.Coverage, h.Copies = "table missing", set(), set()
	}, "unaccounted; missing [0, 100)")
	f("a trail that cannot be read", func(f *Facts, _ *PartitionFacts, _ *Holding) { f.Trail = "away" }, "unaccounted; trail")

	rows := func(records, rejected, rows int64) func(*Facts, *PartitionFacts, *Holding) {
		return func(_ *Facts, _ *PartitionFacts, h *Holding) {
			h.Rows = []Rows{{*at(0, 100), records, rejected, 0, rows}}
		}
	}
	f("every row is there", rows(90, 2, 88), "accounted")
	f("a rejected record landed later", rows(90, 2, 89), "accounted")
	f("a row is gone", rows(90, 2, 87), "unaccounted; rows_missing [0, 100)")
	f("a row is there twice", rows(90, 0, 91), "unaccounted; rows_extra [0, 100)")
	dropped := func(dropped, rows int64) func(*Facts, *PartitionFacts, *Holding) {
		return func(_ *Facts, p *PartitionFacts, h *Holding) {
			p.Dropped, h.Rows = dropped, []Rows{{*at(0, 100), 90, 1, dropped, rows}}
		}
	}
	f("D32 every record is a duplicate", dropped(89, 0), "accounted")
	f("every row is there but what was dropped", dropped(20, 69), "accounted")
	f("a batch passed whole after its note", dropped(20, 79), "accounted")
	f("a row is gone beside the dropped ones", dropped(20, 68), "unaccounted; rows_missing [0, 100)")
	f("a row is there twice beside the dropped ones", dropped(20, 91), "unaccounted; rows_extra [0, 100)")
	f("what was dropped excuses no gap", func(_ *Facts, p *PartitionFacts, h *Holding) { h.Coverage, p.Dropped = set(0, 90), 10 }, "unaccounted; missing [90, 100)")
	f("a twin of a rejected record", func(_ *Facts, p *PartitionFacts, h *Holding) { p.Dropped, h.Twins = 1, set(7, 8) }, "unaccounted; twin [7, 8)")
	f("the notes cannot be read", func(f *Facts, _ *PartitionFacts, _ *Holding) { f.Notes = "away" }, "unaccounted; notes")
	f("rows could not be counted", func(_ *Facts, _ *PartitionFacts, h *Holding) { h.Uncount = "away" }, "unaccounted; uncounted")
}

func TestAcceptGaps(t *testing.T) {
	f := whole(func(_ *Facts, p *PartitionFacts, _ *Holding) {
		p.Chain.Gaps = []Gap{{*at(10, 20), "retention"}}
	})
	r := Judge(f, true)
	if r.Verdict != Accounted || len(r.Notes) != 1 {
		t.Errorf("%s with notes %q", inShort(r), r.Notes)
	}
	f.Partitions[0].Log = at(130, 200)
	if got := inShort(Judge(f, true)); got != "unaccounted; gap [100, 130)" {
		t.Errorf("a gap that is not recorded is accepted: %s", got)
	}
	f.Partitions[0].Log = at(10, 60)
	if got := inShort(Judge(f, true)); got != "unaccounted; log [60, 100)" {
		t.Errorf("raw behind the log's end is accepted: %s", got)
	}
	f.Partitions[0].Log = at(0, 100)
	f.Partitions[0].Chain.Damage = []string{"a flip"}
	if r := Judge(f, true); r.Verdict != Damaged {
		t.Errorf("accepting gaps accepts damage: %s", inShort(r))
	}
}

func TestNumbers(t *testing.T) {
	r := Judge(whole(func(_ *Facts, p *PartitionFacts, h *Holding) {
		p.Log = at(0, 130)
		h.Coverage, h.Young, h.Copies = set(0, 40, 50, 60), 90, set()
		h.Trail = map[string]checkpoint.SpanSet{"sink": set(3, 5), "oversize": set(100, 200)}
	}), false)
	p := r.Partitions[0]
	s := p.Sinks[0]
	if *p.Unread != 30 || s.Covered != 50 || s.Pending != 10 || s.Unaccounted != 40 || s.LeftOut["sink"] != 2 || len(s.LeftOut) != 1 {
		t.Errorf("unread %d, %+v", *p.Unread, s)
	}
	if fmt.Sprint(s.Missing) != "[[40, 50) [60, 90)]" {
		t.Errorf("missing %v", s.Missing)
	}
}

func TestTwinsInTheText(t *testing.T) {
	f := func(files bool, twins checkpoint.SpanSet, want, not string) {
		t.Helper()
		var b strings.Builder
		r := Judge(whole(func(f *Facts, p *PartitionFacts, h *Holding) {
			f.Sinks[0].Files, p.Dropped, h.Twins = files, 70, twins
		}), false)
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		s := r.Partitions[0].Sinks[0]
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), not) || !strings.Contains(b.String(), "duplicate 70") || s.Unaccounted != twins.Len() || s.LeftOut["duplicate"] != 70 || len(r.Findings) != 1 {
			t.Errorf("%+v\n%s", s, b.String())
		}
	}
	const remedy = "twgd recover -c FILE --stream orders --sink lake --topic orders --partition 0 --from 7 --to 8"
	f(false, set(7, 8), remedy, "nothing can be added")
	f(true, set(7, 8), "nothing can be added", remedy)
	f(false, set(7, 8), "given 1 records of", "…")
	f(false, set(7, 9, 12, 15), "given 5 records of", "…")
	f(false, set(7, 9, 12, 15), "offsets 7, 8, 12, 13, 14)", "…")
	f(false, set(7, 9, 12, 15, 40, 60), "(offsets 7, 8, 12, 13, 14, …)", "15,")
	f(false, set(7, 9, 12, 15, 40, 60), "--from 7 --to 60", "--from 12")
}

func TestNotesOnRowsThatPassedWhole(t *testing.T) {
	r := Judge(whole(func(_ *Facts, p *PartitionFacts, h *Holding) {
		p.Dropped, h.Rows = 20, []Rows{{*at(0, 50), 45, 0, 10, 40}, {*at(50, 100), 45, 0, 10, 35}}
	}), false)
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], " 5 rows") || *r.Partitions[0].Sinks[0].Rows != (RowsReport{75, 90, 0, 20}) {
		t.Errorf("%q, %+v", r.Notes, *r.Partitions[0].Sinks[0].Rows)
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	r := Judge(whole(func(_ *Facts, _ *PartitionFacts, h *Holding) {
		h.Coverage = set(0, 40, 60, 100)
		h.Rows = []Rows{{*at(0, 40), 40, 1, 0, 38}}
	}), false)
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NOT everything", "orders/0", "[0, 100)", "38 of 39", "twgd recover -c FILE --stream orders --sink lake --topic orders --partition 0 --from 0 --to 40", "--stream orders --sink lake --topic orders --partition 0 --from 40 --to 60"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, b.String())
		}
	}
}
