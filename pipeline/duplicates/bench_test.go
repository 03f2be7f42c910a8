package duplicates

import (
	"math/rand/v2"
	"testing"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

// BenchmarkAppend notes batches of 10,000 records of which one in twenty is dropped, with ids as they are: near in time, random otherwise.
func BenchmarkAppend(b *testing.B) {
	f := func(name, url string, local bool) {
		b.Run(name, func(b *testing.B) {
			bucket, err := store.Open(b.Context(), url, store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer bucket.Close()
			w, rng, from := NewWriter(Options{Bucket: bucket, Stream: "s", Node: "n", Instance: "i", Local: local}), rand.New(rand.NewPCG(1, 1)), int64(0)
			defer w.Close()
			for b.Loop() {
				n := noted(from, from+10_000)
				for o := from; o < n.Span.To; o += 20 {
					at := 1_767_225_600_000 + o/100
					id := record.ID{byte(at >> 40), byte(at >> 32), byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)}
					d := Dropped{Offset: o + rng.Int64N(20), ID: id}
					for i := 6; i < 16; i++ {
						d.ID[i] = byte(rng.Uint32())
					}
					for i := range d.Stands {
						d.Stands[i] = byte(rng.Uint32())
					}
					n.Dropped = append(n.Dropped, d)
				}
				if err := w.Append(b.Context(), []Noted{n}); err != nil {
					b.Fatal(err)
				}
				from = n.Span.To
			}
			b.StopTimer()
			size := int64(0)
			entries, err := bucket.List(b.Context(), "s/", "", 0)
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range entries {
				size += e.Size
			}
			b.ReportMetric(float64(size)/float64(from/20), "bytes/drop")
			b.ReportMetric(float64(from)/20/b.Elapsed().Seconds(), "drops/s")
		})
	}
	f("objects", "mem://"+b.Name(), false)
	f("files", "file://"+b.TempDir(), true)
}
