package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/cluster"
)

// rounds is how often what takes place once a round is tried.
func (b *bench) rounds() int { return 2*b.runs - 1 }

// place is where a node of a cluster is.
type place struct {
	name           string
	ordinal        int
	dir            string
	listen, gossip string // empty in a cluster of one, which nobody can join
}

const clusterSecret = "only the bench's nodes know this: 0123456789"

// places makes room for the nodes of a new cluster below a directory that is removed with the bench's.
func (b *bench) places(nodes int) ([]place, error) {
	dir, err := b.scratch()
	if err != nil {
		return nil, err
	}
	all := make([]place, nodes)
	for i := range all {
		p := place{name: fmt.Sprintf("bench-%d", i), ordinal: i, dir: filepath.Join(dir, fmt.Sprint(i))}
		if err := os.Mkdir(p.dir, 0o755); err != nil {
			return nil, err
		}
		if nodes > 1 {
			var err error
			if p.listen, err = freeAddress(); err == nil {
				p.gossip, err = freeAddress()
			}
			if err != nil {
				return nil, err
			}
		}
		all[i] = p
	}
	return all, nil
}

// join are the addresses of all; none in a cluster of one.
func join(all []place) (addresses []string) {
	for _, p := range all {
		if p.listen != "" {
			addresses = append(addresses, p.listen)
		}
	}
	return addresses
}

// launch runs bin/twgd there, without streams.
func (p place) launch(b *bench, all []place) (*node, error) {
	text := fmt.Sprintf("cluster: {name: bench, size: %d", len(all))
	if p.listen != "" {
		text += fmt.Sprintf(", listen: %q, gossip: %q, advertise: 127.0.0.1, join: [%s], secret: %q", p.listen, p.gossip, strings.Join(join(all), ", "), clusterSecret)
	}
	return launch(b.twgd, p.dir, "id: "+p.name, text+"}\n", nil)
}

// seat is a node of a cluster in this process.
type seat struct {
	place   place
	node    *cluster.Node
	stop    context.CancelFunc
	drained chan struct{}
	ended   chan error
	log     *os.File
}

// open starts a node there, in this process.
func (p place) open(all []place) (_ *seat, err error) {
	s := &seat{place: p, drained: make(chan struct{}), ended: make(chan error, 1)}
	if s.log, err = os.OpenFile(filepath.Join(p.dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	o := cluster.Options{Cluster: "bench", Node: p.name, Instance: "bench", Ordinal: p.ordinal, Mode: "both", Dir: filepath.Join(p.dir, "data"), Size: len(all),
		Listen: p.listen, Gossip: p.gossip, Join: join(all), Log: slog.New(slog.NewTextHandler(s.log, nil))}
	if p.listen != "" {
		o.Secret = clusterSecret
	}
	if s.node, err = cluster.New(o); err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() { s.ended <- s.node.Run(ctx, s.drained) }()
	return s, nil
}

// close ends the node as SIGTERM does.
func (s *seat) close() error {
	s.stop()
	close(s.drained)
	return errors.Join(<-s.ended, s.log.Close())
}

// closeSeats ends several, the later ones first.
func closeSeats(seats []*seat) error {
	var errs []error
	for i := range seats {
		errs = append(errs, seats[len(seats)-1-i].close())
	}
	return errors.Join(errs...)
}

// logTail is the end of the log as an error.
func (s *seat) logTail() error {
	b, _ := os.ReadFile(s.log.Name())
	return errors.New("the log of " + s.place.name + " ends:\n" + string(b[max(0, len(b)-2000):]))
}

// whole waits until all seats are filled and in contact, and returns who leads.
func (s *seat) whole(ctx context.Context, seats int) (leader string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		st := s.node.Status()
		if st.State == "ok" && st.Leader != "" && st.Seats != nil && *st.Seats == seats && st.Tolerance != nil && *st.Tolerance == (seats-1)/2 {
			return st.Leader, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return "", fmt.Errorf("the cluster is %s after two minutes: %w", st.State, errors.Join(ctx.Err(), s.logTail()))
		}
	}
}

// openAll starts a cluster in this process.
func (b *bench) openAll(ctx context.Context, nodes int) (seats []*seat, err error) {
	all, err := b.places(nodes)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		s, err := p.open(all)
		if err != nil {
			return nil, errors.Join(err, closeSeats(seats))
		}
		seats = append(seats, s)
	}
	if _, err := seats[0].whole(ctx, nodes); err != nil {
		return nil, errors.Join(err, closeSeats(seats))
	}
	return seats, nil
}
