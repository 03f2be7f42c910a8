package pipeline

import (
	"maps"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sources"
)

// Metrics are the counters that every source, gate and sink has under the same names. A nil *Metrics counts nothing.
type Metrics struct {
	sourceRecords, sourceBytes, sourceGaps, sourceNotices *prometheus.CounterVec
	sourcePosition, sourcePaused                          *prometheus.GaugeVec
	gateRecords, gateBytes, gateFailures, gateFenced      *prometheus.CounterVec
	gateSeconds, sinkSeconds, waitSeconds                 *prometheus.HistogramVec
	refusedTotal, sinkRecords, sinkRows, sinkRetries      *prometheus.CounterVec
	sinkState, sinkBackoff                                *prometheus.GaugeVec
	dedupChecked, dedupDuplicates                         *prometheus.CounterVec
	dedupUnavailable, dedupUnkeyed                        *prometheus.CounterVec
	dedupSeconds                                          *prometheus.HistogramVec
}

// commitBuckets suit a local fsync as well as an upload.
var commitBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// NewMetrics registers the counters.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "twg_" + name, Help: help}, append([]string{"stream"}, labels...))
		reg.MustRegister(v)
		return v
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "twg_" + name, Help: help}, append([]string{"stream"}, labels...))
		reg.MustRegister(v)
		return v
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "twg_" + name, Help: help, Buckets: commitBuckets}, append([]string{"stream"}, labels...))
		reg.MustRegister(v)
		return v
	}
	return &Metrics{
		sourceRecords:  counter("source_records_total", "Records taken from the source."),
		sourceBytes:    counter("source_bytes_total", "Bytes of these records in memory."),
		sourceGaps:     counter("source_gap_records_total", "Offsets lost because the source no longer had them.", "topic", "partition", "reason"),
		sourceNotices:  counter("source_notices_total", "Events of the source that an operator should see.", "reason"),
		sourcePosition: gauge("source_position", "Offset up to which the source was told that raw has everything.", "topic", "partition"),
		sourcePaused:   gauge("source_paused", "1 while the source waits for the byte budget."),
		gateRecords:    counter("gate_records_total", "Records durable in raw."),
		gateBytes:      counter("gate_bytes_total", "Bytes written to raw, compressed."),
		gateFailures:   counter("gate_failures_total", "Commits that raw did not take."),
		gateFenced:     counter("gate_fenced_total", "Times that another writer owned the chain."),
		gateSeconds:    histogram("gate_commit_seconds", "Time of one commit to raw."),
		waitSeconds:    histogram("flow_admission_wait_seconds", "Time that batches waited for the byte budget."),
		refusedTotal:   counter("lane_refused_total", "Batches that a lane had no room for, left to recovery.", "sink"),
		sinkRecords:    counter("sink_records_total", "Records that a sink answered for, rejects included.", "sink"),
		sinkRows:       counter("sink_rows_total", "Rows durable in the sink.", "sink"),
		sinkRetries:    counter("sink_retries_total", "Failed tries to open or write a sink.", "sink"),
		sinkSeconds:    histogram("sink_write_seconds", "Time of one load's commit.", "sink"),
		sinkState:      gauge("sink_state", "0 live, 2 retrying, 3 blocked.", "sink"),
		sinkBackoff:    gauge("sink_backoff_seconds", "Wait before the next try.", "sink"),

		dedupChecked:     counter("dedup_checked_total", "Records whose content was compared with what was seen within the window."),
		dedupDuplicates:  counter("dedup_duplicates_total", "Records whose content another record held."),
		dedupUnavailable: counter("dedup_unavailable_total", "Records that passed because nobody could say whether they are duplicates, or because that could not be made durable.", "reason"),
		dedupUnkeyed:     counter("dedup_unkeyed_total", "Records that have no content to compare.", "reason"),
		dedupSeconds:     histogram("dedup_screen_seconds", "Time of a batch between raw and the lanes."),
	}
}

// Begin makes the series of a stream and its sinks, which count from 0 whether or not anything has happened yet: what is absent
// cannot be alerted on.
func (m *Metrics) Begin(stream string, sinks ...string) {
	for _, c := range []*prometheus.CounterVec{m.sourceRecords, m.sourceBytes, m.gateRecords, m.gateBytes, m.gateFailures, m.gateFenced} {
		c.WithLabelValues(stream)
	}
	m.sourcePaused.WithLabelValues(stream)
	for _, h := range []*prometheus.HistogramVec{m.gateSeconds, m.waitSeconds} {
		h.WithLabelValues(stream)
	}
	for _, sink := range sinks {
		for _, c := range []*prometheus.CounterVec{m.refusedTotal, m.sinkRecords, m.sinkRows, m.sinkRetries} {
			c.WithLabelValues(stream, sink)
		}
		for _, g := range []*prometheus.GaugeVec{m.sinkState, m.sinkBackoff} {
			g.WithLabelValues(stream, sink)
		}
		m.sinkSeconds.WithLabelValues(stream, sink)
	}
}

