package dedupset

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Proposer brings a command to the set of whoever leads, and returns the set's reply. After an error the outcome is unknown: claims and
// declarations may be repeated without harm. It tries until ctx ends.
type Proposer interface {
	Propose(ctx context.Context, cmd []byte) ([]byte, error)
}

// ErrNoLeader is in the errors of a Proposer that found nobody who leads.
var ErrNoLeader = errors.New("nobody leads the cluster")

// FilterOptions of a Filter.
type FilterOptions struct {
	Proposer Proposer
	Key      func(context.Context) ([32]byte, error) // the founding's key of content hashes, as the cluster knows it now
	Stream   string
	Window   time.Duration // how long a claim stands
	Entries  int64         // how many stand at once
	Timeout  time.Duration // of a call with all its parts, at most MaxTimeout and half of Window; 0: 250 ms
	InFlight int           // commands under way at once; 0: 4
	Log      *slog.Logger  // nil: silent
}

// MaxTimeout is how long a call may last. A claim that was made stays for longer than that, whatever the cap.
const MaxTimeout = 2 * time.Second

const (
	defaultTimeout  = 250 * time.Millisecond
	defaultInFlight = 4
)

// Filter asks the set of one stream which contents other records hold. Its methods are safe for concurrent use, and nothing that it
// starts outlives a call.
//
// Claims never wait for long: whatever goes wrong, a call is over within its timeout, and says *Unavailable, which means that all its
// records pass. The quorum may have carried out the claim nevertheless, or may do so later. That is harmless: the records hold
// their contents then, as they would have, and a record never is the twin of itself, because the set knows it by its tail. For the same
// reason nothing is ever taken back.
type Filter struct {
	o         FilterOptions
	began     time.Time
	slots     chan struct{} // a token for each command under way
	declaring chan struct{} // a token while somebody declares

	mu struct {
		sync.Mutex
		circuit  circuit
		passed   uint64 // calls turned away since the circuit opened
		key      *[32]byte
		declared *[8]byte // check of the key under which this process has declared the set; nil: not, or not any more
		round    uint64   // grows with each declaration
		warned   bool     // of another's window or cap
	}
}

// NewFilter is a filter that has asked nobody yet.
func NewFilter(o FilterOptions) *Filter {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	o.Timeout = min(o.Timeout, MaxTimeout, max(o.Window, MinWindow)/2)
	if o.InFlight <= 0 {
		o.InFlight = defaultInFlight
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Filter{o: o, began: time.Now(), slots: make(chan struct{}, o.InFlight), declaring: make(chan struct{}, 1)}
}

// Reasons of Unavailable.
const (
	ReasonTimeout  = "timeout"   // no answer in time, or no turn
	ReasonNoLeader = "no_leader" // nobody leads
	ReasonCircuit  = "circuit"   // a call failed a short while ago: not asked
	ReasonKey      = "key"       // the key is unknown, or has become another one
	ReasonRefused  = "refused"   // the set does not take the claim
)

// Unavailable says that nothing is known of the contents: all records pass.
type Unavailable struct {
	Reason string
	Err    error // nil where the reason says all

	silent bool // it tells nothing of the quorum
}

func (u *Unavailable) Error() string {
	if u.Err == nil {
		return "claims cannot be made: " + u.Reason
	}
	return fmt.Sprintf("claims cannot be made: %s: %v", u.Reason, u.Err)
}

func (u *Unavailable) Unwrap() error { return u.Err }

// Key returns the key of content hashes. It is asked for once, and again when the cluster turned out to have another. The error is
// an *Unavailable; where claims would be turned away it says so at once, which saves the hashing.
func (f *Filter) Key(ctx context.Context) ([32]byte, error) {
	f.mu.Lock()
	key, shut := f.mu.key, f.mu.circuit.shut(f.now())
	f.mu.Unlock()
	if key != nil && !shut {
		return *key, nil
	}
	t, un := f.admit()
	if un != nil {
		return [32]byte{}, un
	}
	within, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	fresh, un := f.fetch(within)
	if un == nil {
		f.withdraw(t) // whoever knows the key need not be able to take claims
		return fresh, nil
	}
	return [32]byte{}, f.settle(ctx, t, un)
}

// Claim claims the contents for their records, and returns, ascending, which rows' contents another record holds: all others hold their own
// now. Rows must be hashed under key. Equal contents within rows are told from each other here. The error is an *Unavailable.
func (f *Filter) Claim(ctx context.Context, key *[32]byte, rows [][24]byte) ([]Held, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	most := MaxRows(f.o.Stream)
	if most == 0 {
		return nil, &Unavailable{Reason: ReasonRefused, Err: fmt.Errorf("the name of the stream has more than %d bytes", MaxStream)}
	}
	t, un := f.admit()
	if un != nil {
		return nil, un
	}
	within, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	s := sift(rows)
	held, un := f.claim(within, key, s.parts(most))
	if un != nil {
		return nil, f.settle(ctx, t, un)
	}
	f.settle(ctx, t, nil)
	return s.verdict(rows, held), nil
}

// FilterStatus is how a filter fares.
type FilterStatus struct {
	Circuit string        // closed, open, probing
	Reason  string        // why it is open
	Open    time.Duration // for how long
	Passed  uint64        // calls turned away meanwhile
}

// Status returns at once.
func (f *Filter) Status() FilterStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := FilterStatus{Circuit: f.mu.circuit.text(), Reason: f.mu.circuit.reason, Passed: f.mu.passed}
	if f.mu.circuit.open {
		s.Open = f.now() - f.mu.circuit.since
	}
	return s
}

// now is the filter's clock: monotonic, from its beginning.
func (f *Filter) now() time.Duration { return time.Since(f.began) }

func (f *Filter) admit() (ticket, *Unavailable) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.mu.circuit.admit(f.now())
	if !ok {
		f.mu.passed++
		return t, &Unavailable{Reason: ReasonCircuit, Err: errors.New("open: " + f.mu.circuit.reason)}
	}
	return t, nil
}

func (f *Filter) withdraw(t ticket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.circuit.withdraw(t)
}

// settle tells the circuit how a call ended, and the log where that changes something. It returns un as an error.
func (f *Filter) settle(ctx context.Context, t ticket, un *Unavailable) error {
	switch {
	case un == nil:
		f.succeeded(t)
	case un.silent || ctx.Err() != nil: // the caller went away: that is no failure of the quorum
		f.withdraw(t)
	default:
		f.failed(t, un)
	}
	if un == nil {
		return nil
	}
	return un
}

func (f *Filter) succeeded(t ticket) {
	f.mu.Lock()
	since, passed := f.mu.circuit.since, f.mu.passed
	closed := f.mu.circuit.succeed(t)
	if closed {
		f.mu.passed = 0
	}
	f.mu.Unlock()
	if closed {
		f.o.Log.Info("duplicates are looked for again", "stream", f.o.Stream, "after", (f.now() - since).Round(time.Millisecond), "calls_passed", passed)
	}
}

func (f *Filter) failed(t ticket, un *Unavailable) {
	f.mu.Lock()
	opened := f.mu.circuit.fail(f.now(), t, un.Reason, rand.Float64())
	if opened {
		f.mu.passed = 0
	}
	f.mu.Unlock()
	if opened {
		f.o.Log.Warn("duplicates cannot be looked for: records pass", "stream", f.o.Stream, "reason", un.Reason, "error", un.Err)
	}
}

// checkOf names a key without telling it.
func checkOf(key *[32]byte) [8]byte {
	sum := sha256.Sum256(key[:])
	return [8]byte(sum[:8])
}
