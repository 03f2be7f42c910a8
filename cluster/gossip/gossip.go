// Package gossip tells which nodes are alive, and what each says of itself, through memberlist.
//
//	g, err := gossip.New(gossip.Options{…})   // listens
//	go g.Run(ctx)                             // finds the others; says goodbye at the end
//	for range g.Changed() { members := g.Members() }
//
// Gossip is a hint: it tells quickly, and may be wrong. It cannot tell who has left for good from who has failed; what a node intends
// travels in its metadata, and for certain as a command of the replicated tables.
package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// How quickly the dead are noticed: probed every probeEvery in turn, suspected after one failed probe, dead suspectFor later unless
// somebody hears of them. Measured over a network in memory, with two to seven members: all knew after 2.6 to 4.6 s.
const (
	probeEvery = 500 * time.Millisecond
	answerFor  = 300 * time.Millisecond
	syncEvery  = 5 * time.Second
	streamFor  = 2 * time.Second
)

// Bounds of what memberlist is asked, so that nothing hangs at the end.
const (
	updateFor = 500 * time.Millisecond
	leaveFor  = time.Second
)

// Options of a Gossip. Functions must be safe for concurrent use; they are never called by memberlist itself.
type Options struct {
	Name      string                                                   // unique among processes: the server id, or node~instance where there is none
	Bind      string                                                   // host:port
	Advertise string                                                   // host or host:port that others are told; empty: Bind's host, or the first private address
	Keys      [][]byte                                                 // of 32 bytes: the first encrypts, all decrypt
	Meta      func() Meta                                              // what this node says of itself
	Seeds     func() []string                                          // host:port of others' gossip; nil: none
	Transport memberlist.NodeAwareTransport                            // nil: UDP and TCP at Bind
	Lookup    func(ctx context.Context, host string) ([]string, error) // IP addresses of a name; nil: the system's resolver
	Log       *slog.Logger                                             // nil: silent
}

// Gossip is one member. Safe for concurrent use.
type Gossip struct {
	o       Options
	list    *memberlist.Memberlist
	addr    string
	roll    roll
	changed chan struct{}
	updated chan struct{}

	ending sync.Mutex
	ended  bool
}

// New listens, and is alone until Run finds others.
func New(o Options) (*Gossip, error) {
	o.complete()
	if len(o.Keys) == 0 {
		return nil, errors.New("gossip needs a key")
	}
	g := &Gossip{o: o, changed: make(chan struct{}, 1), updated: make(chan struct{}, 1)}
	g.roll = roll{name: o.Name, members: map[string]*entry{}, conflicts: map[string]*clash{}, changed: g.changed}
	if err := g.describe(); err != nil {
		return nil, err
	}
	conf, err := g.config()
	if err != nil {
		return nil, err
	}
	if g.list, err = memberlist.Create(conf); err != nil {
		return nil, fmt.Errorf("gossiping at %s: %w", o.Bind, err)
	}
	g.addr = g.roll.at()
	if at, err := netip.ParseAddrPort(g.addr); err != nil || at.Addr().IsUnspecified() {
		return nil, errors.Join(fmt.Errorf("gossiping at %s: others cannot be told such an address; set cluster.advertise", o.Bind), g.Close())
	}
	return g, nil
}

func (o *Options) complete() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Seeds == nil {
		o.Seeds = func() []string { return nil }
	}
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupHost
	}
}

// config is memberlist's, for a local network, but quicker to notice the dead.
//
// Without DeadNodeReclaimTime a member that comes back at another address is refused until its old self is forgotten, which takes the
// better part of a minute. Without Conflict nobody hears of two processes with one name. Messages are too short to be worth compressing: each
// would take an encoder of its own, a third of all that a node at rest allocates. What others compress is still understood.
func (g *Gossip) config() (*memberlist.Config, error) {
	c := memberlist.DefaultLANConfig()
	c.Name = g.o.Name
	c.Transport = g.o.Transport
	c.ProbeInterval, c.ProbeTimeout = probeEvery, answerFor
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = 4, 2
	c.AwarenessMaxMultiplier = 4
	c.PushPullInterval, c.TCPTimeout = syncEvery, streamFor
	c.DeadNodeReclaimTime = time.Millisecond
	c.EnableCompression = false
	d := delegate{&g.roll}
	c.Delegate, c.Events, c.Conflict = d, d, d
	c.Logger = log.New(lines{g.o.Log}, "", 0)
	keys, err := memberlist.NewKeyring(g.o.Keys, g.o.Keys[0])
	if err != nil {
		return nil, fmt.Errorf("keys of gossip: %w", err)
	}
	c.Keyring = keys
	return c, g.place(c)
}

