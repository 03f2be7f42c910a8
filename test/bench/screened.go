package main

import (
	"context"
	"fmt"
)

// measureScreened is what telling repeated records costs a stream: the same passes without it, counting and dropping, in turn. No record of the
// workload repeats another, so each must be claimed.
func measureScreened(ctx context.Context, b *bench) error {
	n := b.work.count()
	archive := func(string) string { return "" }
	lake := func(dir string) string {
		return fmt.Sprintf("{name: lake, parquet: {to: \"file://%s/lake\", roll: {age: 2s}}%s}", dir, b.laneQueue())
	}
	for _, kind := range []struct {
		name          string
		sinks         func(string) string
		without, with string // the metric that has all records at the end
	}{{"raw alone", archive, "twg_gate_records_total", "twg_dedup_checked_total+twg_dedup_unavailable_total"}, {"raw and Parquet", lake, "twg_sink_rows_total", "twg_sink_rows_total"}} {
		plain := flow{topic: fullTopic, n: n, sinks: kind.sinks, metric: kind.without, more: alone("")}
		screened := plain
		screened.metric, screened.more = kind.with, alone("{mode: drop}")
		if err := b.compareScreened(ctx, kind.name, plain, screened); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) compareScreened(ctx context.Context, name string, plain, screened flow) error {
	var all [2]passes
	var idle [2]used
	var err error
	flows := [2]flow{plain, screened}
	for i, f := range flows {
		if idle[i], err = b.idlePass(ctx, f); err != nil {
			return err
		}
	}
	for range b.runs {
		for i, f := range flows {
			p, err := b.pass(ctx, f, idle[i])
			if err != nil {
				return err
			}
			all[i] = append(all[i], p)
		}
	}
	without, with := all[0], all[1]
	r := &b.report
	r.add(name+", without dedup", "records/s", without.costs().perSecond(plain.n))
	r.add(name+", dropping by the value", "records/s", with.costs().perSecond(plain.n))
	r.add(name+", records that passed unasked", "per cent", with.each(func(p pass) float64 { return 100 * p.unasked / float64(plain.n) }))
	r.add(name+", throughput / without dedup", "ratio", ratios(with.costs().perSecond(plain.n), without.costs().perSecond(plain.n)), aim{AtLeast: 0.9})
	r.add(name+", CPU / without dedup", "ratio", ratios(sum(with.costs()), sum(without.costs())))
	r.add(name+", peak memory more", "MiB", each(func(i int) float64 { return float64(with[i].peak-without[i].peak) / (1 << 20) }, b.runs))
	return nil
}

// alone is the configuration of a cluster of one, and of how its stream tells repeated records.
func alone(dedup string) func() (string, error) {
	return func() (string, error) {
		listen, err := freeAddress()
		if err != nil {
			return "", err
		}
		gossip, err := freeAddress()
		if err != nil {
			return "", err
		}
		stream := ""
		if dedup != "" {
			stream = "    contract: {unique: true}\n    dedup: " + dedup + "\n"
		}
		return fmt.Sprintf("%scluster: {name: bench, size: 1, voter_budget: 1, listen: %q, gossip: %q}\n", stream, listen, gossip), nil
	}
}
