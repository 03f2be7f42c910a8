package harness

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// RecordID is a record's id, worked out from the document alone: a UUID whose first 48 bits are the timestamp in milliseconds, and the
// rest, but for version 8 and the variant, the beginning of SHA-256 over what makes the record that record.
func RecordID(cluster string, topic Topic, generation int32, r Record) string {
	var in bytes.Buffer
	sized := func(b []byte) {
		binary.Write(&in, binary.BigEndian, uint32(len(b)))
		in.Write(b)
	}
	nullable := func(b []byte) {
		if b == nil {
			in.WriteByte(0)
			return
		}
		in.WriteByte(1)
		sized(b)
	}
	sized([]byte(cluster))
	sized([]byte(topic.Name))
	in.Write(topic.ID[:])
	binary.Write(&in, binary.BigEndian, r.Partition)
	binary.Write(&in, binary.BigEndian, generation)
	binary.Write(&in, binary.BigEndian, r.Offset)
	nullable(r.Key)
	nullable(r.Value)
	digest := sha256.Sum256(in.Bytes())

	millis := min(max(r.Timestamp, 0), 1<<48-1)
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(millis))
	id := append(stamp[2:8:8], digest[:10]...)
	id[6] = 0x80 | id[6]%16
	id[8] = 0x80 | id[8]%64
	h := hex.EncodeToString(id)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// IDs are the ids of records.
func (s *Suite) IDs(topic Topic, records []Record) []string {
	out := make([]string, len(records))
	for i, r := range records {
		out[i] = RecordID(s.Cluster, topic, 0, r)
	}
	return out
}

// SameIDs compares two multisets of ids, and names a few of what differs.
func SameIDs(t testing.TB, where string, got, want []string) {
	t.Helper()
	count := map[string]int{}
	for _, id := range want {
		count[id]--
	}
	for _, id := range got {
		count[id]++
	}
	var missing, many []string
	for _, id := range slices.Sorted(maps.Keys(count)) {
		switch n := count[id]; {
		case n < 0:
			missing = append(missing, id)
		case n > 0:
			many = append(many, fmt.Sprintf("%s (%d times too often)", id, n))
		}
	}
	if len(missing)+len(many) > 0 {
		t.Errorf("%s has %d ids of %d: %d are missing, such as %q; %d are too many, such as %q", where, len(got), len(want),
			len(missing), missing[:min(3, len(missing))], len(many), many[:min(3, len(many))])
	}
}

// SameRecords compares what a store gave back with what was produced, as multisets over (partition, offset), byte by byte.
func SameRecords(t testing.TB, where string, got, want []Record) {
	t.Helper()
	type place struct {
		partition int32
		offset    int64
	}
	left := map[place]Record{}
	for _, r := range want {
		left[place{r.Partition, r.Offset}] = r
	}
	seen := map[place]bool{}
	faults := 0
	fault := func(format string, args ...any) {
		if faults++; faults <= 5 {
			t.Errorf(where+": "+format, args...)
		}
	}
	for _, r := range got {
		at := place{r.Partition, r.Offset}
		w, ok := left[at]
		switch {
		case seen[at]:
			fault("%v is there twice", at)
		case !ok:
			fault("%v was not produced", at)
		case !same(r, w):
			fault("%v is\n%s, produced was\n%s", at, r, w)
		}
		seen[at] = true
	}
	for _, r := range want {
		if at := (place{r.Partition, r.Offset}); !seen[at] {
			fault("%v is missing", at)
		}
	}
	if faults > 5 {
		t.Errorf("%s: %d faults in all, over %d records of %d", where, faults, len(got), len(want))
	}
}

func same(a, b Record) bool {
	return a.Timestamp == b.Timestamp && a.TimestampType == b.TimestampType && equal(a.Key, b.Key) && equal(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y Header) bool { return x.Key == y.Key && equal(x.Value, y.Value) })
}

func equal(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func (r Record) String() string {
	out := fmt.Sprintf("%d/%d at %d (%d) key %s value %s headers", r.Partition, r.Offset, r.Timestamp, r.TimestampType, show(r.Key), show(r.Value))
	for _, h := range r.Headers {
		out += fmt.Sprintf(" %q=%s", h.Key, show(h.Value))
	}
	return out
}

func show(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%.60q", b)
}
