package raw

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
)

// values are n records of 200 bytes that compress as events do: words of a small vocabulary, and numbers.
func values(p record.Partition, first int64, n int) []*record.Batch {
	rng := rand.New(rand.NewPCG(1, uint64(first)))
	words := strings.Fields("customer order amount currency status created updated region channel reference EUR USD open closed pending shop web mobile")
	b := &record.Batch{Partition: p, First: first, Next: first + int64(n), LeaderEpoch: 1, Records: make([]record.Record, n)}
	for i := range b.Records {
		v := fmt.Appendf(make([]byte, 0, 240), `{"id":%d`, rng.Uint64())
		for len(v) < 190 {
			v = fmt.Appendf(v, `,"%s":"%s%d"`, words[rng.IntN(len(words))], words[rng.IntN(len(words))], rng.IntN(1000))
		}
		b.Records[i] = record.Record{Offset: first + int64(i), Timestamp: 1_700_000_000_000 + int64(i), ProducerID: -1, ProducerEpoch: -1,
			Key: fmt.Appendf(nil, "%d", rng.IntN(1000)), Value: v[:200:200][:min(200, len(v))]}
	}
	return []*record.Batch{b.Weigh(nil)}
}

// TestAppendAllocatesNothingPerRecord: what a commit allocates does not depend on how many records it holds.
func TestAppendAllocatesNothingPerRecord(t *testing.T) {
	for _, layout := range []string{"file:///raw", "mem://allocations"} {
		d := storetest.NewDisk(1)
		b, err := store.Open(t.Context(), layout, store.Options{FS: d})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Options{Bucket: b, FS: d, Stream: "s", Codec: "zstd"})
		if err != nil {
			t.Fatal(err)
		}
		p, next := record.Partition{Topic: "t"}, int64(0)
		s.Begin(t.Context(), p, func(context.Context) (int64, error) { return 0, nil })
		per := func(n int) float64 {
			batches := values(p, 0, n)
			return testing.AllocsPerRun(20, func() {
				shift(batches[0], next)
				st, err := s.Append(context.Background(), p, batches)
				if err != nil {
					t.Fatal(err)
				}
				next = st.Next
			})
		}
		few, many := per(10), per(1000)
		t.Logf("%s: %v allocations a commit of 10 records, %v of 1,000", layout, few, many)
		if many > few+100 {
			t.Errorf("%s: %v allocations a commit of 10 records, %v of 1,000", layout, few, many)
		}
		s.Close()
	}
}

func shift(b *record.Batch, first int64) {
	by := first - b.First
	b.First, b.Next = first, b.Next+by
	for i := range b.Records {
		b.Records[i].Offset += by
	}
}

const perCommit = 50_000

// BenchmarkAppend encodes, compresses and syncs commits of 50,000 records of 200 bytes.
func BenchmarkAppend(b *testing.B) {
	for _, codec := range []string{"zstd", "snappy", "null"} {
		b.Run(codec, func(b *testing.B) {
			bucket, err := store.Open(b.Context(), "file://"+b.TempDir(), store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			s, err := Open(b.Context(), Options{Bucket: bucket, Stream: "s", Codec: codec})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			p, batches, next := record.Partition{Topic: "t"}, values(record.Partition{Topic: "t"}, 0, perCommit), int64(0)
			s.Begin(b.Context(), p, func(context.Context) (int64, error) { return 0, nil })
			b.SetBytes(perCommit * 200)
			b.ReportAllocs()
			for b.Loop() {
				shift(batches[0], next)
				st, err := s.Append(b.Context(), p, batches)
				if err != nil {
					b.Fatal(err)
				}
				next = st.Next
			}
			b.ReportMetric(float64(perCommit*b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkParts takes the same bytes apart: only encoding, and only the compression.
func BenchmarkParts(b *testing.B) {
	batches := values(record.Partition{}, 0, perCommit)
	entries, _ := appendCommit(nil, batches, time.Unix(0, 0))
	b.Run("encode", func(b *testing.B) {
		var dst []byte
		for b.Loop() {
			dst, _ = appendCommit(dst[:0], batches, time.Unix(0, 0))
		}
		b.ReportMetric(float64(perCommit*b.N)/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("zstd", func(b *testing.B) {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true))
		var dst []byte
		for b.Loop() {
			dst = e.EncodeAll(entries, dst[:0])
		}
		b.ReportMetric(float64(perCommit*b.N)/b.Elapsed().Seconds(), "records/s")
		b.ReportMetric(float64(len(entries))/float64(len(dst)), "ratio")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := parseCommit(entries, perCommit+1); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(perCommit*b.N)/b.Elapsed().Seconds(), "records/s")
	})
}

// BenchmarkFindInLongFile looks for one offset in a file of 128 MiB of blocks of 10 KB: as the first reader, and again.
func BenchmarkFindInLongFile(b *testing.B) {
	dir := b.TempDir()
	p := record.Partition{Topic: "t"}
	batches := values(p, 0, 46)
	var end int64
	{
		bucket, _ := store.Open(b.Context(), "file://"+dir, store.Options{})
		s, err := Open(b.Context(), Options{Bucket: bucket, FS: unsynced{store.OS}, Stream: "s", Codec: "null"})
		if err != nil {
			b.Fatal(err)
		}
		s.Begin(b.Context(), p, func(context.Context) (int64, error) { return 0, nil })
		for size := int64(0); size < 127<<20; {
			shift(batches[0], end)
			st, err := s.Append(b.Context(), p, batches)
			if err != nil {
				b.Fatal(err)
			}
			end, size = st.Next, size+st.Bytes
		}
		s.Close()
	}
	reader := func() *Store {
		bucket, _ := store.Open(b.Context(), "file://"+dir, store.Options{})
		s, _ := Open(b.Context(), Options{Bucket: bucket, Stream: "s", ReadOnly: true})
		return s
	}
	find := func(s *Store, at int64) {
		n := 0
		err := s.Read(b.Context(), p, checkpoint.Span{From: at, To: at + 1}, func(*record.Batch) error { n++; return nil })
		if err != nil || n != 1 {
			b.Fatal(n, err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			find(reader(), end/3)
		}
	})
	b.Run("again", func(b *testing.B) {
		s := reader()
		for b.Loop() {
			find(s, end/3)
		}
	})
}

// unsynced is a file system that does not wait for the disk, to make long files in short time.
type unsynced struct{ store.FS }

func (u unsynced) OpenFile(name string, flag int, perm os.FileMode) (store.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

type unsyncedFile struct{ store.File }

func (unsyncedFile) Sync() error     { return nil }
func (unsyncedFile) Datasync() error { return nil }
