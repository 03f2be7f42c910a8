package raw

import (
	"testing"
	"time"

	"github.com/stream-arrow/twgd/record"
)

// FuzzCommit: what is taken for a commit is one, and takes no more memory than its bytes give reason for.
func FuzzCommit(f *testing.F) {
	at := time.UnixMilli(1_700_000_000_000)
	for _, b := range []*record.Batch{
		{First: 0, Next: 5, Records: []record.Record{{Offset: 0, Key: []byte("k"), Headers: []record.Header{{Key: "\xff"}}}, {Offset: 3, Value: []byte{}}}},
		{First: 7, Next: 9},
		{First: 9, Next: 100, Gap: "retention"},
	} {
		entries, count := appendCommit(nil, []*record.Batch{b}, at)
		f.Add(entries, int64(count))
	}
	f.Fuzz(func(t *testing.T, entries []byte, count int64) {
		c, err := parseCommit(entries, count)
		if err != nil {
			return
		}
		if c.first < 0 || c.next <= c.first || len(c.records)*smallest > len(entries) || c.gap != "" && len(c.records) > 0 {
			t.Fatalf("%+v", c)
		}
		b := &record.Batch{First: c.first, Next: c.next, LeaderEpoch: c.epoch, Records: c.records, Gap: c.gap}
		mustFollow(c.first, []*record.Batch{b})
		again, n := appendCommit(nil, []*record.Batch{b}, c.written)
		if d, err := parseCommit(again, int64(n)); err != nil || int64(n) != count || d.first != c.first || d.next != c.next || len(d.records) != len(c.records) {
			t.Fatalf("%+v was written and read back as %+v, %v", c, d, err)
		}
	})
}
