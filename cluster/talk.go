package cluster

import (
	"context"
	"time"

	"github.com/stream-arrow/twgd/cluster/gossip"
)

// meta is what this node says of itself in gossip.
func (n *Node) meta() gossip.Meta {
	f := n.facts()
	m := gossip.Meta{Name: n.o.Node, Ordinal: n.o.Ordinal, Address: n.address(), Founding: f.Founding, Incarnation: f.Incarnation,
		Confirmed: f.Confirmed, Nonce: n.nonce}
	n.mu.Lock()
	defer n.mu.Unlock()
	m.ServerID, m.Intent = n.mu.id, uint8(n.mu.departure.intent)
	return m
}

// gossipSeeds are where others gossip, as they said in their hellos.
func (n *Node) gossipSeeds() []string {
	all := n.asker.all()
	var out []string
	for _, h := range all {
		if h.answered() && h.hello.Gossip != "" && h.hello.ID != n.id() {
			out = append(out, h.hello.Gossip)
		}
	}
	return out
}

func (n *Node) gossipMembers() []gossip.Member {
	if n.gossip == nil {
		return nil
	}
	return n.gossip.Members()
}

// clashEvery is how often it is looked whether a name is still alive twice.
const clashEvery = 10 * time.Second

// listenToGossip takes in where others are, as soon as gossip tells, and raises an alarm as long as a name is alive twice.
func (n *Node) listenToGossip(ctx context.Context) error {
	tick := time.NewTicker(clashEvery)
	defer tick.Stop()
	for {
		for _, m := range n.gossip.Members() {
			if m.Alive && n.book.see(m.ServerID, m.Address) {
				n.poke()
				n.pokeCheckIn()
			}
		}
		var names []string
		for _, c := range n.gossip.Conflicts() {
			names = append(names, "name "+c.Name)
			n.alarms.raise("name "+c.Name, "two processes go on under the name "+c.Name+": at "+c.A+" and at "+c.B+"; stop one of them: where its disk is a copy, "+
				"its raft directory has to go before it starts again, under another node.id")
		}
		n.alarms.keep("name ", names...)
		select {
		case <-ctx.Done():
			return nil
		case <-n.gossip.Changed():
		case <-tick.C:
		}
	}
}
