package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/stream-arrow/twgd/lease"
)

// crowds are how many propose at once.
var crowds = []int{1, 64, 512}

const (
	warmUp    = 300 * time.Millisecond // of a crowd, not counted
	entrySize = 128                    // bytes, about what a lease's command takes in the log
)

// measureCommits takes the time of commands from the asking client to its answer, in turn with a bare commit of Bolt and a bare sync of a
// file on the same disk. Commands are leases taken and given back; each is one entry.
func measureCommits(ctx context.Context, b *bench) (err error) {
	one, err := b.openAll(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSeats(one)) }()
	three, err := b.openAll(ctx, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSeats(three)) }()
	stop, err := b.startProfile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var c commits
	for range b.runs {
		if err := c.round(ctx, b, one[0], three); err != nil {
			return err
		}
	}
	c.report(&b.report)
	return nil
}

// loads are what came of something that was done again and again, once a run.
type loads []load

type load struct {
	ms   []float64 // each time
	rate float64   // a second
}

func (l loads) percentile(p float64) []float64 {
	return each(func(i int) float64 { return percentile(l[i].ms, p) }, len(l))
}

func (l loads) rates() []float64 { return each(func(i int) float64 { return l[i].rate }, len(l)) }

// commits are all runs of measureCommits.
type commits struct {
	sync, bolt, three       loads
	one, leading, elsewhere [3]loads // by crowd
}

// round runs everything once.
func (c *commits) round(ctx context.Context, b *bench, one *seat, three []*seat) error {
	lead, other, err := roles(ctx, three)
	if err != nil {
		return err
	}
	span := time.Duration(b.seconds) * time.Second / 5
	for _, bare := range []struct {
		to *loads
		f  func(dir string, span time.Duration) (load, error)
	}{{&c.sync, bareSync}, {&c.bolt, bareBolt}, {&c.three, bareThree}} {
		err := b.inScratch(func(dir string) error {
			l, err := bare.f(dir, span)
			*bare.to = append(*bare.to, l)
			return err
		})
		if err != nil {
			return err
		}
	}
	for i, crowd := range crowds {
		for _, x := range []struct {
			to *[3]loads
			at *seat
		}{{&c.one, one}, {&c.leading, lead}, {&c.elsewhere, other}} {
			l, err := propose(ctx, x.at.node.Leases(), crowd, span)
			if err != nil {
				return fmt.Errorf("%d proposers: %w", crowd, errors.Join(err, x.at.logTail()))
			}
			x.to[i] = append(x.to[i], l)
		}
	}
	return nil
}

// roles are the leader and one that does not lead.
func roles(ctx context.Context, seats []*seat) (lead, other *seat, err error) {
	leader, err := seats[0].whole(ctx, len(seats))
	for _, s := range seats {
		if s.place.name == leader {
			lead = s
		} else {
			other = s
		}
	}
	return lead, other, err
}

func (c *commits) report(r *report) {
	for _, x := range []struct {
		name string
		loads
	}{{"bare sync", c.sync}, {"bare Bolt commit", c.bolt}, {"bare Bolt commits of three", c.three}} {
		r.add(x.name+", p50", "ms", x.percentile(50))
		r.add(x.name+", p99", "ms", x.percentile(99))
		r.add(x.name, "commits/s", x.rates())
	}
	for _, x := range []struct {
		name string
		by   [3]loads
		bare loads
	}{{"one node", c.one, c.bolt}, {"three nodes, asked at the leader", c.leading, c.three}, {"three nodes, asked elsewhere", c.elsewhere, c.three}} {
		for i, crowd := range crowds {
			name := fmt.Sprintf("%s, %d proposers", x.name, crowd)
			r.add(name+", p50", "ms", x.by[i].percentile(50))
			r.add(name+", p99", "ms", x.by[i].percentile(99))
			r.add(name, "commits/s", x.by[i].rates())
		}
		r.add(x.name+", p50 of 1 proposer / bare", "ratio", ratios(x.by[0].percentile(50), x.bare.percentile(50)))
		r.add(x.name+", rate of 1 proposer / bare", "ratio", ratios(x.by[0].rates(), x.bare.rates()))
		r.add(x.name+", rate of 512 proposers / bare", "ratio", ratios(x.by[2].rates(), x.bare.rates()))
	}
}

// propose lets a crowd take and give back leases for a while, everybody one of its own.
func propose(ctx context.Context, leases *lease.Client, crowd int, span time.Duration) (load, error) {
	ctx, cancel := context.WithTimeout(ctx, span+time.Minute)
	defer cancel()
	counted := time.Now().Add(warmUp)
	end := counted.Add(span)
	took := make([][]float64, crowd)
	var first firstError
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			var err error
			took[i], err = takeAndGive(ctx, leases, fmt.Sprintf("bench/%d", i), counted, end)
			first.note(err)
		})
	}
	all.Wait()
	var l load
	for _, ms := range took {
		l.ms = append(l.ms, ms...)
	}
	l.rate = float64(len(l.ms)) / span.Seconds()
	return l, first.get()
}

