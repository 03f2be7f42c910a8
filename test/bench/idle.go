package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"
)

// measureIdle is what many partitions cost to which nobody writes.
func measureIdle(ctx context.Context, b *bench) (err error) {
	const topic = "idle"
	if _, err := b.kafka.CreateTopic(ctx, topic, int32(b.idle), nil); err != nil {
		return err
	}
	dir, err := b.scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	begin := time.Now()
	n, err := startNode(ctx, b.twgd, dir, b.stream(topic, "file://"+dir+"/raw", ""), nil)
	if err != nil {
		return err
	}
	if err := n.awaitReading(ctx, b.idle); err != nil {
		return errors.Join(err, n.kill())
	}
	started := time.Since(begin)
	if err := n.sleep(ctx, 3*time.Second); err != nil {
		return errors.Join(err, n.logTail())
	}
	before := activityOf(n.cmd.Process.Pid)
	if err := n.sleep(ctx, time.Duration(b.seconds)*time.Second); err != nil {
		return errors.Join(err, n.logTail())
	}
	after := activityOf(n.cmd.Process.Pid)
	u, err := n.stop()
	if err != nil {
		return err
	}
	seconds := after.at.Sub(before.at).Seconds()
	r := &b.report
	r.add("idle partitions", "partitions", []float64{float64(b.idle)})
	r.add("until all are read", "s", []float64{started.Seconds()})
	r.add("memory while idle", "MiB", []float64{float64(after.rss) / (1 << 20)})
	r.add("peak memory", "MiB", []float64{float64(u.peak) / (1 << 20)})
	r.add("CPU while idle", "ms/s", []float64{float64((after.cpu - before.cpu).Milliseconds()) / seconds})
	r.add("reads and writes while idle", "calls/s", []float64{float64(after.io-before.io) / seconds})
	r.add("sleeps of threads while idle", "/s", []float64{float64(after.sleeps-before.sleeps) / seconds})
	return nil
}

// awaitReading waits until the log has named count partitions.
func (n *node) awaitReading(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		b, err := os.ReadFile(n.log)
		if err != nil {
			return err
		}
		if strings.Count(string(b), `msg="reading a partition"`) >= count {
			return nil
		}
		if err := n.sleep(ctx, 100*time.Millisecond); err != nil {
			return errors.Join(err, n.logTail())
		}
	}
}
