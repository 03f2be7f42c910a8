// Package leasing drives leases as a program on a cluster would, writes down what it was told, and judges it afterwards: whether all that
// was said fits one lease a name that somebody holds, that only its holder or its time ends, and whose tokens grow.
//
// The judge knows nothing of the program but what its documents promise. All times are of one clock, that of the test's process.
package leasing

import (
	"sync"
	"time"
)

// Kind is what was asked.
type Kind uint8

// What is asked.
const (
	Acquire Kind = iota
	Release
	Done
	Observe
)

func (k Kind) String() string { return [...]string{"acquire", "release", "done", "observe"}[k] }

// Never is the Return of an operation whose outcome is not known: it may take effect at any time, or never.
const Never = time.Duration(1<<63 - 1)

// Op is one operation on a lease, with what came of it.
type Op struct {
	Tenant int
	Kind   Kind
	Name   string
	Call   time.Duration // when it was begun, since the history's start
	Return time.Duration // when it ended, or Never
	Token  uint64        // acquire: granted, 0 where it was refused; release and done: given up; observe: seen, 0 for nobody's
	Stale  bool          // done: the lease was not the caller's any more

	// Of a granted acquire: the time it was asked for, and when the holder ceased to count on it, be it that its context ended or that it
	// gave the lease up. Gave tells the two apart; where neither has happened yet, Until is Never.
	TTL   time.Duration
	Until time.Duration
	Gave  bool

	hidden bool // observe: nobody was told of that token. Set by the judge
}

// sure is the earliest moment at which a granted lease may end by itself: its time begins when it is granted, and that is not before it is asked for.
func (o Op) sure() time.Duration { return o.Call + o.TTL }

// History is what several tenants wrote down. It may be used by several goroutines.
type History struct {
	begin time.Time

	mu  sync.Mutex
	ops []*Op
}

// NewHistory begins now.
func NewHistory() *History { return &History{begin: time.Now()} }

func (h *History) now() time.Duration { return time.Since(h.begin) }

// add writes an operation down; what is learned later of it is told by change.
func (h *History) add(o Op) *Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, &o)
	return &o
}

func (h *History) change(o *Op, do func(*Op)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do(o)
}

// Ops are copies of all operations so far.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Op, len(h.ops))
	for i, o := range h.ops {
		out[i] = *o
	}
	return out
}

// Granted counts the acquires that were granted so far.
func (h *History) Granted() (n int) {
	for _, o := range h.Ops() {
		if o.Kind == Acquire && o.Token != 0 {
			n++
		}
	}
	return n
}
