package recovery

import "github.com/prometheus/client_golang/prometheus"

// Metrics of recovery; a nil *Metrics counts nothing.
type Metrics struct {
	windows, records, bytes, oldest *prometheus.GaugeVec
	ended                           *prometheus.CounterVec
}

// How a window ended.
const (
	done    = "done"    // replayed, and the claim was ours until the end
	stale   = "stale"   // replayed, but the claim was another's by then
	covered = "covered" // another had filled it: nothing was read
	lost    = "lost"    // given up, because the claim could not be trusted any more
	failed  = "failed"
)

// NewMetrics registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	labels := []string{"stream", "sink"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "twg_recovery_backlog_" + name, Help: help}, labels)
	}
	m := &Metrics{
		windows: gauge("windows", "Windows that a sink misses. Where recovery is shared, one elected node shows it for all."),
		records: gauge("records", "Offsets in these windows."),
		bytes:   gauge("bytes", "Compressed bytes of these windows in raw, estimated from the sizes of segments."),
		oldest:  gauge("oldest_seconds", "Age of the oldest of them in raw."),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "twg_recovery_windows_total",
			Help: "Windows by how they ended: done, stale (done, but the claim had expired), covered (by another), lost (the claim, before the end), failed."},
			append(labels, "reason")),
	}
	reg.MustRegister(m.windows, m.records, m.bytes, m.oldest, m.ended)
	return m
}

func (m *Metrics) window(stream, sink, how string) {
	if m != nil {
		m.ended.WithLabelValues(stream, sink, how).Inc()
	}
}

func (m *Metrics) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.windows, m.records, m.bytes, m.oldest}
}

func (m *Metrics) backlog(stream, sink string, b Backlog) {
	if m == nil {
		return
	}
	for i, v := range []float64{float64(b.Windows), float64(b.Records), float64(b.Bytes), b.Oldest.Seconds()} {
		m.gauges()[i].WithLabelValues(stream, sink).Set(v)
	}
}

// silent ends the series: another node shows them.
func (m *Metrics) silent(stream, sink string) {
	if m == nil {
		return
	}
	for _, g := range m.gauges() {
		g.DeleteLabelValues(stream, sink)
	}
}
