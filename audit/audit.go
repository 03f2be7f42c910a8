package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/pipeline/coverage"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	"github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
)

// Raw is what an audit needs of the raw store, which it opens for reading only.
type Raw interface {
	Partitions(ctx context.Context) ([]record.Partition, error)
	Head(ctx context.Context, p record.Partition) (sinks.Head, error)
	Read(ctx context.Context, p record.Partition, s checkpoint.Span, f func(*record.Batch) error) error
	Written(ctx context.Context, p record.Partition, offset int64) (time.Time, bool, error)
	Segments(ctx context.Context, p record.Partition) ([]raw.Segment, error)
}

// Broker says what the source has now.
type Broker interface {
	// Ranges are the starts and ends of the logs of all partitions that the stream would read.
	Ranges(ctx context.Context) (map[record.Partition]checkpoint.Span, error)
}

// Sink is one sink of the stream.
type Sink struct {
	Name     string
	Deadline time.Duration
	Sink     sinks.Sink
	Cuts     sinks.Cuts                  // nil where it has none
	Ready    func(context.Context) error // makes the sink able to answer; nil where it always is
}

// ErrNotBegun is what a Sink's Ready wraps where the sink has never written anything, and a node will make what is missing.
var ErrNotBegun = errors.New("the sink has not begun")

// Options of an audit of one stream.
type Options struct {
	Stream string
	File   string // the configuration, for commands that the report names
	Raw    Raw
	Bucket store.Bucket // raw's: the trail, the copies and the marks lie there
	Broker Broker
	Sinks  []Sink

	Full       bool // read all segments again, whatever was read before
	Rows       bool // count the rows in the sinks, which reads raw whole
	AcceptGaps bool
	Window     int64 // offsets among which a row that is missing is looked for

	Now      func() time.Time
	Progress func(what string) // told now and then what is being done
}

// auditor is one audit under way.
type auditor struct {
	Options
	facts  Facts
	trail  *trail.Index
	notes  *duplicates.Reader
	copies []coverage.Set // by sink

	standing *standing // nil where raw is not read whole, or nothing was dropped
}

// Run gathers the facts and judges them. An error means that raw could not be looked at; everything else is in the report.
func Run(ctx context.Context, o Options) (Report, error) {
	f, err := Gather(ctx, o)
	if err != nil {
		return Report{}, err
	}
	return Judge(f, o.AcceptGaps), nil
}

// Gather asks the source, raw, the sinks and the trail, in the order that makes the comparison valid while a node goes on working:
// raw's heads first, up to which all is judged; then the sinks; then the trail and the notes of duplicates, which are always ahead of
// coverage; and raw's heads again, which no sink can be ahead of.
func Gather(ctx context.Context, o Options) (Facts, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Window <= 0 {
		o.Window = 100_000
	}
	a := &auditor{Options: o}
	a.facts = Facts{Stream: o.Stream, File: o.File, At: o.Now()}
	a.trail, a.notes = trail.NewIndex(o.Bucket, o.Stream), duplicates.NewReader(o.Bucket, o.Stream)
	a.whoStands(ctx)
	if err := a.listRaw(ctx); err != nil {
		return a.facts, err
	}
	a.askBroker(ctx)
	a.askSinks(ctx)
	for i := range a.facts.Partitions {
		if err := a.holdings(ctx, &a.facts.Partitions[i]); err != nil {
			return a.facts, err
		}
	}
	a.readTrail(ctx)
	a.countNotes(ctx)
	for i := range a.facts.Partitions {
		if err := a.finish(ctx, &a.facts.Partitions[i]); err != nil {
			return a.facts, err
		}
	}
	a.findOrphans()
	return a.facts, nil
}

// whoStands reads who stands for what was dropped, where all of raw will be read. What keeps it from that is said when the notes are counted.
func (a *auditor) whoStands(ctx context.Context) {
	if !a.Rows && !a.Full {
		return
	}
	a.Progress("reading the notes of duplicates")
	if partitions, err := a.Raw.Partitions(ctx); err == nil {
		a.standing = gather(ctx, a.notes, partitions)
	}
}

// listRaw notes the partitions in raw and their heads.
func (a *auditor) listRaw(ctx context.Context) error {
	a.Progress("listing raw")
	partitions, err := a.Raw.Partitions(ctx)
	if errors.Is(err, avrofile.ErrDamaged) {
		a.facts.Damage = append(a.facts.Damage, err.Error())
	} else if err != nil {
		return fmt.Errorf("listing raw: %w", err)
	}
	for _, p := range partitions {
		head, err := a.Raw.Head(ctx, p)
		c := &Chain{Genesis: head.Genesis, Next: head.Next, End: head.Next}
		if errors.Is(err, avrofile.ErrDamaged) {
			c.Damage = append(c.Damage, err.Error())
		} else if err != nil {
			return err
		}
		a.facts.Partitions = append(a.facts.Partitions, PartitionFacts{Partition: p, Chain: c})
	}
	return nil
}

