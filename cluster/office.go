package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stream-arrow/twgd/cluster/quorum"
	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/lease"
	"github.com/stream-arrow/twgd/roster"
	"github.com/stream-arrow/twgd/tuning"
)

const (
	lookEvery   = time.Second
	stepWithin  = 10 * time.Second
	evenTooLong = 30 * time.Second // seats that stay even for longer are an alarm
)

// office is the leader's role: while run runs, this node holds it for one term. It writes down who is there and what they intend, looks at the
// seats, and changes them one step at a time. Check-ins come in beside it, from any goroutine, and are only noted; whatever follows from
// them is done by the one goroutine of run, so that no two proposals of the roster are ever open at once.
type office struct {
	n       *Node
	r       *replica
	term    uint64
	started time.Time
	wake    chan struct{}
	orders  chan order
	ended   chan struct{}

	// open: the fencing epoch of this incarnation is in force, so leases may be given out.
	open    atomic.Bool
	confirm atomic.Bool // the founding is to be confirmed
	// rested: the last look found nothing to do.
	rested atomic.Bool

	mu struct {
		sync.Mutex
		watch *roster.Watch
		heard map[string]said // by server id
		view  roster.View     // of the last look
	}

	configIndex uint64        // of the last look
	configSince time.Duration // when it was first seen

	evenSince  time.Time // run's own, like what follows
	note       []string  // what the store's voters note says, as far as this office wrote it; nil: unknown
	noteFailed time.Time // when writing it last failed
	noteDoubt  time.Time // when making it shorter last failed, so that nobody knows whether that will still happen
	backups    *backups
}

func newOffice(r *replica, term uint64) *office {
	o := &office{n: r.n, r: r, term: term, started: time.Now(), wake: make(chan struct{}, 1), orders: make(chan order), ended: make(chan struct{})}
	o.mu.watch = roster.NewWatch(0)
	o.mu.heard = map[string]said{}
	return o
}

// now is the office's clock: monotonic, from its beginning.
func (o *office) now() time.Duration { return time.Since(o.started) }

// run holds the office until this node does not lead in this term any more.
func (o *office) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer close(o.ended)
	defer beside.Wait()
	defer cancel()
	o.r.office.Store(o)
	defer o.n.unsay()
	defer o.r.office.Store(nil)
	defer o.n.alarms.keep("office")
	o.n.log.Info("this node leads", "term", o.term)
	o.n.moved.tell()
	o.n.pokeCheckIn()
	if o.n.shelf != nil {
		o.backups = newBackups(o)
		beside.Go(func() { o.backups.run(ctx) })
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		st := o.r.q.State()
		if !st.Leader || st.Term != o.term {
			return
		}
		o.r.notice(st)
		first := !o.ready()
		did := o.round(ctx, st)
		if did || first && o.ready() {
			o.n.pokeCheckIn()
		}
		if did {
			continue // something was done: look again at once
		}
		select {
		case <-ctx.Done():
		case <-o.r.q.Changed():
		case <-o.wake:
		case x := <-o.orders:
			x.done <- x.do(ctx)
		case <-tick.C:
		}
	}
}

// round does at most one thing, and reports whether it did.
func (o *office) round(ctx context.Context, st quorum.State) bool {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	if !o.open.Load() {
		return o.install(ctx)
	}
	if cmd, ok := o.clerk(st); ok {
		return o.command(ctx, cmd)
	}
	v, s := o.look(st)
	o.judge(v, s)
	return o.carry(ctx, v, s)
}

// install does what must stand before anything is given out: the founding's facts, this incarnation, the fencing epoch, the settings.
func (o *office) install(ctx context.Context) bool {
	if err := o.ground(ctx); err != nil {
		if ctx.Err() == nil {
			o.n.alarms.raise("office ground", "the leader cannot take its office: "+err.Error())
		}
		return false
	}
	o.n.alarms.clear("office ground")
	o.open.Store(true)
	o.n.moved.tell()
	return true
}

func (o *office) ground(ctx context.Context) error {
	if err := o.n.lay(ctx, o); err != nil {
		return err
	}
	incarnation := o.r.facts().Incarnation
	var epoch uint64
	o.r.f.Read(func(t *fsm.Tables, _ time.Duration, _ uint64) { epoch = t.Leases.Incarnation() })
	if epoch < incarnation {
		reply, err := o.r.q.Propose(ctx, fsm.RouteLease, lease.Epoch(incarnation))
		if err = errors.Join(err, replied(err, reply, lease.EpochReply)); err != nil {
			return fmt.Errorf("raising the fencing epoch to %d: %w", incarnation, err)
		}
	}
	return o.settle(ctx)
}

// settle writes the settings of this node's file where the cluster has none: founding does it.
func (o *office) settle(ctx context.Context) error {
	have := o.r.settings()
	for _, kv := range [][2]string{
		{tuning.Size, strconv.Itoa(o.n.o.Size)},
		{tuning.Settle, o.n.o.Settle.String()},
		{tuning.VoterBudget, strconv.FormatFloat(o.n.o.VoterBudget, 'g', -1, 64)},
		{tuning.Share, "1"},
	} {
		if _, ok := have[kv[0]]; ok {
			continue
		}
		if err := o.set(ctx, kv[0], kv[1]); err != nil {
			return err
		}
	}
	return nil
}

func (o *office) set(ctx context.Context, key, value string) error {
	reply, err := o.r.q.Propose(ctx, fsm.RouteTuning, tuning.Set(key, value))
	if err = errors.Join(err, replied(err, reply, tuning.Answer)); err != nil {
		return fmt.Errorf("setting %s: %w", key, err)
	}
	return nil
}

