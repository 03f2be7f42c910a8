package main

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges are the metrics that are looked up when somebody asks, from the same answers as /status, so that the two never differ.
type gauges struct {
	node *node
	lags lags
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("twg_"+name, help, append([]string{"stream"}, labels...), nil)
}

var (
	descLag      = describe("source_lag_records", "Offsets between raw's end and the end of the source's log.", "topic", "partition")
	descLagTime  = describe("source_lag_seconds", "How long the source has had records that raw has not, as precise as this is asked; 0 where raw has all.", "topic", "partition")
	descHeld     = describe("source_held", "1 while a partition is not read until an operator or the source changes something; with empty topic and partition, the stream as a whole.", "topic", "partition")
	descBuffered = describe("source_buffered_bytes", "Memory of what the source has read ahead and the budget has not counted yet.")
	descBudget   = describe("flow_budget_bytes", "Bytes of the budget that are taken.")
	descQueue    = describe("lane_queue_bytes", "Bytes that a lane holds, open loads included.", "sink")
	descRejected = describe("quarantine_records_total", "Records that a sink refused for good, since the stream's first start.", "sink", "reason")
	descShed     = describe("quarantine_shed_total", "Rejected records that the quarantine does not show, for want of room or of its store.", "sink", "reason")
	descDrops    = describe("drops_total", "Offsets that a sink leaves out for another reason than a reject, since the stream's first start.", "sink", "reason")
)

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLag, descLagTime, descHeld, descBuffered, descBudget, descQueue, descRejected, descShed, descDrops} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	var asking sync.WaitGroup
	for _, s := range g.node.streams {
		if r, _, _, _ := s.look(); r != nil {
			asking.Go(func() { g.collect(s, r, to) })
		}
	}
	asking.Wait()
}

func (g *gauges) collect(s *stream, r *rooms, to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, v, append([]string{s.cfg.Name}, labels...)...)
	}
	st := s.ask(r)
	_, _, held, _ := s.look()
	if r.source != nil {
		send(descBuffered, prometheus.GaugeValue, float64(r.source.Buffered()))
	}
	send(descBudget, prometheus.GaugeValue, float64(st.InFlight))
	send(descHeld, prometheus.GaugeValue, one01(st.Held != "" || held != ""), "", "")
	for _, p := range st.Partitions {
		labels := []string{p.Partition.Topic, strconv.Itoa(int(p.Partition.Number))}
		send(descHeld, prometheus.GaugeValue, one01(p.Held != ""), labels...)
		if p.End < 0 {
			continue
		}
		since := g.lags.see(sinkPartition{s.cfg.Name, p.Partition}, p.RawNext, p.End, time.Now())
		send(descLag, prometheus.GaugeValue, float64(max(0, p.End-p.RawNext)), labels...)
		send(descLagTime, prometheus.GaugeValue, since.Seconds(), labels...)
	}
	for _, l := range r.lanes {
		send(descQueue, prometheus.GaugeValue, float64(l.Status().QueueBytes), l.Name())
	}
	collectRejects(r.rejects, send)
}

func one01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func collectRejects(r *rejects, send func(*prometheus.Desc, prometheus.ValueType, float64, ...string)) {
	for c, n := range r.counts() {
		d := descDrops
		if isReject(c.Reason) {
			d = descRejected
		}
		send(d, prometheus.CounterValue, float64(n), c.Sink, c.Reason)
	}
	for k, n := range r.shed() {
		send(descShed, prometheus.CounterValue, float64(n), k.Sink, k.Reason)
	}
}

// lags remembers when the ends of logs were seen where, to tell for how long raw has been behind.
type lags struct {
	mu   sync.Mutex
	seen map[sinkPartition][]sighting
}

// sighting is the end of a log at some time.
type sighting struct {
	at  time.Time
	end int64
}

// mostSightings bounds what is remembered of a partition that does not catch up; the oldest ones count.
const mostSightings = 1000

// see notes the end of a partition's log and returns for how long it has been ahead of next.
func (l *lags) see(of sinkPartition, next, end int64, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[sinkPartition][]sighting{}
	}
	seen := l.seen[of]
	for len(seen) > 0 && seen[0].end <= next { // raw has passed it since
		seen = seen[1:]
	}
	if n := len(seen); end > next && n < mostSightings && (n == 0 || seen[n-1].end < end) {
		seen = append(seen, sighting{now, end})
	}
	if len(seen) == 0 {
		delete(l.seen, of)
		return 0
	}
	l.seen[of] = seen
	return now.Sub(seen[0].at)
}
