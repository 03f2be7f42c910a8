package record

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// vector is a line of testdata/vectors.json, which other implementations check too. Bytes are in hex digits, null where there is
// none; the value is repeated value_times.
type vector struct {
	Name       string  `json:"name"`
	Cluster    string  `json:"cluster"`
	Topic      string  `json:"topic"`
	TopicID    string  `json:"topic_id"`
	Partition  int32   `json:"partition"`
	Generation int32   `json:"generation"`
	Offset     int64   `json:"offset"`
	Timestamp  int64   `json:"timestamp"`
	Key        *string `json:"key"`
	Value      *string `json:"value"`
	Times      int     `json:"value_times"`
	ID         string  `json:"id"`
}

func vectors(t testing.TB) (out []vector) {
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func nullable(t testing.TB, s *string, times int) []byte {
	if s == nil {
		return nil
	}
	b, err := hex.DecodeString(*s)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{}, bytes.Repeat(b, max(1, times))...)
}

func (v vector) partition(t testing.TB) Partition {
	p := Partition{Cluster: v.Cluster, Topic: v.Topic, Number: v.Partition, Generation: v.Generation}
	if n, err := hex.Decode(p.TopicID[:], []byte(v.TopicID)); n != 16 || err != nil {
		t.Fatal(v.TopicID, err)
	}
	return p
}

func TestVectors(t *testing.T) {
	all := vectors(t)
	seen := map[string]string{}
	for _, v := range all {
		r := Record{Key: nullable(t, v.Key, 1), Value: nullable(t, v.Value, v.Times), Offset: v.Offset, Timestamp: v.Timestamp}
		if got := NewHasher(v.partition(t)).ID(&r).String(); got != v.ID {
			t.Errorf("%s: %s, want %s", v.Name, got, v.ID)
		}
		digest := v.ID[14:] // behind the timestamp
		if other, ok := seen[digest]; ok && r.Timestamp == 1767225600000 {
			t.Errorf("%s and %s have one digest", v.Name, other)
		}
		seen[digest] = v.Name
	}
	if len(all) < 30 {
		t.Errorf("only %d vectors", len(all))
	}
}

// TestIDsInlineAndStreamed: a record is hashed in one call where it is small and in parts where it is large; the id is the same.
func TestIDsInlineAndStreamed(t *testing.T) {
	p := Partition{Cluster: "c", Topic: "t", TopicID: [16]byte{7}, Number: 3, Generation: 1}
	h := NewHasher(p)
	var records []Record
	for n := range 60 {
		records = append(records, Record{Offset: int64(n), Timestamp: int64(n), Key: bytes.Repeat([]byte{1}, n), Value: bytes.Repeat([]byte{2}, inline-h.prefix-8-10-n-30+n)})
	}
	records = append(records, Record{}, Record{Key: []byte{}}, Record{Value: []byte{}}, Record{Key: make([]byte, inline)})
	for i := range records {
		r := &records[i]
		if got, want := h.ID(r), compose(r.Timestamp, h.sumLong(r)); got != want {
			t.Errorf("record %d of %d+%d bytes: %v in one call, %v in parts", i, len(r.Key), len(r.Value), got, want)
		}
	}
	for i, id := range h.IDs(nil, records) { // one after the other, nothing is left of the last
		if want := NewHasher(p).ID(&records[i]); id != want {
			t.Errorf("record %d: %v, alone %v", i, id, want)
		}
	}
	long := NewHasher(Partition{Cluster: string(bytes.Repeat([]byte("c"), inline)), Topic: "t"})
	if a, b := long.ID(&Record{Offset: 1}), long.ID(&Record{Offset: 2}); a == b {
		t.Error("two records of a partition with a long name have one id")
	}
}

func TestIDsAllocateNothing(t *testing.T) {
	h := NewHasher(Partition{Cluster: "c", Topic: "t"})
	small, large := Record{Key: []byte("k"), Value: make([]byte, 200)}, Record{Value: make([]byte, 100_000)}
	dst := make([]ID, 0, 2)
	if n := testing.AllocsPerRun(100, func() { dst = h.IDs(dst[:0], []Record{small, large}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestIDsAscendWithTime(t *testing.T) {
	h := NewHasher(Partition{Topic: "t"})
	last := ""
	for _, ms := range []int64{0, 1, 255, 256, 1 << 40, maxMillis} {
		id := h.ID(&Record{Timestamp: ms}).String()
		if id[:13] <= last || id[14] != '8' || id[19] < '8' || id[19] > 'b' {
			t.Errorf("%d ms: %s behind %s", ms, id, last)
		}
		last = id[:13]
	}
}

func BenchmarkID(b *testing.B) {
	h := NewHasher(Partition{Cluster: "c1", Topic: "orders", TopicID: [16]byte{1}})
	r := Record{Key: []byte("key"), Value: make([]byte, 200), Timestamp: 1767225600000}
	for b.Loop() {
		h.ID(&r)
	}
}
