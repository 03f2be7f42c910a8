package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/lease"
)

// measureGaps ends leaders while a client of another node proposes a command every millisecond, and takes the longest time without an
// answer. Two nodes of the three are processes of bin/twgd, one of which leads; the third is in this process, and its client asks.
func measureGaps(ctx context.Context, b *bench) (err error) {
	t, err := b.openTrio(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	var left, killed, ended, calm, bareLeft, bareKilled []float64
	for i := range 2 * b.rounds() {
		kill := i%2 == 1
		g, err := t.round(ctx, kill)
		if err != nil {
			return fmt.Errorf("round %d: %w", i, errors.Join(err, t.ours.logTail()))
		}
		calm = append(calm, g.calm)
		if kill {
			killed, bareKilled = append(killed, g.gap), append(bareKilled, g.bare)
		} else {
			left, bareLeft, ended = append(left, g.gap), append(bareLeft, g.bare), append(ended, g.ended)
		}
	}
	r := &b.report
	r.add("longest time without an answer in a second of calm", "ms", calm)
	r.add("the leader is told to end: longest time without an answer", "ms", left, aim{AtMost: 50})
	r.add("the leader is told to end: longest time without a bare sync", "ms", bareLeft)
	r.add("the leader is told to end: until its process has ended", "ms", ended)
	r.add("the leader is killed: longest time without an answer", "ms", killed, aim{AtMost: 3000})
	r.add("the leader is killed: longest time without a bare sync", "ms", bareKilled)
	return nil
}

// trio is a cluster of three, of which one node is in this process.
type trio struct {
	b         *bench
	all       []place
	processes map[string]*node
	ours      *seat
	rounds    int // so far
}

func (b *bench) openTrio(ctx context.Context) (_ *trio, err error) {
	t := &trio{b: b, processes: map[string]*node{}}
	if t.all, err = b.places(3); err != nil {
		return nil, err
	}
	for _, p := range t.all[:2] {
		if err := t.start(p); err != nil {
			return nil, errors.Join(err, t.close())
		}
	}
	if t.ours, err = t.all[2].open(t.all); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *trio) start(p place) (err error) {
	n, err := p.launch(t.b, t.all)
	if err == nil {
		t.processes[p.name] = n
	}
	return err
}

func (t *trio) close() error {
	var errs []error
	if t.ours != nil {
		errs = append(errs, t.ours.close())
	}
	for _, n := range t.processes {
		_, err := n.stop()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leader waits until all three are there and one of the processes leads: where it is the node in this process, that one goes and comes back.
func (t *trio) leader(ctx context.Context) (place, error) {
	for {
		name, err := t.ours.whole(ctx, len(t.all))
		if err != nil {
			return place{}, err
		}
		for _, p := range t.all[:2] {
			if p.name == name {
				return p, nil
			}
		}
		if err := t.ours.close(); err != nil {
			return place{}, err
		}
		if t.ours, err = t.all[2].open(t.all); err != nil {
			return place{}, err
		}
	}
}

// gap is what a round has shown, in milliseconds.
type gap struct {
	calm  float64 // longest time without an answer before the leader ended
	gap   float64 // and from then on
	bare  float64 // longest time, from then on, without a sync of a file beside that is synced every few milliseconds: how the disk was
	ended float64 // until its process had ended
}

const (
	calmFor  = time.Second
	afterEnd = time.Second     // watched after a process has ended in order
	afterDie = 6 * time.Second // and after one was killed
)

// round ends the leader once and starts it again.
func (t *trio) round(ctx context.Context, kill bool) (g gap, err error) {
	t.rounds++
	p, err := t.leader(ctx)
	if err != nil {
		return g, err
	}
	beating, stop := context.WithCancel(ctx)
	defer stop()
	h := beat(beating, t.ours.node.Leases(), t.rounds)
	disk, err := tap(beating, t.all[2].dir)
	if err != nil {
		return g, err
	}
	time.Sleep(calmFor)
	at := time.Now()
	n, after := t.processes[p.name], afterEnd
	if kill {
		after, err = afterDie, n.kill()
	} else {
		_, err = n.stop()
	}
	if err != nil {
		return g, err
	}
	g.ended = milliseconds(time.Since(at))
	time.Sleep(after)
	end := time.Now()
	stop()
	g.calm, g.gap = h.longest(at.Add(-calmFor*3/4), at), h.longest(at, end)
	g.bare = disk.longest(at, end)
	return g, errors.Join(h.wait(ctx), disk.wait(), t.start(p))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// answers are when something was answered.
type answers struct {
	running sync.WaitGroup
	first   firstError
	mu      sync.Mutex
	at      []time.Time
}

// note takes in how something ended, unless ctx ended before.
func (a *answers) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	a.first.note(err)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.at = append(a.at, time.Now())
	}
}

// longest is the longest time without an answer between two times, in milliseconds.
func (a *answers) longest(from, to time.Time) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return longestGap(a.at, from, to)
}

func (a *answers) wait() error {
	a.running.Wait()
	return a.first.get()
}

// tapEvery is the pause between two syncs that tell how the disk is.
const tapEvery = 5 * time.Millisecond

// tap syncs a file again and again until ctx ends.
func tap(ctx context.Context, dir string) (*answers, error) {
	f, err := os.Create(filepath.Join(dir, "tap"))
	if err != nil {
		return nil, err
	}
	a := &answers{}
	a.running.Go(func() {
		defer f.Close()
		tick := time.NewTicker(tapEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, err := f.Write(make([]byte, entrySize))
			a.note(ctx, errors.Join(err, f.Sync()))
			<-tick.C
		}
	})
	return a, nil
}

// heart proposes commands and notes when they are answered.
type heart struct {
	answers
	free chan *pulse
}

// atOnce bounds how many commands wait for an answer.
const atOnce = 1024

// beat proposes a command every millisecond until ctx ends, whether the ones before it are answered or not: it takes a lease or gives one
// back.
func beat(ctx context.Context, leases *lease.Client, round int) *heart {
	h := &heart{free: make(chan *pulse, atOnce)}
	for i := range atOnce {
		h.free <- &pulse{name: fmt.Sprintf("beat/%d/%d", round, i)}
	}
	h.running.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			select {
			case p := <-h.free:
				h.running.Go(func() {
					h.note(ctx, p.propose(ctx, leases))
					h.free <- p
				})
			default:
			}
		}
	})
	return h
}

