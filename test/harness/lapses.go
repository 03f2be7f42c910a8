package harness

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Lapses bounds how many duplicates may survive in the sinks of a stream that drops, while its processes are killed and stopped. A record may
// keep its place beside a twin where
//
//   - it passed unscreened, and a process counted it: what those count that live at the end, and what a victim counted just before its end;
//   - a victim had stored it, and it may not have come through screening: it lay in raw just behind the stroke, in a partition that the victim
//     read, and no coverage of the sink named db had it just before. Only records that have a twin can be duplicates, so only those count.
//
// Coverage is read in front of the victim's counter: what is covered was offered before, and counted before where it was offered unscreened.
// What the victim stores between the two and the stroke belongs to the second part. A batch that recovery brought although it was never
// screened was open when its process was struck, so it belongs there too.
type Lapses struct {
	DSN  string                 // of the sink named db
	Ends func() map[int32]int64 // of the chains in raw, now

	counted int64
	open    map[place]bool
}

type place struct {
	partition int32
	offset    int64
}

// Kill ends a process by SIGKILL.
func (l *Lapses) Kill(n *Node) {
	n.t.Helper()
	covered := l.covered(n.t)
	owned := n.owned()
	l.counted += n.Unscreened()
	n.Kill()
	l.note(owned, covered)
}

// Pause stops a process as it is. It counts on when it continues.
func (l *Lapses) Pause(n *Node) {
	n.t.Helper()
	covered := l.covered(n.t)
	owned := n.owned()
	n.Pause()
	l.note(owned, covered)
}

// Unscreened is how many records a process has passed without their having been screened.
func (n *Node) Unscreened() int64 { return int64(n.Metric("twg_dedup_unavailable_total")) }

// owned are the partitions that a node reads.
func (n *Node) owned() (out []int32) {
	n.t.Helper()
	st, err := n.Status()
	Must(n.t, err)
	for _, p := range st.Streams[0].Partitions {
		out = append(out, p.Partition)
	}
	return out
}

// note is called behind the stroke. A request that was on its way lands within the wait, and the group gives the partitions to others later.
func (l *Lapses) note(owned []int32, covered map[int32][][2]int64) {
	time.Sleep(300 * time.Millisecond)
	if l.open == nil {
		l.open = map[place]bool{}
	}
	ends := l.Ends()
	for _, p := range owned {
		for o := range ends[p] {
			if !slices.ContainsFunc(covered[p], func(s [2]int64) bool { return s[0] <= o && o < s[1] }) {
				l.open[place{p, o}] = true
			}
		}
	}
}

// covered are the spans that the sink covers, by partition.
func (l *Lapses) covered(t testing.TB) map[int32][][2]int64 {
	t.Helper()
	out := map[int32][][2]int64{}
	for _, row := range Query[string](t, l.DSN, "select concat_ws(' ', partition, lower(s), upper(s)) from _twg_coverage, unnest(spans) s where sink = 'db'") {
		var p int32
		var s [2]int64
		_, err := fmt.Sscan(row, &p, &s[0], &s[1])
		Must(t, err)
		out[p] = append(out[p], s)
	}
	return out
}

// Most is the bound. living is what the processes count that live at the end, and acked what was sent.
func (l *Lapses) Most(c *Contents, acked []Record, ids []string, living int64) (most int64, why string) {
	open := int64(0)
	for i, r := range acked {
		if l.open[place{r.Partition, r.Offset}] && c.Repeated(ids[i]) {
			open++
		}
	}
	return living + l.counted + open, fmt.Sprintf("%d records passed unscreened as the living count, %d as victims counted, and %d that have a twin were open when their process was struck",
		living, l.counted, open)
}
