package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"github.com/stream-arrow/twgd/dedupset"
	"github.com/stream-arrow/twgd/fsm"
)

// setWindow is less than an hour: a set that has nothing left is let go after one.
const setWindow = 10 * time.Minute

// setSizes are claims in a set. The larger takes 1.6 GB and is measured once.
func (b *bench) setSizes() []int64 {
	if b.records <= 120_000 {
		return []int64{1_000_000}
	}
	return []int64{10_000_000, 50_000_000}
}

// measureSet measures the set without quorum and disk, and its snapshots as they go to the disk.
func measureSet(ctx context.Context, b *bench) error {
	for i, entries := range b.setSizes() {
		var all []setFigures
		for range b.runs {
			s, err := measureOneSet(b, entries)
			if err != nil {
				return err
			}
			if all = append(all, s); i > 0 || ctx.Err() != nil {
				break
			}
		}
		reportSets(&b.report, fmt.Sprintf("set of %d million", entries/1_000_000), all)
	}
	return ctx.Err()
}

// spent is what a call has taken: by the clock, which also runs while others have the processor, and of the processor's time, the system's part
// included.
type spent struct{ clock, processor time.Duration }

func (c spent) most(d spent) spent {
	return spent{max(c.clock, d.clock), max(c.processor, d.processor)}
}

// timed calls f. Only what runs on this thread counts.
func timed(f func()) spent {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	at, used := time.Now(), processor()
	f()
	used = processor() - used
	return spent{time.Since(at), used}
}

func processor() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// setFigures are what one set has shown.
type setFigures struct {
	rate, bytes                            float64
	growth, steady, expiry, beside         spent   // the longest Apply
	pin, snapshot, restore, plain, persist float64 // ms; MB/s; s; MB/s; ratio
}

func reportSets(r *report, name string, all []setFigures) {
	of := func(f func(*setFigures) float64) []float64 {
		return each(func(i int) float64 { return f(&all[i]) }, len(all))
	}
	pause := func(what string, f func(*setFigures) spent) {
		r.add(name+", longest Apply "+what, "ms", of(func(s *setFigures) float64 { return ms(f(s).processor) }), aim{AtMost: 10})
		r.add(name+", the same by the clock", "ms", of(func(s *setFigures) float64 { return ms(f(s).clock) }))
	}
	r.add(name+", test-and-inserts", "a core-second", of(func(s *setFigures) float64 { return s.rate }), aim{AtLeast: 5_000_000})
	r.add(name+", memory of an entry", "bytes", of(func(s *setFigures) float64 { return s.bytes }), aim{AtMost: 33})
	pause("while it fills", func(s *setFigures) spent { return s.growth })
	pause("while it is full", func(s *setFigures) spent { return s.steady })
	pause("while all expires", func(s *setFigures) spent { return s.expiry })
	pause("beside a snapshot", func(s *setFigures) spent { return s.beside })
	r.add(name+", beginning a snapshot", "ms", of(func(s *setFigures) float64 { return s.pin }))
	r.add(name+", plain write and sync of as many bytes", "MB/s", of(func(s *setFigures) float64 { return s.plain }))
	r.add(name+", snapshot of the tables to the disk", "MB/s", of(func(s *setFigures) float64 { return s.snapshot }))
	r.add(name+", snapshot / plain", "ratio", of(func(s *setFigures) float64 { return s.persist }), aim{AtLeast: 0.7})
	r.add(name+", restore from the disk", "s", of(func(s *setFigures) float64 { return s.restore }))
}

// workbench is the tables with one set, driven as the log does.
type workbench struct {
	f     *fsm.FSM
	rows  [][24]byte
	index uint64
	now   time.Duration
}

func newWorkbench(entries int64) (*workbench, error) {
	w := &workbench{f: fsm.New(), rows: make([][24]byte, dedupset.MaxRows(claimStream))}
	_, _, err := w.apply(dedupset.Declare(claimStream, [8]byte{}, setWindow, entries))
	return w, err
}

// apply carries out one command, and returns how long that took.
func (w *workbench) apply(cmd []byte) (reply []byte, took spent, err error) {
	data, err := fsm.Entry(fsm.RouteDedup, w.now, cmd)
	if err != nil {
		return nil, took, err
	}
	w.index++
	entry := &raft.Log{Index: w.index, Term: 1, Type: raft.LogCommand, Data: data}
	var answer any
	took = timed(func() { answer = w.f.Apply(entry) })
	switch a := answer.(type) {
	case fsm.Reply:
		return a.Body, took, nil
	case error:
		return nil, took, a
	}
	return nil, took, errors.New("the tables answered nothing")
}

// claims claims new contents so many times, ten milliseconds of cluster time after each other: 1.1 million rows a second, and returns the longest.
func (w *workbench) claims(times int) (longest spent, err error) {
	for range times {
		fillRows(w.rows)
		cmd, err := dedupset.Claim(claimStream, [8]byte{}, w.rows)
		if err != nil {
			return longest, err
		}
		w.now += 10 * time.Millisecond
		reply, took, err := w.apply(cmd)
		if err != nil {
			return longest, err
		}
		if len(reply) != 1 || dedupset.Code(reply[0]) != dedupset.OK {
			return longest, fmt.Errorf("a claim of new contents is answered %x", reply[:min(len(reply), 16)])
		}
		longest = longest.most(took)
	}
	return longest, nil
}