// place sets where to listen and what to advertise.
func (g *Gossip) place(c *memberlist.Config) (err error) {
	if c.BindAddr, c.BindPort, err = g.hostPort(g.o.Bind, 0); err != nil {
		return fmt.Errorf("gossip's address %q: %w", g.o.Bind, err)
	}
	c.AdvertisePort = c.BindPort
	if g.o.Advertise == "" {
		return nil
	}
	if c.AdvertiseAddr, c.AdvertisePort, err = g.hostPort(g.o.Advertise, c.BindPort); err != nil {
		return fmt.Errorf("the address %q to advertise: %w", g.o.Advertise, err)
	}
	return nil
}

// hostPort returns the IP address and the port of host:port, or, where there is a port to assume, of a host alone.
func (g *Gossip) hostPort(address string, assume int) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil && assume != 0 {
		host, text, err = strings.Trim(address, "[]"), strconv.Itoa(assume), nil
	}
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if net.ParseIP(host) == nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookupFor)
		defer cancel()
		ips, err := g.o.Lookup(ctx, host)
		if err != nil {
			return "", 0, err
		}
		host = ips[0]
	}
	return host, int(port), nil
}

// Addr returns the host:port that others are told.
func (g *Gossip) Addr() string { return g.addr }

// Run finds the others and keeps finding them, until ctx ends; then it tells them goodbye and closes. It returns when all that this
// member started has ended.
func (g *Gossip) Run(ctx context.Context) error {
	var jobs sync.WaitGroup
	jobs.Go(func() { g.keepCompany(ctx) })
	jobs.Go(func() { g.keepTelling(ctx) })
	<-ctx.Done()
	err := g.end(true)
	jobs.Wait()
	time.Sleep(g.lastProbe())
	return err
}

// lastProbe is how long a probe that has begun may still take: memberlist does not interrupt it when it shuts down. Its bound grows
// with the score of its own health, half a second where that is good.
func (g *Gossip) lastProbe() time.Duration {
	return probeEvery * time.Duration(g.list.GetHealthScore()+1)
}

// Close ends a member at once, without a goodbye: it is for one that does not run.
func (g *Gossip) Close() error { return g.end(false) }

// end closes once: memberlist panics where somebody leaves after that.
func (g *Gossip) end(goodbye bool) error {
	g.ending.Lock()
	defer g.ending.Unlock()
	if g.ended {
		return nil
	}
	g.ended = true
	if goodbye {
		if err := g.list.Leave(leaveFor); err != nil {
			g.o.Log.Debug("the others were not told goodbye; they will notice", "error", err)
		}
	}
	return g.list.Shutdown()
}

// Update says that Meta would answer otherwise now. It returns at once; the others hear of it within a second.
func (g *Gossip) Update() {
	select {
	case g.updated <- struct{}{}:
	default:
	}
}

// keepTelling tells the others what has changed of this node.
func (g *Gossip) keepTelling(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.updated:
		}
		if err := g.describe(); err != nil {
			g.o.Log.Warn("the others are not told of a change of this node", "error", err)
			continue
		}
		if err := g.list.UpdateNode(updateFor); err != nil {
			g.o.Log.Debug("a change of this node spreads slowly", "error", err)
		}
	}
}

// describe asks for the metadata outside of memberlist's callbacks, and refuses what memberlist would panic at.
func (g *Gossip) describe() error {
	b, err := g.o.Meta().encode()
	if err != nil {
		return err
	}
	g.roll.describe(b)
	return nil
}

// Members returns the other members that were heard of, alive or within the last hour, sorted by name.
func (g *Gossip) Members() []Member { return g.roll.list(time.Now()) }

// Conflicts returns who goes on under one name in two processes, as far as it was seen within the last minute.
func (g *Gossip) Conflicts() []Conflict { return g.roll.clashes(time.Now()) }

// Changed has a value when Members or Conflicts may answer otherwise than before.
func (g *Gossip) Changed() <-chan struct{} { return g.changed }

// lines takes what memberlist logs: lines for those who look for a fault.
type lines struct{ log *slog.Logger }

func (l lines) Write(b []byte) (int, error) {
	l.log.Debug("memberlist", "line", strings.TrimSpace(string(b)))
	return len(b), nil
}
