package gossip

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// How often others are looked for.
const (
	aloneEvery  = time.Second      // while nobody is there, or another process has our name
	aloneMost   = 5 * time.Second  // the same, after a while
	absentEvery = 10 * time.Second // while somebody is there: those that are not
	lookupFor   = 2 * time.Second
	atOnce      = 8 // addresses
)

// keepCompany contacts whom this member should hear of and does not. memberlist itself forgets the dead after half a minute: two halves
// of a cluster that were apart for longer would never meet again, and a member that started before its peers would stay alone.
func (g *Gossip) keepCompany(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		v := g.look(ctx)
		g.contact(ctx, v.whom(rand.IntN))
		g.warn()
		pause = v.next(pause)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// company is what decides whom to contact.
type company struct {
	own    string
	seeds  []string // addresses, resolved a moment ago
	alive  []string
	absent []string // were members once
	rival  string   // has our name
}

// look gathers a company. Names are resolved each time: where all peers have come back at other addresses, only their names lead to them.
func (g *Gossip) look(ctx context.Context) company {
	now := time.Now()
	v := company{own: g.addr, rival: g.roll.rival(now)}
	for _, m := range g.roll.list(now) {
		if m.Alive {
			v.alive = append(v.alive, m.Gossip)
		} else {
			v.absent = append(v.absent, m.Gossip)
		}
	}
	for _, seed := range g.o.Seeds() {
		v.seeds = append(v.seeds, g.resolve(ctx, seed)...)
	}
	return v
}

func (g *Gossip) resolve(ctx context.Context, seed string) (out []string) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		g.o.Log.Debug("a seed of gossip is no host:port", "seed", seed, "error", err)
		return nil
	}
	if net.ParseIP(host) != nil {
		return []string{seed}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupFor)
	defer cancel()
	ips, err := g.o.Lookup(ctx, host)
	if err != nil {
		g.o.Log.Debug("a seed of gossip has no address", "seed", seed, "error", err)
	}
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, port))
	}
	return out
}

// whom returns the addresses to contact now. Alone: all. In company: two of those who are missing. With a rival: it, so that it hears of us
// too, and somebody who may have found out by now that it is dead.
func (v company) whom(random func(int) int) (out []string) {
	missing := slices.DeleteFunc(append(slices.Clone(v.seeds), v.absent...), func(a string) bool {
		return a == v.own || slices.Contains(v.alive, a)
	})
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if len(v.alive) > 0 {
		for len(missing) > 2 {
			i := random(len(missing))
			missing = slices.Delete(missing, i, i+1)
		}
	}
	if v.rival != "" {
		missing = append(missing, v.rival)
		if len(v.alive) > 0 {
			missing = append(missing, v.alive[random(len(v.alive))])
		}
	}
	return missing
}

// next returns when to look again.
func (v company) next(pause time.Duration) time.Duration {
	switch {
	case v.rival != "":
		return aloneEvery
	case len(v.alive) > 0:
		return absentEvery
	case pause > aloneMost:
		return aloneEvery
	}
	return min(max(2*pause, aloneEvery), aloneMost)
}

// contact exchanges what is known with some addresses. Silent ones take streamFor, all of them at once.
func (g *Gossip) contact(ctx context.Context, addresses []string) {
	var jobs sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, a := range addresses {
		places <- struct{}{}
		jobs.Go(func() {
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			if _, err := g.list.Join([]string{a}); err != nil {
				g.o.Log.Debug("gossip does not reach a peer", "peer", a, "error", err)
			}
		})
	}
	jobs.Wait()
}

// warn logs conflicts, each again as long as it is there: a line a minute.
func (g *Gossip) warn() {
	now := time.Now()
	for _, c := range g.roll.clashes(now) {
		if g.roll.warned(c.Name, now) {
			g.o.Log.Error("two processes have one name: stop one of them", "name", c.Name, "one", c.A, "other", c.B)
		}
	}
}