func (w *workbench) stats() (s dedupset.Stats) {
	w.f.Read(func(t *fsm.Tables, now time.Duration, _ uint64) { s = t.Dedup.Stats(now)[0] })
	return s
}

func measureOneSet(b *bench, entries int64) (s setFigures, err error) {
	w, err := newWorkbench(entries)
	if err != nil {
		return s, err
	}
	fill := int(entries)/len(w.rows) + 1
	if s.growth, err = w.claims(fill); err != nil {
		return s, err
	}
	if s.rate, s.steady, err = setRate(entries); err != nil {
		return s, err
	}
	if st := w.stats(); st.Entries == entries {
		s.bytes = float64(st.Bytes) / float64(st.Entries)
	} else {
		return s, fmt.Errorf("the set holds %d claims instead of %d", st.Entries, entries)
	}
	if err := b.inScratch(func(dir string) error { return w.snapshots(dir, &s) }); err != nil {
		return s, err
	}
	w.now += setWindow + time.Minute
	s.expiry, err = w.claims(1000)
	runtime.GC()
	return s, err
}

// setRate is what the bare table does in a second of a processor when it is full, and the longest Apply.
func setRate(entries int64) (rate float64, longest spent, err error) {
	var t dedupset.Table
	t.Apply(0, dedupset.Declare(claimStream, [8]byte{}, setWindow, entries))
	rows := make([][24]byte, dedupset.MaxRows(claimStream))
	now, sum, most := time.Duration(0), time.Duration(0), 1000
	for i := range int(entries)/len(rows) + 1 + most {
		fillRows(rows)
		cmd, err := dedupset.Claim(claimStream, [8]byte{}, rows)
		if err != nil {
			return 0, longest, err
		}
		now += 10 * time.Millisecond
		var reply []byte
		took := timed(func() { reply = t.Apply(now, cmd) })
		if i > int(entries)/len(rows) {
			sum, longest = sum+took.processor, longest.most(took)
		}
		if len(reply) != 1 {
			return 0, longest, fmt.Errorf("the set replied %d bytes", len(reply))
		}
	}
	t = dedupset.Table{}
	runtime.GC()
	return float64(most*len(rows)) / sum.Seconds(), longest, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// fileSink is a snapshot that is written into a file, as Raft's own sink does.
type fileSink struct {
	*os.File
	bytes int64
}

func (f *fileSink) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.bytes += int64(n)
	return n, err
}

func (f *fileSink) Close() error  { return errors.Join(f.File.Sync(), f.File.Close()) }
func (f *fileSink) ID() string    { return f.Name() }
func (f *fileSink) Cancel() error { return f.File.Close() }

// snapshots writes one beside claims and one alone, then as many bytes plainly, and reads the one back.
func (w *workbench) snapshots(dir string, s *setFigures) error {
	if err := w.snapshotBesideClaims(filepath.Join(dir, "beside"), s); err != nil {
		return err
	}
	path := filepath.Join(dir, "snapshot")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	sink := &fileSink{File: file}
	at := time.Now()
	snap, err := w.f.Snapshot()
	if err != nil {
		return err
	}
	s.pin = ms(time.Since(at))
	if err := snap.Persist(sink); err != nil {
		return err
	}
	s.snapshot = float64(sink.bytes) / 1e6 / time.Since(at).Seconds()
	snap.Release()
	if s.plain, err = plainWrite(filepath.Join(dir, "plain"), sink.bytes); err != nil {
		return err
	}
	s.persist = s.snapshot / s.plain
	return restoreFrom(path, s)
}

func restoreFrom(path string, s *setFigures) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	at := time.Now()
	err = fsm.New().Restore(file)
	s.restore = time.Since(at).Seconds()
	runtime.GC()
	return err
}

func (w *workbench) snapshotBesideClaims(path string, s *setFigures) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	snap, err := w.f.Snapshot()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- snap.Persist(&fileSink{File: file}) }()
	for {
		select {
		case err := <-done:
			snap.Release()
			return errors.Join(err, os.Remove(path))
		default:
		}
		longest, err := w.claims(1)
		if err != nil {
			return errors.Join(err, <-done)
		}
		s.beside = s.beside.most(longest)
		time.Sleep(10 * time.Millisecond)
	}
}

// plainWrite is how fast the disk takes bytes one after the other.
func plainWrite(path string, bytes int64) (rate float64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	at := time.Now()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for left := bytes; left > 0 && err == nil; left -= int64(len(block)) {
		_, err = f.Write(block[:min(left, int64(len(block)))])
	}
	err = errors.Join(err, f.Sync())
	rate = float64(bytes) / 1e6 / time.Since(at).Seconds()
	return rate, errors.Join(err, f.Close(), os.Remove(path))
}
