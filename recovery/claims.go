package recovery

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Local claims windows within one process: what a single node needs.
type Local struct {
	mu   sync.Mutex
	held map[string]bool
}

// Claim implements Claims.
func (l *Local) Claim(_ context.Context, name string) (func(), bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[name] {
		return nil, false, nil
	}
	if l.held == nil {
		l.held = map[string]bool{}
	}
	l.held[name] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
	}, true, nil
}

// Metrics of recovery; a nil *Metrics counts nothing.
type Metrics struct {
	windows, records, oldest *prometheus.GaugeVec
	done                     *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	labels := []string{"stream", "sink"}
	m := &Metrics{
		windows: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "twg_recovery_backlog_windows", Help: "Windows that a sink misses."}, labels),
		records: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "twg_recovery_backlog_records", Help: "Offsets in these windows."}, labels),
		oldest:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "twg_recovery_backlog_oldest_seconds", Help: "Age of the oldest of them in raw."}, labels),
		done:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "twg_recovery_windows_total", Help: "Windows replayed, by how it ended."}, append(labels, "reason")),
	}
	reg.MustRegister(m.windows, m.records, m.oldest, m.done)
	return m
}

func (m *Metrics) window(stream, sink string, err error) {
	if m == nil {
		return
	}
	reason := "done"
	if err != nil {
		reason = "failed"
	}
	m.done.WithLabelValues(stream, sink, reason).Inc()
}

func (m *Metrics) backlog(stream, sink string, b Backlog) {
	if m != nil {
		m.windows.WithLabelValues(stream, sink).Set(float64(b.Windows))
		m.records.WithLabelValues(stream, sink).Set(float64(b.Records))
		m.oldest.WithLabelValues(stream, sink).Set(b.Oldest.Seconds())
	}
}
