package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/stream-arrow/twgd/cluster"
)

// measureStart takes the time from the start of a process that is a cluster of one to its status naming it the leader: with an empty
// directory, and with what it left there.
func measureStart(ctx context.Context, b *bench) error {
	var bare, founded, back []float64
	for range b.rounds() {
		at := time.Now()
		if err := exec.Command(b.twgd, "version").Run(); err != nil {
			return fmt.Errorf("twgd version: %w", err)
		}
		bare = append(bare, milliseconds(time.Since(at)))
		all, err := b.places(1)
		if err != nil {
			return err
		}
		for _, to := range []*[]float64{&founded, &back} {
			took, err := b.startOnce(ctx, all)
			if err != nil {
				return err
			}
			*to = append(*to, milliseconds(took))
		}
	}
	r := &b.report
	r.add("twgd version, start to end", "ms", bare)
	r.add("one node, start to leader, empty directory", "ms", founded, aim{AtMost: 500})
	r.add("one node, start to leader, coming back", "ms", back, aim{AtMost: 500})
	return nil
}

func (b *bench) startOnce(ctx context.Context, all []place) (time.Duration, error) {
	n, err := all[0].launch(b, all)
	if err != nil {
		return 0, err
	}
	if err := n.awaitCluster(ctx, 1); err != nil {
		return 0, errors.Join(err, n.logTail(), n.kill())
	}
	took := time.Since(n.began)
	_, err = n.stop()
	return took, err
}

// awaitCluster waits until the node's status says that all seats are filled and somebody leads.
func (n *node) awaitCluster(ctx context.Context, seats int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		s, err := n.cluster()
		if err == nil && s.State == "ok" && s.Leader != "" && s.Seats != nil && *s.Seats == seats {
			return nil
		}
		if err := n.sleep(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the cluster: %w", err)
		}
	}
}

// cluster is the cluster's part of /status.
func (n *node) cluster() (cluster.Status, error) {
	var s struct{ Cluster cluster.Status }
	resp, err := http.Get(n.url + "/status")
	if err != nil {
		return s.Cluster, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s.Cluster, err
}

// measureRest is what nodes cost that have nothing to do: no streams, no leases.
func measureRest(ctx context.Context, b *bench) error {
	for _, c := range []struct {
		nodes int
		name  string
	}{{1, "one node at rest"}, {3, "three nodes at rest, each"}} {
		if err := b.rest(ctx, c.nodes, c.name); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// restSettle is how long nodes are let alone before they are watched: roles are settled, and memory is taken.
const restSettle = 15 * time.Second

func (b *bench) rest(ctx context.Context, count int, name string) (err error) {
	all, err := b.places(count)
	if err != nil {
		return err
	}
	var nodes []*node
	defer func() {
		for _, n := range nodes {
			_, stopErr := n.stop()
			err = errors.Join(err, stopErr)
		}
	}()
	for _, p := range all {
		n, err := p.launch(b, all)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		if err := n.awaitCluster(ctx, count); err != nil {
			return errors.Join(err, n.logTail())
		}
	}
	if err := nodes[0].sleep(ctx, restSettle); err != nil {
		return err
	}
	return b.watchRest(ctx, nodes, name)
}

// watchRest first looks at what the kernel counts, then counts syncs: being traced costs.
func (b *bench) watchRest(ctx context.Context, nodes []*node, name string) error {
	span := time.Duration(b.seconds) * time.Second
	before := activities(nodes)
	if err := nodes[0].sleep(ctx, span); err != nil {
		return err
	}
	after := activities(nodes)
	add := func(what, unit string, f func(x, y activity) float64, aims ...aim) {
		b.report.add(name+", "+what, unit, each(func(i int) float64 { return f(before[i], after[i]) }, len(nodes)), aims...)
	}
	perSecond := func(x, y activity, n float64) float64 { return n / y.at.Sub(x.at).Seconds() }
	add("CPU", "ms/s", func(x, y activity) float64 { return perSecond(x, y, milliseconds(y.cpu-x.cpu)) })
	add("memory", "MiB", func(_, y activity) float64 { return float64(y.rss) / (1 << 20) })
	add("reads and writes", "calls/s", func(x, y activity) float64 { return perSecond(x, y, float64(y.io-x.io)) })
	add("sleeps of threads", "/s", func(x, y activity) float64 { return perSecond(x, y, float64(y.sleeps-x.sleeps)) })
	add("given to the disk", "bytes", func(x, y activity) float64 { return float64(y.stored - x.stored) })
	syncs := make([]float64, len(nodes))
	for i, n := range nodes {
		var err error
		if syncs[i], err = b.countSyncs(ctx, n, span); errors.Is(err, exec.ErrNotFound) {
			b.say("strace is not here: syncs are not counted")
			return nil
		} else if err != nil {
			return err
		}
	}
	b.report.add(fmt.Sprintf("%s, syncs in %v", name, span), "calls", syncs)
	return nil
}

func activities(nodes []*node) (all []activity) {
	for _, n := range nodes {
		all = append(all, activityOf(n.cmd.Process.Pid))
	}
	return all
}

// countSyncs counts with strace how often a process asks for something to be made durable.
func (b *bench) countSyncs(ctx context.Context, n *node, span time.Duration) (float64, error) {
	dir, err := b.scratch()
	if err != nil {
		return 0, err
	}
	file := filepath.Join(dir, "strace")
	cmd := exec.Command("strace", "-f", "-p", fmt.Sprint(n.cmd.Process.Pid), "-e", "trace=fsync,fdatasync,msync,sync,syncfs,sync_file_range", "-o", file)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	watched := n.sleep(ctx, span)
	stopErr := cmd.Process.Signal(os.Interrupt)
	cmd.Wait() // ends with the signal
	text, err := os.ReadFile(file)
	return float64(syncsIn(string(text))), errors.Join(watched, stopErr, err)
}

var syncCall = regexp.MustCompile(`(?m)^\d+ +(fsync|fdatasync|msync|sync|syncfs|sync_file_range)\(`)

// syncsIn counts the calls in what strace wrote: each once, also where another thread's stand between its two lines.
func syncsIn(text string) int { return len(syncCall.FindAllString(text, -1)) }
