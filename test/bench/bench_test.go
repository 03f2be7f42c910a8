package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/parquet/file"
)

func TestPercentile(t *testing.T) {
	f := func(p, want float64, values ...float64) {
		t.Helper()
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %v of %v is %v, want %v", p, values, got, want)
		}
	}
	f(50, 0)
	f(50, 7, 7)
	f(50, 2, 3, 1, 2)
	f(50, 2.5, 4, 1, 2, 3)
	f(90, 90, 100, 50, 0)
	f(100, 9, 9, 1)
}

func TestNumber(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
	f(0, "0")
	f(1234567.4, "1,234,567")
	f(-1234, "-1,234")
	f(-123.4, "-123")
	f(12.34, "12.3")
	f(1.25, "1.250")
	f(3, "3")
}

func TestReportShowsWhatFallsShort(t *testing.T) {
	var r report
	r.section = "raw"
	r.add("good", "ratio", []float64{1.1, 1.3, 1.2}, aim{AtMost: 1.25})
	r.add("bad", "ratio", []float64{0.7}, aim{AtLeast: 0.8})
	table := r.table()
	for _, want := range []string{"RAW", "1.200", "1.100 – 1.300", "<= 1.25 ok", ">= 0.8 SHORT"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestSumMetrics(t *testing.T) {
	m, err := sumMetrics(strings.NewReader("# HELP x y\nx{a=\"1 2\"} 3\nx{a=\"4\"} 1e2\nplain 5\n"))
	if err != nil || m["x"] != 103 || m["plain"] != 5 {
		t.Errorf("got %v, %v", m, err)
	}
	if _, err := sumMetrics(strings.NewReader("nonsense\n")); err == nil {
		t.Error("a line without a value is taken")
	}
}

func TestProcFiles(t *testing.T) {
	status := "Name:\tx\nVmHWM:\t  1234 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n"
	if n := field(status, "VmHWM"); n != 1234 {
		t.Errorf("VmHWM is %d", n)
	}
	if n := field(status, "voluntary_ctxt_switches"); n != 7 {
		t.Errorf("switches are %d", n)
	}
	if d := cpuOf("12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0"); d != 2*time.Second {
		t.Errorf("CPU is %v", d)
	}
}

func TestNextPollComesNearer(t *testing.T) {
	f := func(since time.Duration, have, want float64, poll time.Duration) {
		t.Helper()
		if got := nextPoll(since, have, want); got != poll {
			t.Errorf("after %v with %v of %v: %v, want %v", since, have, want, got, poll)
		}
	}
	f(time.Second, 0, 100, 50*time.Millisecond)
	f(time.Second, 90, 100, time.Second/18)
	f(time.Second, 1, 100, 500*time.Millisecond)
	f(time.Second, 9999, 10000, 10*time.Millisecond)
}

func TestLongestGap(t *testing.T) {
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	f := func(from, to int, want float64, answers ...int) {
		t.Helper()
		var all []time.Time
		for _, a := range answers {
			all = append(all, at(a))
		}
		if got := longestGap(all, at(from), at(to)); got != want {
			t.Errorf("longest gap in %v from %d to %d is %v, want %v", answers, from, to, got, want)
		}
	}
	f(0, 10, 10)
	f(0, 10, 7, 1, 8)
	f(5, 20, 9, 1, 2, 3, 12, 13, 19)
	f(5, 30, 17, 1, 6, 13)
	f(0, 10, 4, 2, 5, 6, 50)
}

func TestSyncsIn(t *testing.T) {
	text := "12 fsync(9)                 = 0\n13 fdatasync(9 <unfinished ...>\n12 write(3, \"fsync(\", 6) = 6\n13 <... fdatasync resumed>)  = 0\n12 +++ exited with 0 +++\n"
	if n := syncsIn(text); n != 2 {
		t.Errorf("%d syncs, want 2", n)
	}
}

func TestProposeCountsAnswers(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	seats, err := b.openAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := propose(t.Context(), seats[0].node.Leases(), 4, 50*time.Millisecond)
	if err := errors.Join(err, closeSeats(seats)); err != nil {
		t.Fatal(err)
	}
	if len(l.ms) == 0 || percentile(l.ms, 50) <= 0 || l.rate != float64(len(l.ms))/0.05 {
		t.Errorf("%d answers, a rate of %v", len(l.ms), l.rate)
	}
}

func TestFirstReading(t *testing.T) {
	log := "time=2026-01-02T03:04:05.678Z level=INFO msg=\"twgd runs\"\n" +
		"time=2026-01-02T03:04:06.5Z level=INFO msg=\"reading a partition\" stream=bench\n"
	at, err := firstReading(log)
	if err != nil || at.UnixMilli() != time.Date(2026, 1, 2, 3, 4, 6, 500e6, time.UTC).UnixMilli() {
		t.Errorf("got %v, %v", at, err)
	}
	if _, err := firstReading("nothing"); err == nil {
		t.Error("a log without the line is taken")
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-only", "raw,idle"})
	if err != nil || o.runs != 1 || o.records > 200_000 || !o.wants("raw") || o.wants("delay") {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parseOptions([]string{"-only", "cluster"}); err != nil || !o.wants("gaps") || !o.wants("rest") || o.wants("idle") || (&bench{options: o}).wantsStreams() {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"-only", "rwa"}, {"-only", "clusters"}, {"-runs", "0"}, {"stray"}, {"-records", "10"}} {
		if _, err := parseOptions(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

// TestQuick runs the parts that need no server on a small workload.
func TestQuick(t *testing.T) {
	const n, partitions, size = 3001, 3, 200
	w := newWorkload(n, size, partitions, time.Unix(1_800_000_000, 0))
	if w.count() != n || w.share(2).count() != 1500 {
		t.Fatalf("the workload has %d records, half of it %d", w.count(), w.share(2).count())
	}
	for p := range w {
		for i := range w[p] {
			if r := &w[p][i]; r.Offset != int64(i) || len(r.Value) != size || len(r.Key) != 8 {
				t.Fatalf("record %d of partition %d is %+v", i, p, r)
			}
		}
	}
	parts := map[string]func() error{
		"segments": func() error { return writeSegments(t.Context(), t.TempDir(), w, 100) },
		"plain":    func() error { return writePlain(t.TempDir(), w, 100) },
		"parquet":  func() error { return writeParquet(t.TempDir(), w) },
	}
	for name, f := range parts {
		if c, err := measure(f); err != nil || c.cpu <= 0 || c.wall <= 0 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if got := len(encodeRows(w)); got != 1 {
		t.Errorf("the rows make %d messages", got)
	}
}

func TestColumnWriterWritesEveryRow(t *testing.T) {
	dir := t.TempDir()
	w := newWorkload(groupRows+10, 50, 1, time.Unix(1_800_000_000, 0))
	if err := writeParquet(dir, w); err != nil {
		t.Fatal(err)
	}
	r, err := file.OpenParquetFile(dir+"/0", false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.NumRows() != groupRows+10 || r.NumRowGroups() != 2 {
		t.Errorf("the file has %d rows in %d groups", r.NumRows(), r.NumRowGroups())
	}
}
