package pipetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// Broker holds logs, and what a group has committed. It watches over commits.
type Broker struct {
	Stored func(record.Partition) int64 // where raw ends now

	partitions []record.Partition

	mu        sync.Mutex
	logs      map[record.Partition]int64
	committed map[record.Partition]int64
	wrong     []string
	epoch     uint64
}

// NewBroker has empty logs.
func NewBroker(partitions ...record.Partition) *Broker {
	b := &Broker{partitions: partitions, logs: map[record.Partition]int64{}, committed: map[record.Partition]int64{}}
	for _, p := range partitions {
		b.logs[p] = 0
	}
	return b
}

// Produce makes a log longer.
func (b *Broker) Produce(p record.Partition, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs[p] += n
}

// End is the end of a log.
func (b *Broker) End(p record.Partition) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs[p]
}

// Committed is what the group has committed, and what was wrong with any commit.
func (b *Broker) Committed(p record.Partition) (int64, []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.committed[p], b.wrong
}

func (b *Broker) commit(pos sources.Position) {
	stored := b.Stored(pos.Partition)
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := b.committed[pos.Partition]; pos.Next < last {
		b.wrong = append(b.wrong, fmt.Sprintf("%v: committed %d after %d", pos.Partition, pos.Next, last))
	}
	if pos.Next > stored {
		b.wrong = append(b.wrong, fmt.Sprintf("%v: committed %d, raw ends at %d", pos.Partition, pos.Next, stored))
	}
	b.committed[pos.Partition] = pos.Next
}

// Member is the only member of a group, which is rebalanced as a test likes. Its batches are of any size.
type Member struct {
	Heap   *Heap
	Before func(context.Context) error // runs in front of every commit of positions

	b    *Broker
	dice *Dice
	run  sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc
	gate sources.Gate
	wake chan struct{}

	mu     sync.Mutex
	parts  map[record.Partition]*assignment
	queue  []sources.Event
	paused bool
}

type assignment struct {
	epoch   uint64
	next    int64
	leaving bool
	waiting bool // the gate is asked
}

// Dice is a seeded source of randomness that goroutines share.
type Dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

// NewDice is the same for the same seed.
func NewDice(seed uint64) *Dice { return &Dice{r: rand.New(rand.NewPCG(seed, 1))} }

// N is a number in [0, n).
func (d *Dice) N(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Int64N(n)
}

// Percent is true n times of a hundred.
func (d *Dice) Percent(n int64) bool { return d.N(100) < n }

// Between is a duration.
func (d *Dice) Between(from, to time.Duration) time.Duration {
	return from + time.Duration(d.N(int64(to-from)))
}

// Join makes the member of a group.
func (b *Broker) Join(heap *Heap, dice *Dice) *Member {
	m := &Member{Heap: heap, b: b, dice: dice, wake: make(chan struct{}, 1), parts: map[record.Partition]*assignment{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Traits implements sources.Source.
func (m *Member) Traits() sources.Traits { return sources.Traits{Kind: "member", Replayable: true} }

// Open implements sources.Source.
func (m *Member) Open(_ context.Context, gate sources.Gate) error {
	m.gate = gate
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.b.partitions {
		m.adopt(p)
	}
	return nil
}

// adopt asks the gate where p begins, and assigns it. The mutex is held.
func (m *Member) adopt(p record.Partition) {
	if m.ctx.Err() != nil {
		return
	}
	a := &assignment{waiting: true}
	m.parts[p] = a
	m.run.Go(func() {
		start, err := m.gate(m.ctx, p, func(context.Context) (int64, error) { return 0, nil })
		if err != nil {
			return
		}
		m.b.mu.Lock()
		m.b.epoch++
		epoch := m.b.epoch
		m.b.mu.Unlock()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.parts[p] != a {
			return
		}
		*a = assignment{epoch: epoch, next: start.Next}
		m.tell(sources.Assigned{Partitions: []sources.Assignment{{Partition: p, Epoch: epoch, Next: start.Next}}})
	})
}

func (m *Member) tell(ev sources.Event) {
	m.queue = append(m.queue, ev)
	m.nudge()
}

func (m *Member) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Next implements sources.Source.
func (m *Member) Next(ctx context.Context) (sources.Event, error) {
	for {
		if ev := m.event(); ev != nil {
			return ev, nil
		}
		select {
		case <-m.wake:
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *Member) event() sources.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) > 0 {
		ev := m.queue[0]
		m.queue = m.queue[1:]
		return ev
	}
	if m.paused {
		return nil
	}
	var polled sources.Polled
	for p, a := range m.parts {
		for end := m.b.End(p); !a.waiting && !a.leaving && a.next < end && len(polled.Batches) < 3; {
			to := min(end, a.next+1+m.dice.N(40))
			polled.Batches = append(polled.Batches, m.Heap.Batch(p, a.epoch, a.next, to, 60))
			a.next = to
		}
	}
	if len(polled.Batches) == 0 {
		return nil
	}
	return polled
}

// Rebalance takes partitions away and gives them back.
func (m *Member) Rebalance(lost bool, partitions ...record.Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rebalance(lost, partitions...)
}

func (m *Member) rebalance(lost bool, partitions ...record.Partition) {
	if m.ctx.Err() != nil {
		return
	}
	var told []record.Partition
	for _, p := range partitions {
		if a := m.parts[p]; a != nil && !a.waiting && !a.leaving {
			a.leaving = true
			told = append(told, p)
		}
	}
	if len(told) == 0 {
		return
	}
	done := make(chan struct{})
	m.tell(sources.Revoked{Partitions: told, Lost: lost, Done: func() { close(done) }})
	again := func() {
		for _, p := range told {
			m.adopt(p)
		}
	}
	if lost {
		again()
		return
	}
	m.run.Go(func() {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
		case <-m.ctx.Done():
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		again()
	})
}

// Pause implements sources.Source.
func (m *Member) Pause() { m.pause(true) }

// Resume implements sources.Source.
func (m *Member) Resume() { m.pause(false) }

func (m *Member) pause(paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = paused
	m.nudge()
}

// Seek implements sources.Source: where the partition goes on, the gate says.
func (m *Member) Seek(p record.Partition, _ int64) { m.Rebalance(false, p) }

// Buffered implements sources.Source.
func (m *Member) Buffered() int64 { return 0 }

// Rejoin implements sources.Source.
func (m *Member) Rejoin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.b.partitions {
		m.rebalance(true, p)
	}
}

// Commit implements sources.Source.
func (m *Member) Commit(ctx context.Context, positions []sources.Position) error {
	if m.Before != nil {
		if err := m.Before(ctx); err != nil {
			return err
		}
	}
	for _, pos := range positions {
		m.b.commit(pos)
	}
	return nil
}

// Close implements sources.Source.
func (m *Member) Close(context.Context) error {
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	m.run.Wait()
	return nil
}
