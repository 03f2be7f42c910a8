package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/parquet/file"
)

// measureParquet is the broker into raw and Parquet, beside its parts.
func measureParquet(ctx context.Context, b *bench) error {
	n := b.work.count()
	f := flow{topic: fullTopic, n: n, metric: "twg_sink_rows_total",
		sinks: func(dir string) string {
			return fmt.Sprintf("{name: lake, parquet: {to: \"file://%s/lake\", roll: {age: 2s}}%s}", dir, b.laneQueue())
		},
		check: func(_ context.Context, dir string) error { return checkParquet(dir, n) }}
	idle, err := b.idlePass(ctx, f)
	if err != nil {
		return err
	}
	var twgd passes
	var client, segment, plain, columns costs
	for range b.runs {
		p, err := b.pass(ctx, f, idle)
		if err != nil {
			return err
		}
		twgd = append(twgd, p)
		if err := b.rawParts(ctx, fullTopic, b.work, p, &client, &segment, &plain); err != nil {
			return err
		}
		c, err := measure(func() error { return b.inScratch(func(dir string) error { return writeParquet(dir, b.work) }) })
		if err != nil {
			return err
		}
		columns = append(columns, c)
	}
	r := &b.report
	r.addPasses(twgd, n)
	r.add("twgd, batches refused by the lane", "batches", twgd.each(func(p pass) float64 { return p.refused }))
	r.add("bare client that discards", "records/CPU-s", client.perCPUSecond(n))
	r.add("segment from memory", "records/CPU-s", segment.perCPUSecond(n))
	r.add("ids and column writers from memory", "rows/CPU-s", columns.perCPUSecond(n))
	r.add("CPU of twgd / client + segment + ids and column writers", "ratio", ratios(sum(twgd.costs()), sum(client, segment, columns)), aim{AtMost: 1.25})
	return nil
}

// checkParquet counts the rows in the footers of all files.
func checkParquet(dir string, want int) error {
	files, err := filepath.Glob(filepath.Join(dir, "lake/bench/*/*/*.parquet"))
	if err != nil {
		return err
	}
	rows := 0
	for _, name := range files {
		n, err := parquetRows(name)
		if err != nil {
			return err
		}
		rows += n
	}
	return wantRows(rows, want)
}

func parquetRows(name string) (int, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	r, err := file.NewParquetReader(f)
	if err != nil {
		f.Close()
		return 0, err
	}
	defer r.Close() // closes the file
	return int(r.NumRows()), nil
}
