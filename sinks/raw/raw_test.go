package raw_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
)

var orders = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{1, 2, 3}, Number: 4}

func open(t *testing.T, url string) *raw.Store {
	t.Helper()
	b, err := store.Open(t.Context(), url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := raw.Open(t.Context(), raw.Options{Bucket: b, Stream: "s", Codec: "zstd", Roll: 400})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// batch has one record for each offset of [first, next), but odd ones are holes.
func batch(first, next int64) *record.Batch {
	b := &record.Batch{Partition: orders, First: first, Next: next, LeaderEpoch: 7}
	for o := first; o < next; o++ {
		if o%2 == 0 {
			b.Records = append(b.Records, record.Record{Offset: o, Timestamp: o, Key: nil, Value: []byte(fmt.Sprint(o)),
				Headers: []record.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "\xff"}}})
		}
	}
	return b.Weigh(nil)
}

func from(n int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return n, nil }
}

func TestReadsBackWhatWasAppended(t *testing.T) {
	for _, url := range []string{"file://" + t.TempDir(), "mem://" + t.Name()} {
		s := open(t, url)
		head, err := s.Begin(t.Context(), orders, from(10))
		if err != nil || head.Next != 10 {
			t.Fatal(head, err)
		}
		for o := int64(10); o < 100; o += 10 {
			st, err := s.Append(t.Context(), orders, []*record.Batch{batch(o, o+5), batch(o+5, o+10)})
			if err != nil || !st.Ours || st.Next != o+10 || st.Last != o {
				t.Fatal(st, err)
			}
		}
		s.Close()

		s = open(t, url)
		head, err = s.Begin(t.Context(), orders, from(0))
		if err != nil || head.Next != 100 || head.Genesis != 10 || head.LeaderEpoch != 7 || head.Last != 90 {
			t.Fatal(head, err)
		}
		var got []int64
		err = s.Read(t.Context(), orders, checkpoint.Span{From: 15, To: 33}, func(b *record.Batch) error {
			for _, r := range b.Records {
				got = append(got, r.Offset)
				if string(r.Value) != fmt.Sprint(r.Offset) || r.Key != nil || r.Headers[0].Value != nil || r.Headers[1].Value == nil || r.Headers[2].Key != "\xff" {
					t.Errorf("record %d came back as %+v", r.Offset, r)
				}
			}
			return nil
		})
		if want := []int64{16, 18, 20, 22, 24, 26, 28, 30, 32}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatal(got, err)
		}
		ps, err := s.Partitions(t.Context())
		if err != nil || len(ps) != 1 || ps[0] != orders {
			t.Fatal(ps, err)
		}
		s.Close()
	}
}

func TestTornEndIsCutAndDamageIsNot(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir)
	s.Begin(t.Context(), orders, from(0))
	for o := int64(0); o < 3; o++ {
		if _, err := s.Append(t.Context(), orders, []*record.Batch{batch(o*2, o*2+2)}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	files, _ := filepath.Glob(filepath.Join(dir, "s", orders.Path(), "*.avro"))
	last := files[len(files)-1]
	whole, _ := os.ReadFile(last)
	os.WriteFile(last, append(whole, 40, 80, 1, 2, 3), 0o644)
	s = open(t, "file://"+dir)
	if head, err := s.Begin(t.Context(), orders, from(0)); err != nil || head.Next != 6 {
		t.Fatal(head, err)
	}
	s.Close()
	if b, _ := os.ReadFile(last); len(b) != len(whole) {
		t.Fatalf("the torn end was not cut: %d bytes, not %d", len(b), len(whole))
	}
}
