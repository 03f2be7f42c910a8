package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stream-arrow/twgd/dedupset"
)

// filter asks through a process, as its screening does.
func (p *proc) filter() *dedupset.Filter {
	return dedupset.NewFilter(dedupset.FilterOptions{Proposer: p.n.Dedup(), Key: p.n.DedupKey, Stream: "orders", Window: time.Hour, Entries: 1_000_000, Log: p.o.Log})
}

// contents are rows of contents from a number on, all of one record.
func contents(from, n int, record uint64) [][24]byte {
	rows := make([][24]byte, n)
	for i := range rows {
		x := uint64(from+i) * 0x9e3779b97f4a7c15
		binary.LittleEndian.PutUint64(rows[i][:], x)
		binary.LittleEndian.PutUint64(rows[i][8:], x*x+1)
		binary.LittleEndian.PutUint64(rows[i][16:], record)
	}
	return rows
}

// claimed is how many of the rows others hold; -1 where nobody knows.
func claimed(ctx context.Context, f *dedupset.Filter, rows [][24]byte) (int, error) {
	key, err := f.Key(ctx)
	if err != nil {
		return -1, err
	}
	held, err := f.Claim(ctx, &key, rows)
	if err != nil {
		return -1, err
	}
	return len(held), nil
}

func (l *lab) claims(f *dedupset.Filter, rows [][24]byte, want int) {
	l.t.Helper()
	if n, err := claimed(l.ctx, f, rows); n != want {
		l.t.Errorf("others hold %d, want %d: %v", n, want, err)
	}
}

// six runs six nodes, of which three hold seats, some hold the log, and at least one only asks. It returns one of each that does not lead.
func (l *lab) six() (voter, standby, worker *proc) {
	l.t.Helper()
	l.three()
	for i := range 3 {
		l.run(fmt.Sprintf("n%d", i+4))
	}
	l.until(2*time.Minute, "a voter, a standby and a worker that do not lead", func() bool {
		voter, standby, worker = nil, nil, nil
		for _, p := range l.procs {
			r := p.n.current()
			switch {
			case p.n.officeNow() != nil:
			case p.n.Role():
				voter = p
			case r != nil && len(r.q.State().Servers) > 3:
				standby = p
			case r == nil:
				worker = p
			}
		}
		return voter != nil && standby != nil && worker != nil && l.all("n1 n2 n3")
	})
	return voter, standby, worker
}

// Whoever claims, the set is one: of a voter, of a standby, and of a node without a replica.
func TestClaimsFromAnywhere(t *testing.T) {
	bubble(t, func(l *lab) {
		voter, standby, worker := l.six()
		l.claims(voter.filter(), contents(0, 100, 1), 0)
		l.claims(standby.filter(), contents(50, 100, 2), 50)
		l.claims(worker.filter(), contents(100, 25_000, 3), 50)
		l.claims(l.leader().filter(), contents(0, 100, 1), 0)
		l.until(5*time.Second, "all know of it", func() bool {
			for _, p := range l.procs {
				d := p.n.DedupStats()
				if len(d) != 1 || d[0].Stream != "orders" || d[0].Entries != 25_100 || d[0].Twins != 100 {
					return false
				}
				if s := p.n.Status(); s.Dedup == nil || *s.Dedup != 25_100 {
					return false
				}
			}
			return true
		})
		l.equal()
	})
}

// equal waits until all replicas have applied the same entries, and compares their sums.
func (l *lab) equal() {
	l.t.Helper()
	l.until(10*time.Second, "one index on all replicas", func() bool {
		at := map[uint64]bool{}
		for _, p := range l.procs {
			if r := p.n.current(); r != nil {
				index, _ := r.f.Sum()
				at[index] = true
			}
		}
		return len(at) == 1
	})
	sums := map[[32]byte]bool{}
	for _, p := range l.procs {
		if r := p.n.current(); r != nil {
			_, sum := r.f.Sum()
			sums[sum] = true
		}
	}
	if len(sums) != 1 {
		l.t.Errorf("the replicas have %d sums", len(sums))
	}
}