// pulse is one lease, taken or not.
type pulse struct {
	name string
	held *lease.Held
}

func (p *pulse) propose(ctx context.Context, leases *lease.Client) error {
	if p.held != nil {
		held := p.held
		p.held = nil
		return held.Release(ctx)
	}
	held, ok, err := leases.Try(ctx, p.name, time.Minute)
	p.held = held
	return errors.Join(err, notTaken(p.name, ok || err != nil))
}

// longestGap is the longest time between two answers of which the later comes after from, or from the last answer until to.
func longestGap(answers []time.Time, from, to time.Time) float64 {
	last, longest := from, time.Duration(0)
	for _, at := range answers {
		if at.After(to) {
			break
		}
		if at.After(from) {
			longest = max(longest, at.Sub(last))
		}
		last = at
	}
	return milliseconds(max(longest, to.Sub(last)))
}

// wait returns when nothing is proposed any more, and all leases are given back. A lease whose taking was broken off the client gives back
// by itself.
func (h *heart) wait(ctx context.Context) error {
	h.running.Wait()
	var all sync.WaitGroup
	for range atOnce {
		if p := <-h.free; p.held != nil {
			all.Go(func() { h.first.note(p.held.Release(ctx)) })
		}
	}
	all.Wait()
	return h.first.get()
}