// takeAndGive returns how long each command took that was answered between two times, in milliseconds.
func takeAndGive(ctx context.Context, leases *lease.Client, name string, from, to time.Time) (ms []float64, err error) {
	note := func(asked time.Time) {
		if now := time.Now(); now.After(from) && now.Before(to) {
			ms = append(ms, float64(now.Sub(asked).Microseconds())/1000)
		}
	}
	for time.Now().Before(to) {
		asked := time.Now()
		held, ok, err := leases.Try(ctx, name, time.Minute)
		if err != nil || !ok {
			return ms, errors.Join(err, notTaken(name, ok))
		}
		note(asked)
		asked = time.Now()
		if err := held.Release(ctx); err != nil {
			return ms, err
		}
		note(asked)
	}
	return ms, nil
}

func notTaken(name string, ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("the lease %s is not to be had", name)
}

// again does f for a while.
func again(span time.Duration, f func(i uint64) error) (l load, err error) {
	begin := time.Now()
	for i := uint64(0); time.Since(begin) < span; i++ {
		at := time.Now()
		if err := f(i); err != nil {
			return l, err
		}
		l.ms = append(l.ms, float64(time.Since(at).Microseconds())/1000)
	}
	l.rate = float64(len(l.ms)) / time.Since(begin).Seconds()
	return l, nil
}

// bareSync appends to a file and syncs it.
func bareSync(dir string, span time.Duration) (load, error) {
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		return load{}, err
	}
	defer f.Close()
	entry := make([]byte, entrySize)
	return again(span, func(uint64) error {
		_, err := f.Write(entry)
		return errors.Join(err, f.Sync())
	})
}

// bareBolt commits one entry after the other.
func bareBolt(dir string, span time.Duration) (load, error) {
	l, err := openLog(filepath.Join(dir, "bolt"))
	if err != nil {
		return load{}, err
	}
	defer l.Close()
	return again(span, l.commit)
}

// bareThree commits as three nodes on one disk must: the leader stores an entry, then the two others do at the same time, and the first of
// them makes a majority.
func bareThree(dir string, span time.Duration) (load, error) {
	var logs [3]bareLog
	for i := range logs {
		var err error
		if logs[i], err = openLog(filepath.Join(dir, fmt.Sprint(i))); err != nil {
			return load{}, err
		}
		defer logs[i].Close()
	}
	f := followers{logs: logs[1:], heard: make(chan heard)}
	f.start()
	l, err := again(span, func(n uint64) error {
		if err := logs[0].commit(n); err != nil {
			return err
		}
		return f.commit(n)
	})
	f.end()
	return l, err
}

// followers store entries, each at its own pace.
type followers struct {
	logs    []bareLog
	heard   chan heard
	work    []chan uint64
	running sync.WaitGroup
}

type heard struct {
	entry uint64
	err   error
}

// lagMost is how many entries a follower may be behind.
const lagMost = 1024

func (f *followers) start() {
	for _, l := range f.logs {
		work := make(chan uint64, lagMost)
		f.work = append(f.work, work)
		f.running.Go(func() {
			for n := range work {
				f.heard <- heard{n, l.commit(n)}
			}
		})
	}
}

// commit returns when one of them has the entry.
func (f *followers) commit(n uint64) error {
	for _, w := range f.work {
		w <- n
	}
	for h := range f.heard {
		if h.err != nil || h.entry == n {
			return h.err
		}
	}
	return nil
}

func (f *followers) end() {
	for _, w := range f.work {
		close(w)
	}
	go func() {
		f.running.Wait()
		close(f.heard)
	}()
	for range f.heard {
	}
}

// bareLog is a Bolt file with the options that the log has.
type bareLog struct{ *bbolt.DB }

var logsBucket = []byte("logs")

func openLog(path string) (l bareLog, err error) {
	l.DB, err = bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return l, err
	}
	err = l.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(logsBucket)
		return err
	})
	if err != nil {
		return l, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l bareLog) commit(n uint64) error {
	return l.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(logsBucket).Put(binary.BigEndian.AppendUint64(nil, n), make([]byte, entrySize))
	})
}

// startProfile begins to profile this process, where that is wanted. What it returns writes the profiles.
func (b *bench) startProfile() (stop func() error, err error) {
	if b.profile == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(b.profile, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(b.profile, "cpu.pprof"))
	if err != nil {
		return nil, err
	}
	before := runtime.SetMutexProfileFraction(10)
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		runtime.SetMutexProfileFraction(before)
		return errors.Join(f.Close(), b.writeProfile("mutex"), b.writeProfile("allocs"))
	}, nil
}

func (b *bench) writeProfile(name string) error {
	f, err := os.Create(filepath.Join(b.profile, name+".pprof"))
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
}
