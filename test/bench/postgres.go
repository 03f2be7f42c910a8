package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stream-arrow/twgd/record"
)

// copyRows is the number of rows in a COPY, twgd's default.
const copyRows = 10_000

// measurePostgres is the broker into raw and Postgres, beside its parts.
func measurePostgres(ctx context.Context, b *bench) error {
	if err := b.needPostgres(ctx); err != nil {
		return err
	}
	w := b.work.share(postgresShare)
	n := w.count()
	f := flow{topic: shareTopic, n: n, metric: "twg_sink_rows_total",
		sinks: func(string) string { return b.postgresSink("bench") },
		check: func(ctx context.Context, _ string) error { return b.checkPostgres(ctx, "bench", n) }}
	idle, err := b.idlePass(ctx, f)
	if err != nil {
		return err
	}
	if _, err := b.db.Exec(ctx, `CREATE TABLE bare (LIKE bench INCLUDING ALL)`); err != nil {
		return err
	}
	var twgd passes
	var client, segment, plain, encode, bare costs
	for range b.runs {
		if err := b.empty(ctx, "bench", "_twg_coverage"); err != nil {
			return err
		}
		p, err := b.pass(ctx, f, idle)
		if err != nil {
			return err
		}
		twgd = append(twgd, p)
		if err := b.rawParts(ctx, shareTopic, w, p, &client, &segment, &plain); err != nil {
			return err
		}
		if err := b.bareCopy(ctx, w, &encode, &bare); err != nil {
			return err
		}
	}
	r := &b.report
	r.addPasses(twgd, n)
	r.add("twgd, rows in a COPY", "rows", twgd.each(func(p pass) float64 { return float64(n) / p.loads }))
	r.add("twgd, batches refused by the lane", "batches", twgd.each(func(p pass) float64 { return p.refused }))
	r.add("bare COPY of what is encoded", "rows/s", bare.perSecond(n))
	r.add("bare COPY of what is encoded", "rows/CPU-s of the client", bare.perCPUSecond(n))
	r.add("ids and encoding of rows", "rows/CPU-s", encode.perCPUSecond(n))
	r.add("rows/s of twgd / rows/s of the bare COPY", "ratio", ratios(twgd.costs().perSecond(n), bare.perSecond(n)), aim{AtLeast: 0.8})
	r.add("CPU of twgd / client + segment + ids and encoding + COPY", "ratio", ratios(sum(twgd.costs()), sum(client, segment, encode, bare)), aim{AtMost: 1.25})
	return nil
}

func (b *bench) postgresSink(table string) string {
	return fmt.Sprintf("{name: db, postgres: {dsn: %q, table: %s, create: true, value_as: bytea}%s}", b.dsn, table, b.laneQueue())
}

func (b *bench) checkPostgres(ctx context.Context, table string, want int) error {
	var rows int
	if err := b.db.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
		return err
	}
	return wantRows(rows, want)
}

// empty empties tables, so that each pass begins with the same, and keeps the server's own upkeep out of what is measured next.
func (b *bench) empty(ctx context.Context, tables ...string) error {
	for _, t := range tables {
		if _, err := b.db.Exec(ctx, "TRUNCATE "+t); err != nil {
			return err
		}
	}
	_, err := b.db.Exec(ctx, "CHECKPOINT")
	return err
}

// bareCopy encodes the rows, which is one part, and copies them into an empty table of the same kind, which is another.
func (b *bench) bareCopy(ctx context.Context, w workload, encode, bare *costs) error {
	if err := b.empty(ctx, "bare"); err != nil {
		return err
	}
	var messages [][]byte
	c, err := measure(func() error { messages = encodeRows(w); return nil })
	if err != nil {
		return err
	}
	*encode = append(*encode, c)
	c, err = measure(func() error {
		for _, m := range messages {
			if _, err := b.db.PgConn().CopyFrom(ctx, bytes.NewReader(m), "COPY bare FROM STDIN (FORMAT binary)"); err != nil {
				return err
			}
		}
		return nil
	})
	*bare = append(*bare, c)
	return errors.Join(err, b.checkPostgres(ctx, "bare", w.count()))
}

// encodeRows makes the bodies of COPYs of copyRows rows.
func encodeRows(w workload) (messages [][]byte) {
	hashers := make([]*record.Hasher, len(w))
	for p := range w {
		hashers[p] = record.NewHasher(benchPartition(p))
	}
	var m []byte
	rows := 0
	w.batches(1000, func(p int, records []record.Record) error {
		for i := range records {
			if rows%copyRows == 0 {
				m = append(make([]byte, 0, copyRows*(200+len(records[i].Value))), "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
			}
			m = appendRow(m, p, hashers[p].ID(&records[i]), &records[i])
			if rows++; rows%copyRows == 0 || rows == w.count() {
				messages = append(messages, append(m, 0xff, 0xff))
			}
		}
		return nil
	})
	return messages
}

// appendRow writes the columns that docs/formats/postgres.md draws, in that order.
func appendRow(b []byte, p int, id record.ID, r *record.Record) []byte {
	sized := func(b, v []byte) []byte { return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...) }
	long := func(b []byte, v int64) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v))
	}
	integer := func(b []byte, v int32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(v))
	}
	short := func(b []byte, v int16) []byte {
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(b, 2), uint16(v))
	}
	b = binary.BigEndian.AppendUint16(b, 12)
	b = sized(b, id[:])
	b = sized(b, []byte(fullTopic))
	b = integer(b, int32(p))
	b = long(b, r.Offset)
	b = long(b, (r.Timestamp-time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())*1000)
	b = short(b, int16(r.TimestampType))
	b = integer(b, r.LeaderEpoch)
	b = long(b, r.ProducerID)
	b = short(b, r.ProducerEpoch)
	b = sized(b, []byte("\x01[]"))
	b = sized(b, r.Key)
	return sized(b, r.Value)
}
