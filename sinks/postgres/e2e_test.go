//go:build e2e

package postgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/row"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/sinks/sinktest"
	"github.com/stream-arrow/twgd/test/servers"
)

// server is the PostgreSQL that the tests of this package share, except those that stop it.
var server *servers.PostgresServer

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var err error
	if server, err = servers.Postgres(ctx, servers.PostgresOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// database is one database of one test, and a superuser's connection to it.
type database struct {
	t   *testing.T
	dsn string
	sql *pgx.Conn
}

func newDatabase(t *testing.T, s *servers.PostgresServer) *database {
	t.Helper()
	dsn, err := s.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := &database{t: t, dsn: dsn}
	d.connect()
	return d
}

func (d *database) connect() {
	d.t.Helper()
	var err error
	if d.sql, err = pgx.Connect(d.t.Context(), d.dsn); err != nil {
		d.t.Fatal(err)
	}
	conn := d.sql
	d.t.Cleanup(func() { conn.Close(context.Background()) })
}

func (d *database) exec(statement string, args ...any) {
	d.t.Helper()
	if _, err := d.sql.Exec(d.t.Context(), statement, args...); err != nil {
		d.t.Fatalf("%s: %v", statement, err)
	}
}

// ask expects the rows of a query, each as its columns printed and joined by |.
func (d *database) ask(query string, want ...string) {
	d.t.Helper()
	rows, err := d.sql.Query(d.t.Context(), query)
	if err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	got, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
		values, err := r.Values()
		var columns []string
		for _, v := range values {
			columns = append(columns, fmt.Sprint(v))
		}
		return strings.Join(columns, "|"), err
	})
	if err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		d.t.Errorf("%s:\n%s\nwant\n%s", query, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// sink makes a sink over table "orders" that is closed with the test; change may alter its options.
func (d *database) sink(change func(*Options)) *Sink {
	d.t.Helper()
	o := Options{DSN: d.dsn, Table: "orders", Create: true, ValueAs: Text, Stream: "s", Sink: "db", Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { s.Close() })
	return s
}

// opened is sink, and opens it.
func (d *database) opened(change func(*Options)) *Sink {
	d.t.Helper()
	s := d.sink(change)
	if err := s.Open(d.t.Context()); err != nil {
		d.t.Fatalf("open: %v", err)
	}
	return s
}

var orders0 = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{1, 2, 3}, Number: 0}

// values are records with these values from offset 0 on.
func values(vs ...string) (rs []record.Record) {
	for i, v := range vs {
		rs = append(rs, record.Record{Key: []byte("k"), Value: []byte(v), Offset: int64(i), Timestamp: 1_700_000_000_000, LeaderEpoch: 1, ProducerID: -1, ProducerEpoch: -1})
	}
	return rs
}

func batchOf(p record.Partition, from, to int64, rs []record.Record) *row.Batch {
	return &row.Batch{Partition: p, Span: checkpoint.Span{From: from, To: to}, Records: rs, IDs: record.NewHasher(p).IDs(nil, rs)}
}

// loaded begins a load with the records, whose offsets are from..to.
func loaded(t *testing.T, s *Sink, p record.Partition, rs []record.Record) *load {
	t.Helper()
	l, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Discard)
	if err := l.Add(batchOf(p, rs[0].Offset, rs[len(rs)-1].Offset+1, rs)); err != nil {
		t.Fatal(err)
	}
	return l.(*load)
}

// rejects is a Report that keeps "offset: detail".
type rejects []string

func (r *rejects) report(_ context.Context, rs []sinks.Reject) error {
	for _, x := range rs {
		*r = append(*r, fmt.Sprintf("%d: %s", x.Offset, x.Detail))
	}
	return nil
}

