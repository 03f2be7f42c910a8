package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/record"
)

// deduped adds lines to the stream of a configuration.
func (l *lab) deduped(file, lines string) string {
	l.Helper()
	data, err := os.ReadFile(file)
	l.must(err)
	l.must(os.WriteFile(file, append(data, lines...), 0o644))
	return file
}

// leads waits until the node can be asked about contents: what is produced before may pass unasked.
func (l *lab) leads() {
	l.Helper()
	l.until("the node leads", func() bool { return l.node.part.node.Status().State == "ok" })
}

func TestMeasuringCountsAndDropsNothing(t *testing.T) {
	l := newLab(t)
	l.start(l.clustered(l.deduped(l.config("one", "", ""), "    dedup: {mode: measure}\n")))
	l.leads()
	l.produce("a", "b", "a", "c", "a")
	l.covered(5)
	st := l.status()
	if d := st.Dedup; d == nil || d.Checked != 5 || d.Duplicates != 2 || d.Dropped != 0 || total(d.Unavailable) != 0 {
		t.Errorf("five records of three contents: %+v", d)
	}
	if st.Drops["duplicate"] != 0 {
		t.Errorf("measuring has dropped: %v", st.Drops)
	}
}

func TestDroppingIsAccountedForAndOutlivesTheProcess(t *testing.T) {
	l := newLab(t)
	file := l.clustered(l.deduped(l.config("one", "", ""), "    contract: {unique: true}\n    dedup: {mode: drop}\n"))
	stop := l.start(file)
	l.leads()
	l.produce("a", "b", "a", "c", "a")
	l.covered(5)
	if d := l.status().Dedup; d == nil || d.Dropped != 2 || d.Circuit != "closed" {
		t.Errorf("five records of three contents: %+v", d)
	}
	l.wants(exitDone, []string{"repeated (drop): 2 of 5 checked, 2 dropped"}, "status", "-c", file)
	stop()
	l.wants(exitDone, []string{"duplicate"}, "audit", "-c", file, "--rows")
	l.start(file)
	l.leads()
	l.produce("c", "d")
	l.covered(7)
	l.until("the drops of both processes are known", func() bool { return l.status().Drops["duplicate"] == 3 })
}

func TestWithoutAClusterNothingIsRemembered(t *testing.T) {
	l := newLab(t)
	file := l.deduped(l.config("one", "", ""), "    dedup: {mode: measure}\n")
	l.wants(exitDone, []string{"cluster.size is 0"}, "validate", "-c", file)
	l.start(file)
	l.produce("a", "a")
	l.covered(2)
	if d := l.status().Dedup; d == nil || d.Unavailable["size_0"] != 2 || d.Duplicates != 0 {
		t.Errorf("two records that nobody could compare: %+v", d)
	}
}

func TestValidateSaysWhatRememberingTakes(t *testing.T) {
	l := newLab(t)
	file := l.clustered(l.deduped(l.config("one", "", ""), "    dedup: {mode: measure, window: 5m, max_entries: 5000000}\n"))
	l.wants(exitDone, []string{"5,000,000 contents", "MiB of memory", "16,666 records a second"}, "validate", "-c", file)
}

func TestWhatASinkRefusesForNoFaultOfItsContentIsUnfit(t *testing.T) {
	fit := unfit([]config.Sink{{Name: "a", MaxRecord: 1000}, {Name: "b", MaxRecord: 100}})
	f := func(key, value, header string, want string) {
		t.Helper()
		r := record.Record{Key: []byte(key), Value: []byte(value), Headers: []record.Header{{Key: header}}}
		if got := fit(&r); got != want {
			t.Errorf("%d, %d and %d bytes: %q, want %q", len(key), len(value), len(header), got, want)
		}
	}
	long := strings.Repeat("x", 60)
	f("", long, "", "")
	f(long, long[:40], "", "")
	f(long, long, "", "oversize")
	f("", long, long, "oversize")
	f("", "v", "\xff", "header_name")
	if got := unfit(nil)(&record.Record{Value: []byte(long)}); got != "" {
		t.Errorf("without a sink a record is %s", got)
	}
}
