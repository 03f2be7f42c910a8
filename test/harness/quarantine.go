package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/avro/ocf"
)

// Rejected is a row of a quarantine.
type Rejected struct {
	ID            string    `avro:"_twg_record_id"`
	Topic         string    `avro:"__kafka_topic"`
	Partition     int32     `avro:"__kafka_partition"`
	Offset        int64     `avro:"__kafka_offset"`
	Timestamp     *int64    `avro:"__kafka_timestamp"`
	TimestampType int32     `avro:"__kafka_timestamp_type"`
	LeaderEpoch   int32     `avro:"__kafka_leader_epoch"`
	ProducerID    int64     `avro:"__kafka_producer_id"`
	ProducerEpoch int32     `avro:"__kafka_producer_epoch"`
	Headers       []head    `avro:"__kafka_headers"`
	Key           *[]byte   `avro:"__kafka_key"`
	Value         *[]byte   `avro:"__kafka_value"`
	Reason        string    `avro:"reason"`
	Sink          string    `avro:"sink"`
	Detail        *string   `avro:"detail"`
	At            time.Time `avro:"at"`
	Cluster       string    `avro:"cluster"`
	TopicID       string    `avro:"topic_id"`
	Generation    int32     `avro:"generation"`
	KeySize       *int64    `avro:"key_size"`
	ValueSize     *int64    `avro:"value_size"`
	HeadersCount  int32     `avro:"headers_count"`
}

func (r Rejected) String() string {
	detail := "null"
	if r.Detail != nil {
		detail = *r.Detail
	}
	return fmt.Sprintf("%s %d/%d %s: %s", r.Sink, r.Partition, r.Offset, r.Reason, detail)
}

// Quarantine reads a stream's quarantine in the order of offsets.
func Quarantine(t testing.TB, dir, stream string) (rows []Rejected) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, stream, "*", "*.avro"))
	Must(t, err)
	for _, path := range files {
		f, err := os.Open(path)
		Must(t, err)
		defer f.Close()
		r, err := ocf.NewReader(f)
		Must(t, err)
		defer r.Close()
		for {
			var row Rejected
			if err := r.Decode(&row); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("quarantine %s: %v", path, err)
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b Rejected) int { return int(a.Offset - b.Offset) })
	return rows
}
