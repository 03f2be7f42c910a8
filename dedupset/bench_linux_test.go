package dedupset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The names of benchmarks with 50 million claims say so ("50M"): they take 1.6 GB and some ten seconds.
var sizes = []int64{5_000_000, 10_000_000, 50_000_000}

func sized(b *testing.B, f func(b *testing.B, entries int64)) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("%dM", n/1_000_000), func(b *testing.B) { f(b, n) })
	}
}

// watch measures calls, by the processor's time of the thread: what the machine does beside them counts for little.
type watch struct {
	calls       int
	work, worst time.Duration // of the processor
	longest     time.Duration // by the clock
}

func processor() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

func (w *watch) measure(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock, cpu := time.Now(), processor()
	f()
	cpu, took := processor()-cpu, time.Since(clock)
	w.calls++
	w.work += cpu
	w.worst, w.longest = max(w.worst, cpu), max(w.longest, took)
}

func (w *watch) report(b *testing.B) {
	b.ReportMetric(float64(w.calls)*float64(MaxRows(benchStream))/w.work.Seconds()/1e6, "Mrows/s/core")
	b.ReportMetric(float64(w.worst)/1e6, "worst-cpu-ms")
	b.ReportMetric(float64(w.longest)/1e6, "worst-ms")
}

// source makes claims of new contents.
type source struct{ n uint64 }

func (g *source) fill(cmd []byte) {
	for b := cmd; len(b) > 0; b = b[rowSize:] {
		g.n++
		binary.LittleEndian.PutUint64(b, mix(g.n))
		binary.LittleEndian.PutUint64(b[8:], mix(g.n^1<<63))
		binary.LittleEndian.PutUint64(b[16:], g.n)
	}
}

const (
	benchStream = "orders"
	benchWindow = 10 * time.Minute
)

// full is a table whose set has reached its cap, and a claim of the greatest length for it.
func full(b *testing.B, entries int64) (*Table, *source, []byte, time.Duration) {
	var t Table
	t.Apply(0, Declare(benchStream, [8]byte{}, benchWindow, entries))
	cmd, _ := Claim(benchStream, [8]byte{}, make([][rowSize]byte, MaxRows(benchStream)))
	g, now := &source{}, time.Duration(0)
	for t.sets[0].known() < entries {
		g.fill(rowsOf(cmd))
		now += 10 * time.Millisecond
		if reply := t.Apply(now, cmd); len(reply) != 1 {
			b.Fatalf("%x", reply)
		}
	}
	return &t, g, cmd, now
}

func rowsOf(cmd []byte) []byte { return cmd[headSize(benchStream):] }

// BenchmarkClaim claims new contents in a full set: each is looked for, put in, and another one goes.
func BenchmarkClaim(b *testing.B) {
	sized(b, func(b *testing.B, entries int64) {
		t, g, cmd, now := full(b, entries)
		var w watch
		b.ReportAllocs()
		for b.Loop() {
			g.fill(rowsOf(cmd))
			now += 10 * time.Millisecond
			w.measure(func() { t.Apply(now, cmd) })
		}
		b.ReportMetric(float64(t.sets[0].bytes())/float64(entries), "B/entry")
		w.report(b)
	})
}

// BenchmarkTwins claims contents that other records hold, in no order.
func BenchmarkTwins(b *testing.B) {
	sized(b, func(b *testing.B, entries int64) {
		t, _, cmd, now := full(b, entries)
		var w watch
		n, again := uint64(0), &source{}
		for b.Loop() {
			for r := rowsOf(cmd); len(r) > 0; r = r[rowSize:] {
				n++
				again.n = t.sets[0].oldest + mix(n)%uint64(entries)
				again.fill(r[:rowSize])
				r[16] ^= 0xff
			}
			w.measure(func() { t.Apply(now, cmd) })
		}
		if t.sets[0].twins != uint64(w.calls*MaxRows(benchStream)) {
			b.Fatalf("%d twins of %d calls", t.sets[0].twins, w.calls)
		}
		w.report(b)
	})
}

// BenchmarkGrowth fills a set from empty: its index grows on the way.
func BenchmarkGrowth(b *testing.B) {
	sized(b, func(b *testing.B, entries int64) {
		var w watch
		cmd, _ := Claim(benchStream, [8]byte{}, make([][rowSize]byte, MaxRows(benchStream)))
		for b.Loop() {
			var t Table
			t.Apply(0, Declare(benchStream, [8]byte{}, benchWindow, entries))
			for g := (&source{}); t.sets[0].known() < entries; {
				g.fill(rowsOf(cmd))
				w.measure(func() { t.Apply(time.Second, cmd) })
			}
		}
		w.report(b)
		runtime.GC()
	})
}

// BenchmarkExpiry lets all of a full set, or half of it, expire at one time, and claims on.
func BenchmarkExpiry(b *testing.B) {
	sized(b, func(b *testing.B, entries int64) {
		for _, part := range []int64{1, 2} {
			b.Run(fmt.Sprintf("1of%d", part), func(b *testing.B) { expiry(b, entries, part) })
		}
	})
}

func expiry(b *testing.B, entries, part int64) {
	var w watch
	for b.Loop() {
		b.StopTimer()
		t, g, cmd, now := full(b, entries)
		b.StartTimer()
		now = benchWindow + benchWindow/grain + now/time.Duration(part)
		for range 2000 {
			g.fill(rowsOf(cmd))
			now += 10 * time.Millisecond
			w.measure(func() { t.Apply(now, cmd) })
		}
		if s := t.Stats(now); len(s) != 1 || s[0].Twins > 0 || s[0].Claimed < uint64(entries) {
			b.Fatal(s)
		}
	}
	w.report(b)
}

// BenchmarkSnapshotBeside writes snapshots while claims go on.
func BenchmarkSnapshotBeside(b *testing.B) {
	sized(b, func(b *testing.B, entries int64) {
		t, g, cmd, now := full(b, entries)
		var w watch
		var pin time.Duration
		for b.Loop() {
			from := processor()
			write := t.Snapshot()
			pin = max(pin, processor()-from)
			done := make(chan error, 1)
			go func() { done <- write(io.Discard) }()
			for range 100 {
				g.fill(rowsOf(cmd))
				now += 10 * time.Millisecond
				w.measure(func() { t.Apply(now, cmd) })
			}
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(pin)/1e3, "pin-µs")
		w.report(b)
	})
}

// BenchmarkRestore reads a section.
func BenchmarkRestore(b *testing.B) {
	sized(b, func(b *testing.B, entries int64) {
		t, _, _, _ := full(b, entries)
		var data bytes.Buffer
		if err := t.Snapshot()(&data); err != nil {
			b.Fatal(err)
		}
		*t = Table{}
		runtime.GC()
		b.SetBytes(int64(data.Len()))
		for b.Loop() {
			var fresh Table
			if err := fresh.Restore(version, bytes.NewReader(data.Bytes())); err != nil {
				b.Fatal(err)
			}
			fresh = Table{}
			b.StopTimer()
			runtime.GC()
			b.StartTimer()
		}
	})
}