// beginDedup makes the series of a stream that is screened.
func (m *Metrics) beginDedup(stream string) {
	if m == nil {
		return
	}
	m.dedupChecked.WithLabelValues(stream)
	m.dedupDuplicates.WithLabelValues(stream)
	m.dedupSeconds.WithLabelValues(stream)
	for _, reason := range []string{"timeout", "no_leader", "circuit", "key", "refused", unscreenedTrail} {
		m.dedupUnavailable.WithLabelValues(stream, reason)
	}
}

// screened counts a batch that has left for the lanes.
func (m *Metrics) screened(stream string, took time.Duration) {
	if m != nil {
		m.dedupSeconds.WithLabelValues(stream).Observe(took.Seconds())
	}
}

// deduped counts what has come to is since was, which follows.
func (m *Metrics) deduped(stream string, was *DedupStatus, is DedupStatus) {
	if m == nil {
		return
	}
	m.dedupChecked.WithLabelValues(stream).Add(float64(is.Checked - was.Checked))
	m.dedupDuplicates.WithLabelValues(stream).Add(float64(is.Duplicates - was.Duplicates))
	for reason, n := range is.Unavailable {
		m.dedupUnavailable.WithLabelValues(stream, reason).Add(float64(n - was.Unavailable[reason]))
	}
	for reason, n := range is.Unkeyed {
		m.dedupUnkeyed.WithLabelValues(stream, reason).Add(float64(n - was.Unkeyed[reason]))
	}
	*was = is
	was.Unavailable, was.Unkeyed = maps.Clone(is.Unavailable), maps.Clone(is.Unkeyed)
}

func (m *Metrics) read(stream string, b *record.Batch) {
	if m != nil {
		m.sourceRecords.WithLabelValues(stream).Add(float64(len(b.Records)))
		m.sourceBytes.WithLabelValues(stream).Add(float64(b.Bytes))
	}
}

func (m *Metrics) gap(stream string, b *record.Batch) {
	if m != nil {
		m.sourceGaps.WithLabelValues(stream, b.Partition.Topic, strconv.Itoa(int(b.Partition.Number)), b.Gap).Add(float64(b.Next - b.First))
	}
}

func (m *Metrics) notice(stream, kind string) {
	if m != nil {
		m.sourceNotices.WithLabelValues(stream, kind).Inc()
	}
}

func (m *Metrics) paused(stream string, paused bool) {
	if m != nil {
		m.sourcePaused.WithLabelValues(stream).Set(b2f(paused))
	}
}

func (m *Metrics) waited(stream string, d time.Duration) {
	if m != nil {
		m.waitSeconds.WithLabelValues(stream).Observe(d.Seconds())
	}
}

func (m *Metrics) stored(stream string, bytes int64, took time.Duration, done []admitted) {
	if m == nil {
		return
	}
	n := 0
	for _, a := range done {
		n += len(a.batch.Records)
	}
	m.gateRecords.WithLabelValues(stream).Add(float64(n))
	m.gateBytes.WithLabelValues(stream).Add(float64(bytes))
	m.gateSeconds.WithLabelValues(stream).Observe(took.Seconds())
}

func (m *Metrics) gateFailed(stream string) {
	if m != nil {
		m.gateFailures.WithLabelValues(stream).Inc()
	}
}

func (m *Metrics) fenced(stream string) {
	if m != nil {
		m.gateFenced.WithLabelValues(stream).Inc()
	}
}

func (m *Metrics) position(stream string, pos sources.Position) {
	if m != nil {
		m.sourcePosition.WithLabelValues(stream, pos.Partition.Topic, strconv.Itoa(int(pos.Partition.Number))).Set(float64(pos.Next))
	}
}

// forget ends the series of a partition that is not ours any more.
func (m *Metrics) forget(stream string, p record.Partition) {
	if m != nil {
		m.sourcePosition.DeleteLabelValues(stream, p.Topic, strconv.Itoa(int(p.Number)))
	}
}

func (m *Metrics) refused(stream, sink string) {
	if m != nil {
		m.refusedTotal.WithLabelValues(stream, sink).Inc()
	}
}

func (m *Metrics) committed(stream, sink string, r sinks.Receipt, took time.Duration) {
	if m != nil {
		m.sinkRows.WithLabelValues(stream, sink).Add(float64(r.Rows))
		m.sinkRecords.WithLabelValues(stream, sink).Add(float64(r.Rows + r.Rejected))
		m.sinkSeconds.WithLabelValues(stream, sink).Observe(took.Seconds())
	}
}

func (m *Metrics) sinkFailed(stream, sink, state string, wait time.Duration) {
	if m != nil {
		m.sinkRetries.WithLabelValues(stream, sink).Inc()
		m.sinkBackoff.WithLabelValues(stream, sink).Set(wait.Seconds())
		m.sinkState.WithLabelValues(stream, sink).Set(map[string]float64{"retrying": 2, "blocked": 3}[state])
	}
}

func (m *Metrics) sinkLive(stream, sink string) {
	if m != nil {
		m.sinkBackoff.WithLabelValues(stream, sink).Set(0)
		m.sinkState.WithLabelValues(stream, sink).Set(0)
	}
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