func replied(err error, reply []byte, read func([]byte) error) error {
	if err != nil {
		return nil
	}
	return read(reply)
}

// command proposes a command of the roster. It reports whether the table took it.
func (o *office) command(ctx context.Context, c roster.Command) bool {
	reply, err := o.r.q.Propose(ctx, fsm.RouteRoster, c.Encode())
	if err = errors.Join(err, replied(err, reply, roster.ParseReply)); err != nil {
		o.n.log.Debug("roster command", "op", c.Op, "node", c.ID, "error", err)
		return false
	}
	if c.Op == roster.OpMark {
		o.n.log.Info(fmt.Sprintf("%s is %s", roster.NameOf(c.ID), c.Mark.Intent), "node", c.ID)
	}
	return true
}

// look makes the view of this moment and asks for the step.
func (o *office) look(st quorum.State) (roster.View, roster.Step) {
	in := o.in(st)
	o.mu.Lock()
	defer o.mu.Unlock()
	in.Proposing = o.spreading(in)
	for _, s := range in.Servers {
		if at := o.r.q.Follower(s.ID).Contact; !at.IsZero() {
			o.mu.watch.Heard(o.now()-time.Since(at), s.ID)
		}
	}
	o.mu.view = o.mu.watch.View(o.now(), in)
	return o.mu.view, roster.Decide(o.mu.view)
}

// spreadFor bounds how long a change of the configuration is given to reach those that have no seat.
const spreadFor = 1500 * time.Millisecond

// spreading: the last change of the configuration has not reached a server without a seat that is there to hear of it. Seats are waited for by
// roster.Decide itself; but a standby that is to take the second of two seats must not be passed over because it has not heard of the
// first yet. The caller holds mu.
func (o *office) spreading(in roster.Office) bool {
	if in.ConfigIndex != o.configIndex {
		o.configIndex, o.configSince = in.ConfigIndex, o.now()
	}
	if o.now()-o.configSince >= spreadFor {
		return false
	}
	for _, s := range in.Servers {
		h, heard := o.mu.heard[s.ID]
		if !s.Voter && heard && o.now()-h.at < checkInEvery*3/2 && h.index < in.ConfigIndex && h.lastTerm == in.Term {
			return true
		}
	}
	return false
}

// in is what the leader knows of itself.
func (o *office) in(st quorum.State) roster.Office {
	in := roster.Office{Me: st.ID, Nonce: o.n.nonce, Addr: o.n.address(), Ordinal: o.n.o.Ordinal, Term: st.Term, LastIndex: st.LastIndex,
		ConfigIndex: st.ConfigIndex, Ready: st.Ready && st.ConfigCommitted, Size: o.size(), Settle: o.settleFor(), Rows: o.r.rows()}
	for _, s := range st.Servers {
		in.Servers = append(in.Servers, roster.Server{ID: s.ID, Voter: s.Voter})
	}
	o.n.mu.Lock()
	in.Intent = o.n.mu.departure.intent
	o.n.mu.Unlock()
	return in
}

func (o *office) size() int {
	n, err := strconv.Atoi(o.r.settings()[tuning.Size])
	if err != nil {
		return o.n.o.Size
	}
	return n
}

func (o *office) settleFor() time.Duration {
	d, err := time.ParseDuration(o.r.settings()[tuning.Settle])
	if err != nil {
		return o.n.o.Settle
	}
	return d
}

// clerk finds the next thing to write down: who is new or has moved, what somebody intends, a founding to confirm.
func (o *office) clerk(st quorum.State) (roster.Command, bool) {
	if o.confirm.Load() && !o.r.facts().Confirmed {
		return roster.Command{Op: roster.OpConfirm}, true
	}
	in := o.in(st)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.watch.Due(o.now(), in)
}

// judge raises the alarms that follow from a look.
func (o *office) judge(v roster.View, s roster.Step) {
	o.rested.Store(s.Kind == roster.Rest)
	o.judgeNames(v)
	seats := 0
	for i := range v.Nodes {
		if v.Nodes[i].Role == roster.Voter {
			seats++
		}
	}
	if seats%2 == 1 {
		o.evenSince = time.Time{}
		o.n.alarms.clear("office even")
		return
	}
	if o.evenSince.IsZero() {
		o.evenSince = time.Now()
	}
	if time.Since(o.evenSince) > evenTooLong {
		o.n.alarms.raise("office even", fmt.Sprintf("the cluster has had %d seats for %v: %s", seats, time.Since(o.evenSince).Round(time.Second), orElse(s.Why, "no step is possible")))
	}
}

// judgeNames raises an alarm where two disks of one name have both been in contact for a while. A node that starts on a new disk is not meant: its
// old one falls silent.
func (o *office) judgeNames(v roster.View) {
	at := map[string]string{}
	var twins []string
	for i := range v.Nodes {
		x := &v.Nodes[i]
		if !x.Contact || !x.Steady {
			continue
		}
		if other, two := at[x.Name]; two {
			twins = append(twins, "twin "+x.Name)
			o.n.alarms.raise("twin "+x.Name, fmt.Sprintf("two nodes are called %s: at %s and at %s; stop one of them and give it another node.id", x.Name, min(other, x.Addr), max(other, x.Addr)))
		}
		at[x.Name] = x.Addr
	}
	o.n.alarms.keep("twin ", twins...)
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
