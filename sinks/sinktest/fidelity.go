package sinktest

import (
	"bytes"
	"math"
	"testing"

	"github.com/stream-arrow/twgd/record"
)

// Unusual is one record for each thing that a store likes to lose, at offsets from on. Every sink keeps all of them: what only
// some can hold (zero bytes, timestamps beyond a calendar) is left to the tests of each.
func Unusual(from int64) []record.Record {
	none := record.Record{ProducerID: -1, LeaderEpoch: -1, ProducerEpoch: -1, Timestamp: -1, TimestampType: record.TimestampNone}
	rs := []record.Record{
		none, // D20: neither key, value nor headers
		{Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{{Key: "h", Value: []byte("x")}}},
		{Key: []byte("k"), Value: nil}, // D19
		{Key: []byte("k"), Value: []byte{}},
		{Key: nil, Value: []byte("v")},
		{Key: []byte{}, Value: []byte("v")},
		{Key: []byte{}, Value: []byte{}},
		{Headers: []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "c", Value: []byte{}}}}, // D18
		{Headers: []record.Header{{Key: "", Value: []byte{0xff, 0xfe}}, {Key: "", Value: nil}, {Key: "ключ", Value: []byte("значение")}}},
		{Key: []byte("k"), Value: bytes.Repeat([]byte("long "), 50_000)},
		{Value: []byte("log append"), TimestampType: record.TimestampLogAppend, Timestamp: 1_700_000_000_123}, // D21
		{Value: []byte("microseconds"), Timestamp: 1_700_000_000_000_000},
		{Value: []byte("1970"), Timestamp: 0},
		{Value: []byte("extremes"), ProducerID: math.MaxInt64, LeaderEpoch: math.MaxInt32, ProducerEpoch: math.MaxInt16, Timestamp: 1},
		{Value: []byte("extremes"), ProducerID: math.MinInt64, LeaderEpoch: math.MinInt32, ProducerEpoch: math.MinInt16, Timestamp: 1},
	}
	for i := range rs {
		rs[i].Offset = from + int64(i)
	}
	return rs
}

func testFidelity(t *testing.T, s *suite) {
	p := s.partition(0)
	records := Unusual(0)
	last := plain(math.MaxInt64 - 1) // the greatest offset that a half-open span can hold
	last.Timestamp = 1
	n := int64(len(records))
	l := s.load(t, s.sink, batch(p, 0, n, records...), batch(p, n, math.MaxInt64, last))
	if r := s.commit(t, l); r.Rows != n+1 || r.Rejected != 0 {
		t.Errorf("the receipt says %d rows and %d rejected, want %d and 0", r.Rows, r.Rejected, n+1)
	}
	s.holds(t, p, append(records, last)...)
}

// testNotKept overwrites what was added, as a source does that takes its memory back.
func testNotKept(t *testing.T, s *suite) {
	p := s.partition(0)
	records, want := Unusual(0), Unusual(0)
	b := batch(p, 0, int64(len(records)), records...)
	l := s.load(t, s.sink, b)
	for i := range records {
		scribble(&records[i])
		b.IDs[i] = record.ID{0xff}
	}
	s.commit(t, l)
	s.holds(t, p, want...)
}

func scribble(r *record.Record) {
	for _, bytes := range [][]byte{r.Key, r.Value} {
		for i := range bytes {
			bytes[i] = '#'
		}
	}
	for i := range r.Headers {
		for j := range r.Headers[i].Value {
			r.Headers[i].Value[j] = '#'
		}
		r.Headers[i] = record.Header{Key: "#"}
	}
	*r = record.Record{}
}
