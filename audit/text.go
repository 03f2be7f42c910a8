package audit

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/stream-arrow/twgd/checkpoint"
)

// WriteText writes the report for people.
func (r *Report) WriteText(to io.Writer) error {
	words := map[Verdict]string{Accounted: "every offset is accounted for", Unaccounted: "NOT everything is accounted for", Damaged: "DAMAGED"}
	fmt.Fprintf(to, "stream %s: %s\n", r.Stream, words[r.Verdict])
	w := tabwriter.NewWriter(to, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\n  partition\tbroker\traw\tcommits\trecords\tgaps\tunread")
	for i := range r.Partitions {
		p := &r.Partitions[i]
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", p.name(), span(p.Broker), p.Raw.columns(), number(p.Unread))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	r.writeSinks(w)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(to, "\nnote: %s\n", n)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(to, "\n%s: %s\n", f.Kind, f.Text)
	}
	return nil
}

func (r *Report) writeSinks(w io.Writer) {
	begun := false
	for i := range r.Partitions {
		for _, s := range r.Partitions[i].Sinks {
			if !begun {
				fmt.Fprintln(w, "\n  partition\tsink\tcovered\tleft out\tpending\tunaccounted\trows\tcoverage by")
				begun = true
			}
			fmt.Fprintf(w, "  %s\t%s\t%d\t%s\t%d\t%d\t%s\t%s\n", r.Partitions[i].name(), s.Name, s.Covered, reasons(s.LeftOut), s.Pending, s.Unaccounted, s.Rows, s.From)
		}
	}
}

func (p *PartitionReport) name() string {
	name := fmt.Sprintf("%s/%d", p.Topic, p.Partition)
	if p.Generation > 0 {
		name += fmt.Sprintf(".%d", p.Generation)
	}
	return name
}

func (r *RawReport) columns() string {
	if r == nil {
		return "none\t\t\t"
	}
	var lost int64
	for _, g := range r.Gaps {
		lost += g.Len()
	}
	gaps := "none"
	if lost > 0 {
		gaps = fmt.Sprintf("%d (%d offsets)", len(r.Gaps), lost)
	}
	return fmt.Sprintf("[%d, %d)\t%d\t%d\t%s", r.Genesis, r.Next, r.Commits, r.Records, gaps)
}

// String is the cell of a table: what was found of what should be there.
func (r *RowsReport) String() string {
	if r == nil {
		return "not counted"
	}
	return fmt.Sprintf("%d of %d", r.Rows, r.Records-r.Rejected-r.Dropped)
}

func reasons(counts map[string]int64) string {
	if len(counts) == 0 {
		return "none"
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(parts, ", ")
}

func span(s *checkpoint.Span) string {
	if s == nil {
		return "not known"
	}
	return s.String()
}

func number(n *int64) string {
	if n == nil {
		return "not known"
	}
	return fmt.Sprint(*n)
}