// Three nodes claim all the time while the leader is killed. A claim never takes longer than it may, what was claimed before stands after,
// and the replicas stay equal.
func TestClaimsWhileTheLeaderIsKilled(t *testing.T) {
	bubble(t, func(l *lab) {
		voter, standby, worker := l.six()
		leader := l.leader()
		l.claims(worker.filter(), contents(0, 1000, 1), 0)
		var all sync.WaitGroup
		var mu sync.Mutex
		answered, passed, after := 0, 0, 0
		var killed time.Time
		for i, p := range []*proc{voter, standby, worker} {
			f := p.filter()
			all.Go(func() {
				for n := range 300 {
					begin := time.Now()
					_, err := claimed(l.ctx, f, contents(100_000*(i+1)+n*100, 100, uint64(n)))
					if took := time.Since(begin); took > 251*time.Millisecond {
						t.Errorf("%s: a claim took %v", p.name, took)
					}
					mu.Lock()
					if err != nil {
						passed++
					} else if answered++; !killed.IsZero() {
						after++
					}
					mu.Unlock()
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		time.Sleep(3 * time.Second)
		mu.Lock()
		killed = time.Now()
		mu.Unlock()
		leader.kill()
		all.Wait()
		t.Logf("%d answered, %d passed, %d answered after the kill", answered, passed, after)
		if passed == 0 || passed > 400 || after < 200 {
			t.Errorf("%d answered, %d passed, %d answered after the kill", answered, passed, after)
		}
		l.claims(standby.filter(), contents(0, 1000, 2), 1000)
		l.equal()
	})
}

// Without a leader, and with one that does not answer, a claim is over within its time, whoever asks.
func TestClaimsWithoutALeaderAreFast(t *testing.T) {
	bubble(t, func(l *lab) {
		voter, _, worker := l.six()
		leader := l.leader()
		fv, fw := voter.filter(), worker.filter()
		l.claims(fv, contents(0, 10, 1), 0)
		l.claims(fw, contents(0, 10, 1), 0)
		ask := func(p *proc, f *dedupset.Filter, want ...string) {
			t.Helper()
			time.Sleep(12 * time.Second) // the circuit has closed, or lets one find out
			begin := time.Now()
			_, err := claimed(l.ctx, f, contents(1000, 10_000, 1))
			var un *dedupset.Unavailable
			if !errors.As(err, &un) {
				t.Fatalf("%s: %v", p.name, err)
			}
			if took := time.Since(begin); took > 251*time.Millisecond {
				t.Errorf("%s: %v after %v", p.name, err, took)
			}
			for _, w := range want {
				if un.Reason == w {
					return
				}
			}
			t.Errorf("%s: %v, want %v", p.name, err, want)
		}
		for _, p := range l.procs { // the leader goes on leading only itself
			if p != leader {
				l.net.CutBoth(leader.name, p.name)
			}
		}
		begin := time.Now()
		if _, err := claimed(l.ctx, fw, contents(500, 10_000, 1)); err == nil || time.Since(begin) > 251*time.Millisecond {
			t.Errorf("cut off from the leader: %v after %v", err, time.Since(begin))
		}
		ask(leader, leader.filter(), "no_leader", "timeout", "key")
		for name, p := range l.procs {
			if p != voter && p != worker && p != leader {
				l.net.Isolate(name)
			}
		}
		time.Sleep(10 * time.Second)
		ask(voter, fv, "no_leader", "timeout")
		ask(worker, fw, "no_leader", "timeout")
		for name := range l.procs {
			l.net.Rejoin(name)
		}
		l.until(time.Minute, "a leader", func() bool { return l.all("n1 n2 n3") })
		time.Sleep(12 * time.Second)
		l.claims(fv, contents(0, 10, 2), 10)
		l.claims(fw, contents(0, 10, 2), 10)
	})
}

// The key is one for all, and no node writes it down but where it is in the log and in snapshots: a worker that knows it has it in memory.
func TestDedupKeyIsAskedForAndNotWrittenDown(t *testing.T) {
	bubble(t, func(l *lab) {
		voter, _, worker := l.six()
		key, err := voter.n.DedupKey(l.ctx)
		if err != nil || key == [32]byte{} {
			t.Fatal(key, err)
		}
		for _, p := range l.procs {
			if k, err := p.n.DedupKey(l.ctx); err != nil || k != key {
				t.Errorf("%s has %x, %v", p.name, k, err)
			}
		}
		l.claims(worker.filter(), contents(0, 10, 1), 0)
		time.Sleep(5 * time.Second)
		if at := holding(t, filepath.Join(l.dir, voter.name), key[:]); len(at) == 0 {
			t.Error("the search finds nothing: a voter's log has the key")
		}
		worker.term()
		if at := holding(t, filepath.Join(l.dir, worker.name), key[:]); len(at) > 0 {
			t.Errorf("the worker has it in %v", at)
		}
	})
}

// holding are the files below a directory that have the bytes in them, as they are or as text.
func holding(t *testing.T, dir string, key []byte) (at []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, key) || bytes.Contains(b, fmt.Appendf(nil, "%x", key)) {
			at = append(at, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Claims and key outlive a restart of all nodes, and the loss of all disks where there is a backup.
func TestClaimsOutliveRestartAndRestore(t *testing.T) {
	bubble(t, func(l *lab) {
		with := l.stored()
		start := func() {
			t.Helper()
			for _, n := range names3 {
				l.run(n, with)
			}
			l.until(2*time.Minute, "three seats", func() bool { return l.all("n1 n2 n3") })
		}
		start()
		l.claims(l.procs["n2"].filter(), contents(0, 20_000, 1), 0)
		key, err := l.procs["n2"].n.DedupKey(l.ctx)
		if err != nil {
			t.Fatal(err)
		}
		l.killAll()
		start()
		l.claims(l.procs["n1"].filter(), contents(0, 20_000, 2), 20_000)
		l.equal()
		if _, err := l.procs["n3"].n.Backup(l.ctx); err != nil {
			t.Fatal(err)
		}
		l.killAll()
		l.wipe(names3...)
		start()
		l.claims(l.procs["n3"].filter(), contents(0, 20_000, 3), 20_000)
		l.claims(l.procs["n3"].filter(), contents(0, 20_000, 1), 0) // whose they are is known too
		l.equal()
		for _, p := range l.procs {
			if k, err := p.n.DedupKey(l.ctx); err != nil || k != key {
				t.Errorf("%s has another key: %v", p.name, err)
			}
		}
	})
}

// A node that still has the key of another founding is told that its set is not declared, asks for the key, and is right from then on. What others
// have claimed stands.
func TestKeyOfAnotherFoundingIsMended(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		l.claims(l.procs["n1"].filter(), contents(0, 10, 1), 0)
		first := true
		f := dedupset.NewFilter(dedupset.FilterOptions{Proposer: l.procs["n2"].n.Dedup(), Stream: "orders", Window: time.Hour, Entries: 1_000_000,
			Key: func(ctx context.Context) ([32]byte, error) {
				if first {
					first = false
					return [32]byte{1}, nil
				}
				return l.procs["n2"].n.DedupKey(ctx)
			}})
		_, err := claimed(l.ctx, f, contents(0, 10, 2))
		var un *dedupset.Unavailable
		if !errors.As(err, &un) || un.Reason != "key" {
			t.Fatal(err)
		}
		l.claims(f, contents(0, 10, 2), 10)
		l.claims(l.procs["n3"].filter(), contents(0, 10, 1), 0)
	})
}

// Large claims of a node that does not lead share one connection. On a way of 10 ms they are not held up by its windows.
func TestLargeClaimsShareAConnection(t *testing.T) {
	bubble(t, func(l *lab) {
		l.three()
		leader := l.leader()
		var other *proc
		for _, p := range l.procs {
			if p != leader {
				other = p
			}
		}
		f := other.filter()
		l.claims(f, contents(0, 10, 1), 0)
		l.net.Delay(other.name, leader.name, 5*time.Millisecond)
		l.net.Delay(leader.name, other.name, 5*time.Millisecond)
		most := dedupset.MaxRows("orders")
		begin := time.Now()
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				f := other.filter()
				l.claims(f, contents(most*(i+1), most, 1), 0)
			})
		}
		all.Wait()
		if took := time.Since(begin); took > 35*time.Millisecond { // the declaration, and the claim, each there and back
			t.Errorf("4 MiB took %v", took)
		}
	})
}

func TestMetricsOfClaims(t *testing.T) {
	bubble(t, func(l *lab) {
		reg := prometheus.NewRegistry()
		p := l.run("n1", alone, func(o *Options) { o.Registerer = reg })
		l.until(5*time.Second, "serving", func() bool { return p.state() == "ok" })
		if s := p.n.Status(); s.Dedup == nil || *s.Dedup != 0 {
			t.Errorf("before any claim: %+v", s.Dedup)
		}
		l.claims(p.filter(), contents(0, 10, 1), 0)
		got := map[string]string{}
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			for _, m := range f.GetMetric() {
				if len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == "orders" {
					got[f.GetName()] = fmt.Sprint(m.GetLabel()[0].GetName(), m.GetGauge().GetValue()+m.GetCounter().GetValue())
				}
			}
		}
		if got["twg_dedup_entries"] != "stream10" || got["twg_dedup_window_held_seconds"] != "stream3600" || got["twg_dedup_evicted_total"] != "stream0" || got["twg_dedup_bytes"] == "" {
			t.Errorf("%v", got)
		}
	})
}
