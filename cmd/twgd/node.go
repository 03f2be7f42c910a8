package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stream-arrow/twgd/admin"
	"github.com/stream-arrow/twgd/config"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/recovery"
	"github.com/stream-arrow/twgd/store"
)

// node is the process: it holds the data directory, serves HTTP and the socket, and runs the streams.
type node struct {
	cfg      *config.Config
	log      *slog.Logger
	started  time.Time
	instance string // <node id>~<random, kept in the data directory>
	lock     *store.FileLock
	registry *prometheus.Registry
	pipes    *pipeline.Metrics
	recover  *recovery.Metrics
	server   *admin.Server
	part     *part // in the cluster; nil at size 0
	streams  []*stream
	duties   duties
	share    share
	ended    context.Context // ends when the node is to end by itself
	end      context.CancelFunc
}

// newNode takes the data directory and listens. Nothing else is touched yet, so that /live answers at once.
func newNode(cfg *config.Config, log *slog.Logger, how joining) (_ *node, err error) {
	n := &node{cfg: cfg, log: log, started: time.Now(), registry: prometheus.NewRegistry(), duties: allDuties()}
	n.ended, n.end = context.WithCancel(context.Background())
	if err := os.MkdirAll(cfg.Node.DataDir, 0o755); err != nil {
		return nil, fmt.Errorf("the data directory: %w; node.data_dir names another", err)
	}
	if n.lock, err = store.Lock(filepath.Join(cfg.Node.DataDir, "lock")); err != nil {
		return nil, fail(exitRefused, fmt.Errorf("the data directory belongs to one process: %w", err))
	}
	if n.instance, err = instance(cfg); err != nil {
		return nil, errors.Join(err, n.lock.Unlock())
	}
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	n.pipes, n.recover = pipeline.NewMetrics(n.registry), recovery.NewMetrics(n.registry)
	for i := range cfg.Streams {
		n.streams = append(n.streams, &stream{node: n, cfg: &cfg.Streams[i], log: log.With("stream", cfg.Streams[i].Name)})
		n.pipes.Begin(cfg.Streams[i].Name, sinkNames(&cfg.Streams[i])...)
	}
	n.registry.MustRegister(&gauges{node: n})
	n.part, err = openPart(n, how)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w; set cluster.listen or cluster.gossip to another address", err)
	}
	if err != nil {
		return nil, errors.Join(err, n.lock.Unlock())
	}
	if n.part != nil {
		n.duties = n.part.duties()
		n.part.node.Subscribe(func(_ bool, budget float64) { n.setShare(budget) })
	}
	n.server, err = admin.Listen(admin.Options{
		Address: string(cfg.Node.HTTP), DataDir: cfg.Node.DataDir, Live: n.live, Ready: n.ready, Status: func() any { return n.status() },
		Metrics: promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{}), Commands: n.commands(), Grace: 2 * time.Second, Log: log,
	})
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w; set node.http to another address", err)
	}
	if err != nil {
		return nil, errors.Join(err, n.part.close(), n.lock.Unlock())
	}
	return n, nil
}

func sinkNames(s *config.Stream) (names []string) {
	for i := range s.Sinks {
		names = append(names, s.Sinks[i].Name)
	}
	return names
}

// random is what tells this process from others of its name.
func (n *node) random() string {
	_, random, _ := strings.Cut(n.instance, "~")
	return random
}

// instance tells two processes of one host apart: the node's id and something random that stays in the data directory.
func instance(cfg *config.Config) (string, error) {
	path := filepath.Join(cfg.Node.DataDir, "instance")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		var r [4]byte
		rand.Read(r[:])
		b = []byte(hex.EncodeToString(r[:]))
		err = os.WriteFile(path, append(b, '\n'), 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("the instance id in the data directory: %w", err)
	}
	return cfg.Node.ID + "~" + strings.TrimSpace(string(b)), nil
}

func buildInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "twg_build_info", Help: "What runs.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "go": goVersion()}})
	g.Set(1)
	return g
}

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return "unknown"
}

// run serves and moves records until ctx ends, then puts everything down within the grace period. A stream that is refused at its
// start ends the node: that is a mistake of the configuration, and better seen at once.
func (n *node) run(ctx context.Context) error {
	defer n.lock.Unlock()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- n.server.Run(serving) }()
	n.log.Info("twgd runs", "version", version, "node", n.instance, "http", "http://"+n.server.Address(), "streams", len(n.streams))

	moving, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(n.ended, stop)()
	leaveCluster := n.part.run(moving, stop)
	ended := make(chan error, len(n.streams))
	var running sync.WaitGroup
	for _, s := range n.streams {
		running.Go(func() {
			err := s.run(moving)
			if err != nil {
				s.log.Error("the stream has ended", "error", err)
			}
			if errors.Is(err, errRefused) {
				stop()
			}
			ended <- err
		})
	}
	<-moving.Done()
	running.Wait()
	err := leaveCluster()
	stopServing()
	close(ended)
	err = errors.Join(err, <-served)
	for e := range ended {
		err = errors.Join(err, e)
	}
	if err == nil {
		n.log.Info("twgd ends; everything taken is stored")
	}
	return err
}
