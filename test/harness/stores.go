package harness

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stream-arrow/twgd/test/servers"
)

//go:embed read.py
var readers string

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// Database is a fresh database's DSN.
func (s *Suite) Database(t testing.TB) string {
	t.Helper()
	dsn, err := s.Postgres.NewDatabase(t.Context())
	Must(t, err)
	return dsn
}

// Connect opens a session of its own, which ends with the test.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	Must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Query returns the first column of a query's rows.
func Query[T any](t testing.TB, dsn, sql string, args ...any) []T {
	t.Helper()
	conn := Connect(t, dsn)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sql, args...)
	Must(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	Must(t, err)
	return out
}

// Exec runs statements.
func Exec(t testing.TB, dsn, sql string) {
	t.Helper()
	conn := Connect(t, dsn)
	defer conn.Close(t.Context())
	_, err := conn.Exec(t.Context(), sql)
	Must(t, err)
}

// TableIDs are the record ids in a table, each as often as it is there.
func TableIDs(t testing.TB, dsn, table string) []string {
	t.Helper()
	return Query[string](t, dsn, "select _twg_record_id::text from "+table)
}

// Row is a row of Parquet as DuckDB reads it, bytes in hexadecimal.
type Row struct {
	ID            string `json:"id"`
	Partition     int32  `json:"partition"`
	Offset        int64  `json:"offset"`
	Timestamp     *int64 `json:"timestamp"`
	TimestampType int8   `json:"timestamp_type"`
	Headers       []struct {
		Key   string
		Value *string
	} `json:"headers"`
	Key   *string `json:"key"`
	Value *string `json:"value"`
}

// LakeIDs are the record ids in all Parquet files of a stream, by DuckDB.
func (s *Suite) LakeIDs(t testing.TB, location, stream string) (ids []string) {
	t.Helper()
	dir := filepath.Join(s.Local(t, location), stream)
	Must(t, servers.PythonJSON(t.Context(), readers, nil, &ids, "lake_ids", dir))
	return ids
}

// Lake are the rows in all Parquet files of a stream, by DuckDB.
func (s *Suite) Lake(t testing.TB, location, stream string) (out []Record) {
	t.Helper()
	var rows []Row
	dir := filepath.Join(s.Local(t, location), stream)
	Must(t, servers.PythonJSON(t.Context(), readers, nil, &rows, "lake", dir))
	for _, r := range rows {
		out = append(out, r.record(t))
	}
	return out
}

func (r Row) record(t testing.TB) Record {
	t.Helper()
	out := Record{Partition: r.Partition, Offset: r.Offset, Timestamp: -1, TimestampType: r.TimestampType, Key: unhex(t, r.Key), Value: unhex(t, r.Value)}
	if r.Timestamp != nil {
		out.Timestamp = *r.Timestamp
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, Header{h.Key, unhex(t, h.Value)})
	}
	return out
}

func unhex(t testing.TB, s *string) []byte {
	t.Helper()
	if s == nil {
		return nil
	}
	b, err := hex.DecodeString(*s)
	Must(t, err)
	if b == nil {
		return []byte{}
	}
	return b
}

// RawByFastavro are the records of a stream's raw store as Python's fastavro reads them.
func (s *Suite) RawByFastavro(t testing.TB, location, stream string) (out []Record) {
	t.Helper()
	var rows []Row
	dir := filepath.Join(s.Local(t, location), stream)
	Must(t, servers.PythonJSON(t.Context(), readers, nil, &rows, "raw", dir))
	for _, r := range rows {
		out = append(out, r.record(t))
	}
	return out
}
