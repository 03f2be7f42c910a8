package cluster

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what this room exports. What is not known at the moment of a scrape is left out, never 0.
type metrics struct {
	n      *Node
	commit prometheus.Histogram
}

var (
	descMembers   = desc("cluster_members", "Nodes that the leader knows and that are in contact.")
	descVoters    = desc("cluster_voters", "Seats in the quorum.")
	descIsLeader  = desc("cluster_is_leader", "1 while this node leads.")
	descHasLeader = desc("cluster_has_leader", "1 while this node knows a leader that answers.")
	descLeases    = desc("leases_held", "Leases that this node holds.")
	descTolerance = desc("cluster_failure_tolerance", "Seats that may fail now without stopping the others.")
	descEven      = desc("cluster_seats_even", "1 while the number of seats is even: a change is under way. For longer than 30 s it needs an operator.")
	descBackup    = desc("backup_last_success_timestamp_seconds", "When the newest backup that this node knows of was taken.")
	descFailures  = desc("backup_failures_total", "Backups that failed on this node.")
	descClaims    = desc("dedup_entries", "Claims of content that the set of the stream holds.", "stream")
	descClaimed   = desc("dedup_bytes", "What the set of the stream takes on a replica: index and rows.", "stream")
	descReach     = desc("dedup_window_held_seconds", "How far back every claim of the stream is known: its window, or less where the cap has let claims go early.", "stream")
	descEvicted   = desc("dedup_evicted_total", "Claims of the stream that the cap let go before their window was over, or left no room for.", "stream")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("twg_"+name, help, labels, nil)
}

func newMetrics(n *Node) *metrics {
	return &metrics{n: n, commit: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "twg_cluster_commit_seconds",
		Help: "How long commands took to be committed, on the leader.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14)})}
}

func (m *metrics) register(to prometheus.Registerer) {
	if to != nil {
		to.MustRegister(m, m.commit)
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descMembers, descVoters, descIsLeader, descHasLeader, descLeases, descTolerance, descEven, descBackup, descFailures,
		descClaims, descClaimed, descReach, descEvicted} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	s := m.n.Status()
	gauge(descLeases, float64(m.n.leases.Stats().Held))
	gauge(descIsLeader, oneIf(m.n.officeNow() != nil))
	gauge(descHasLeader, oneIf(s.Leader != ""))
	if s.Tolerance != nil {
		gauge(descTolerance, float64(*s.Tolerance))
		gauge(descMembers, float64(inContact(s.Members)))
	}
	if s.Seats != nil {
		gauge(descVoters, float64(*s.Seats))
		gauge(descEven, oneIf(*s.Seats > 0 && *s.Seats%2 == 0))
	}
	m.collectDedup(c)
	if m.n.shelf == nil {
		return
	}
	m.n.shelf.mu.Lock()
	defer m.n.shelf.mu.Unlock()
	c <- prometheus.MustNewConstMetric(descFailures, prometheus.CounterValue, float64(m.n.shelf.mu.failures))
	if last := m.n.shelf.mu.last; last != nil {
		gauge(descBackup, float64(last.Time.UnixMilli())/1000)
	}
}

// collectDedup tells of each set of claims.
func (m *metrics) collectDedup(c chan<- prometheus.Metric) {
	for _, s := range m.n.DedupStats() {
		gauge := func(d *prometheus.Desc, v float64) {
			c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Stream)
		}
		gauge(descClaims, float64(s.Entries))
		gauge(descClaimed, float64(s.Bytes))
		gauge(descReach, s.Held.Seconds())
		c <- prometheus.MustNewConstMetric(descEvicted, prometheus.CounterValue, float64(s.Evicted), s.Stream)
	}
}

func inContact(all []MemberStatus) (n int) {
	for _, m := range all {
		if m.State == "active" || m.State == "terminating" || m.State == "joining" {
			n++
		}
	}
	return n
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
