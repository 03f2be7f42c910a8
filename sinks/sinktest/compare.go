package sinktest

import (
	"bytes"
	"fmt"

	"github.com/stream-arrow/twgd/record"
)

// Difference says in which field got is not what want is, and is empty where they are alike. Null and empty are different,
// headers have an order. Transactional, which has no column, is not compared.
func Difference(got, want *record.Record) string {
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"offset", got.Offset, want.Offset},
		{"timestamp type", int64(got.TimestampType), int64(want.TimestampType)},
		{"timestamp", got.Timestamp, want.Timestamp},
		{"leader epoch", int64(got.LeaderEpoch), int64(want.LeaderEpoch)},
		{"producer id", got.ProducerID, want.ProducerID},
		{"producer epoch", int64(got.ProducerEpoch), int64(want.ProducerEpoch)},
		{"number of headers", int64(len(got.Headers)), int64(len(want.Headers))},
	} {
		if c.got != c.want {
			return fmt.Sprintf("the %s is %d, want %d", c.name, c.got, c.want)
		}
	}
	return differentBytes(got, want)
}

func differentBytes(got, want *record.Record) string {
	if !same(got.Key, want.Key) {
		return fmt.Sprintf("the key is %s, want %s", show(got.Key), show(want.Key))
	}
	if !same(got.Value, want.Value) {
		return fmt.Sprintf("the value is %s, want %s", show(got.Value), show(want.Value))
	}
	for i, w := range want.Headers {
		if g := got.Headers[i]; g.Key != w.Key || !same(g.Value, w.Value) {
			return fmt.Sprintf("header %d is %q: %s, want %q: %s", i, g.Key, show(g.Value), w.Key, show(w.Value))
		}
	}
	return ""
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func show(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b[:min(len(b), 40)])
}