// commits expects a commit to reject exactly these.
func commits(t *testing.T, l sinks.Load, want ...string) sinks.Receipt {
	t.Helper()
	var got rejects
	receipt, err := l.Commit(t.Context(), got.report)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("rejected\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return receipt
}

// fails expects an error of that kind whose text holds part, and no rejects.
func fails(t *testing.T, err error, kind sinks.Kind, part string) {
	t.Helper()
	var e *sinks.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %v, want a *sinks.Error", err)
	}
	if e.Kind != kind || !strings.Contains(e.Reason, part) {
		t.Errorf("the error is %v: %q (%v), want %v: %q", e.Kind, e.Reason, e.Err, kind, part)
	}
}

func noReport(t *testing.T) sinks.Report {
	return func(_ context.Context, rs []sinks.Reject) error {
		for _, r := range rs {
			t.Errorf("rejected %d: %s", r.Offset, r.Detail)
		}
		return nil
	}
}

func TestConformance(t *testing.T) {
	for _, v := range []ValueAs{Bytea, Text} {
		t.Run(string(v), func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Fixture { return fixture(t, v) })
		})
	}
}

// fixture is a sink on a table of its own; it is broken by refusing connections.
func fixture(t *testing.T, v ValueAs) sinktest.Fixture {
	d := newDatabase(t, server)
	faults, err := servers.NewTCPFaults(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { faults.Close() })
	via, err := servers.Via(d.dsn, faults.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return sinktest.Fixture{
		Topic: "topic-" + strings.ToLower(rand.Text()),
		Sink: func(t *testing.T) sinks.Sink {
			return d.sink(func(o *Options) { o.DSN, o.ValueAs = via, v })
		},
		Read: func(t *testing.T, p record.Partition) []sinktest.Row { return d.read(p) },
		Break: func(t *testing.T) func() {
			set(t, faults, servers.TCPRefuse)
			return func() { set(t, faults, servers.TCPPass) }
		},
		Spoil: func(r *record.Record) { r.Headers = []record.Header{{Key: "secret\x00", Value: []byte("v")}} },
	}
}

func set(t *testing.T, f *servers.TCPFaults, mode servers.TCPMode) {
	t.Helper()
	if err := f.Set(mode); err != nil {
		t.Fatal(err)
	}
}

// read decodes all rows of a partition by pgx, which knows nothing of how they were written.
func (d *database) read(p record.Partition) []sinktest.Row {
	d.t.Helper()
	rows, err := d.sql.Query(d.t.Context(), `SELECT _twg_record_id, __kafka_offset, (extract(epoch from __kafka_timestamp) * 1000)::bigint, __kafka_timestamp_type,
		__kafka_leader_epoch, __kafka_producer_id, __kafka_producer_epoch, __kafka_headers::text, __kafka_key, __kafka_value
		FROM orders WHERE __kafka_topic = $1 AND __kafka_partition = $2 ORDER BY __kafka_offset`, p.Topic, p.Number)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, func(c pgx.CollectableRow) (r sinktest.Row, err error) {
		var ms *int64
		var typ int16
		var headers string
		rec := &r.Record
		if err := c.Scan((*[16]byte)(&r.ID), &rec.Offset, &ms, &typ, &rec.LeaderEpoch, &rec.ProducerID, &rec.ProducerEpoch, &headers, &rec.Key, &rec.Value); err != nil {
			return r, err
		}
		rec.TimestampType, rec.Timestamp = int8(typ), -1
		if ms != nil {
			rec.Timestamp = *ms
		}
		rec.Headers, err = headersOf(headers)
		return r, err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

func headersOf(text string) (hs []record.Header, err error) {
	var pairs [][2]*string
	if err := json.Unmarshal([]byte(text), &pairs); err != nil {
		return nil, err
	}
	for _, p := range pairs {
		h := record.Header{Key: *p[0]}
		if p[1] != nil {
			if h.Value, err = base64.StdEncoding.AppendDecode([]byte{}, []byte(*p[1])); err != nil {
				return nil, err
			}
		}
		hs = append(hs, h)
	}
	return hs, nil
}
