//go:build e2e

package postgres

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
)

// benchRows is the size of a load, benchValue that of a value in bytes.
const (
	benchRows  = 10_000
	benchValue = 200
)

// BenchmarkCommit writes loads of 10,000 rows of 200 bytes. One operation is one load: Begin, Add, Commit. It reports rows a second and
// CPU seconds of this process and of the server for a million rows.
func BenchmarkCommit(b *testing.B) {
	for _, v := range []ValueAs{Bytea, Text, JSONB} {
		b.Run(string(v), func(b *testing.B) {
			s, _ := benchSink(b, v)
			batches := benchBatches(b, v)
			measure(b, func(i int) {
				if err := benchCommit(b.Context(), s, batches[i]); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkMerge writes loads whose spans are covered and whose rows are all there.
func BenchmarkMerge(b *testing.B) {
	s, _ := benchSink(b, Bytea)
	batches := benchBatches(b, Bytea)
	for _, batch := range batches {
		if err := benchCommit(b.Context(), s, batch); err != nil {
			b.Fatal(err)
		}
	}
	measure(b, func(i int) {
		if err := benchCommit(b.Context(), s, batches[i]); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkBareCopy copies the same bytes, encoded beforehand, into the same table, each load in a transaction of its own: the
// least that any client can do. The variants show what indexes cost.
func BenchmarkBareCopy(b *testing.B) {
	for _, c := range []struct{ name, sql string }{
		{"keyed", "SELECT 1"},
		{"with BRIN", "CREATE INDEX ON orders USING brin (__kafka_partition, __kafka_offset)"},
		{"without key", "ALTER TABLE orders DROP CONSTRAINT orders_pkey"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, conn := benchSink(b, Bytea)
			if _, err := conn.Exec(b.Context(), c.sql); err != nil {
				b.Fatal(err)
			}
			copies := benchCopies(b, s)
			copySQL := "COPY orders (" + columnList() + ") FROM STDIN (FORMAT binary)"
			measure(b, func(i int) {
				if _, err := conn.PgConn().CopyFrom(b.Context(), bytes.NewReader(copies[i]), copySQL); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkJSONFault(b *testing.B) {
	doc := benchBytes(rand.New(rand.NewPCG(1, 2)), JSONB)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if jsonFault(doc) != "" {
			b.Fatal("refused")
		}
	}
}

func benchSink(b *testing.B, v ValueAs) (*Sink, *pgx.Conn) {
	b.Helper()
	dsn, err := server.NewDatabase(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	conn, err := pgx.Connect(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close(context.Background()) })
	s, err := New(Options{DSN: dsn, Table: "orders", Create: true, ValueAs: v, Stream: "s", Sink: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if err := s.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s, conn
}

// benchBatches are one batch for each operation, so that no row comes twice.
func benchBatches(b *testing.B, v ValueAs) []*row.Batch {
	rng := rand.New(rand.NewPCG(1, 2))
	batches := make([]*row.Batch, b.N)
	for i := range batches {
		rs := make([]record.Record, benchRows)
		for j := range rs {
			offset := int64(i*benchRows + j)
			rs[j] = record.Record{Key: fmt.Appendf(nil, "key-%08d", rng.IntN(1e8)), Value: benchBytes(rng, v), Offset: offset,
				Timestamp: 1_700_000_000_000 + offset/20, LeaderEpoch: 1, ProducerID: -1, ProducerEpoch: -1}
		}
		batches[i] = batchOf(orders0, int64(i*benchRows), int64((i+1)*benchRows), rs)
	}
	return batches
}

func benchBytes(rng *rand.Rand, v ValueAs) []byte {
	if v == JSONB {
		return fmt.Appendf(nil, `{"id": %d, "name": "%0100d", "tags": ["a", "b"], "nested": {"x": %d, "y": null}, "pad": "%032d"}`,
			rng.IntN(1e9), rng.Uint64(), rng.IntN(1e6), rng.Uint64())
	}
	value := make([]byte, benchValue)
	for k := range value {
		value[k] = byte('a' + rng.IntN(26))
	}
	return value
}

func benchCommit(ctx context.Context, s *Sink, batch *row.Batch) error {
	l, err := s.Begin()
	if err != nil {
		return err
	}
	defer l.Discard()
	if err := l.Add(batch); err != nil {
		return err
	}
	_, err = l.Commit(ctx, func(context.Context, []sinks.Reject) error { return nil })
	return err
}

// benchCopies are the streams that Commit would send.
func benchCopies(b *testing.B, s *Sink) [][]byte {
	copies := make([][]byte, 0, b.N)
	for _, batch := range benchBatches(b, Bytea) {
		l := newLoad(s, s.table().layout)
		if err := l.Add(batch); err != nil {
			b.Fatal(err)
		}
		var stream bytes.Buffer
		if _, err := stream.ReadFrom(l.reader(l.live())); err != nil {
			b.Fatal(err)
		}
		l.Discard()
		copies = append(copies, stream.Bytes())
	}
	return copies
}

// measure runs f for each operation and reports what a million rows cost.
func measure(b *testing.B, f func(i int)) {
	client, backend, start := cpu(), serverCPU(b), time.Now()
	b.ResetTimer()
	for i := range b.N {
		f(i)
	}
	b.StopTimer()
	rows := float64(b.N * benchRows)
	b.ReportMetric(rows/time.Since(start).Seconds(), "rows/s")
	b.ReportMetric((cpu()-client).Seconds()/rows*1e6, "client-CPU-s/Mrow")
	b.ReportMetric((serverCPU(b)-backend).Seconds()/rows*1e6, "server-CPU-s/Mrow")
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverCPU is what the processes of the shared server have used that still run: the fields 14 and 15 of /proc/*/stat, in hundredths of a
// second, of the children of its first process. It is 0 where the server is not ours.
func serverCPU(b *testing.B) (used time.Duration) {
	b.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if fields[1] != strconv.Itoa(server.PID()) {
			continue
		}
		for _, f := range fields[11:13] {
			ticks, err := strconv.Atoi(f)
			if err != nil {
				b.Fatal(err)
			}
			used += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return used
}