// partition is the entry of p, made where there is none.
func (a *auditor) partition(p record.Partition) *PartitionFacts {
	i := slices.IndexFunc(a.facts.Partitions, func(f PartitionFacts) bool { return f.Partition == p })
	if i < 0 {
		i = len(a.facts.Partitions)
		a.facts.Partitions = append(a.facts.Partitions, PartitionFacts{Partition: p})
	}
	return &a.facts.Partitions[i]
}

func (a *auditor) askBroker(ctx context.Context) {
	a.Progress("asking the source")
	ranges, err := a.Broker.Ranges(ctx)
	if err != nil {
		a.facts.Broker = err.Error()
	}
	for _, p := range slices.SortedFunc(maps.Keys(ranges), order) {
		r := ranges[p]
		a.partition(p).Log = &r
	}
}

func order(p, q record.Partition) int {
	return cmp.Or(cmp.Compare(p.Topic, q.Topic), slices.Compare(p.TopicID[:], q.TopicID[:]), cmp.Compare(p.Number, q.Number), cmp.Compare(p.Generation, q.Generation))
}

// askSinks finds out which sinks answer, and what the copies say. A partition that only a copy knows is one that raw has lost.
func (a *auditor) askSinks(ctx context.Context) {
	for _, s := range a.Sinks {
		a.Progress("asking sink " + s.Name)
		f := SinkFacts{Name: s.Name, Files: s.Cuts != nil}
		if s.Ready != nil {
			f.fault(s.Ready(ctx))
		}
		set, err := coverage.Load(ctx, a.Bucket, a.Stream, s.Name)
		if err != nil {
			f.Copies = err.Error()
		}
		a.facts.Sinks = append(a.facts.Sinks, f)
		a.copies = append(a.copies, set)
		for _, p := range slices.SortedFunc(maps.Keys(set), order) {
			a.partition(p)
		}
	}
	slices.SortStableFunc(a.facts.Partitions, func(x, y PartitionFacts) int { return order(x.Partition, y.Partition) })
}

// fault notes why a sink cannot be asked. Damage beside raw, of its cuts say, is no absence: it does not pass with time.
func (f *SinkFacts) fault(err error) {
	switch {
	case err == nil || f.Away != "" || f.Refuse != "":
	case errors.Is(err, ErrNotBegun):
		f.Fresh = reason(err)
	case sinks.KindOf(err) == sinks.Blocked, errors.Is(err, avrofile.ErrDamaged):
		f.Refuse = reason(err)
	default:
		f.Away = reason(err)
	}
}

func reason(err error) string {
	var fault *sinks.Error
	if errors.As(err, &fault) {
		return fault.Reason
	}
	return err.Error()
}

// holdings asks each sink what it covers of a partition.
func (a *auditor) holdings(ctx context.Context, f *PartitionFacts) error {
	f.Sinks = make([]Holding, len(a.Sinks))
	for i := range a.Sinks {
		s, h := &a.facts.Sinks[i], &f.Sinks[i]
		h.Young, h.Copies = Never, a.copies[i][f.Partition]
		if s.Away == "" && s.Refuse == "" && s.Fresh == "" {
			set, err := a.covered(ctx, &a.Sinks[i], f)
			h.Coverage = set
			s.fault(err)
		}
		if s.Away != "" || s.Refuse != "" {
			h.Coverage = h.Copies
		}
	}
	if f.Chain == nil {
		return nil
	}
	head, err := a.Raw.Head(ctx, f.Partition)
	if err == nil {
		f.Chain.End = max(f.Chain.Next, head.Next)
	} else if !errors.Is(err, avrofile.ErrDamaged) {
		return err
	}
	return nil
}

func (a *auditor) covered(ctx context.Context, s *Sink, f *PartitionFacts) (checkpoint.SpanSet, error) {
	set, err := s.Sink.Coverage(ctx, f.Partition)
	if err != nil || s.Cuts == nil || f.Chain == nil {
		return set, err
	}
	empties, err := s.Cuts.Empties(ctx, f.Partition)
	set.Union(empties)
	return set, err
}

func (a *auditor) readTrail(ctx context.Context) {
	a.Progress("reading the trail")
	if err := a.trail.Load(ctx); err != nil {
		a.facts.Trail = err.Error()
		if errors.Is(err, avrofile.ErrDamaged) {
			a.facts.Damage = append(a.facts.Damage, err.Error())
		}
	}
}

// finish reads the chain and whatever needs the trail to be known.
func (a *auditor) finish(ctx context.Context, f *PartitionFacts) error {
	for i, s := range a.Sinks {
		f.Sinks[i].Trail = a.trail.Spans(f.Partition, s.Name)
		for reason, set := range a.trail.Spans(f.Partition, "") {
			both := f.Sinks[i].Trail[reason]
			both.Union(set)
			f.Sinks[i].Trail[reason] = both
		}
	}
	if f.Chain == nil {
		return nil
	}
	a.readNotes(ctx, f)
	counters := a.counters(f)
	if err := a.readChain(ctx, f, counters); err != nil {
		return err
	}
	for i := range a.Sinks {
		if err := a.young(ctx, f, &f.Sinks[i], a.Sinks[i].Deadline); err != nil {
			return err
		}
		if counters != nil {
			a.countRows(ctx, f, i, counters[i])
		}
	}
	return nil
}
