package record

import "testing"

// TestIDAllocatesNothing: ids are computed for every record of every sink.
func TestIDAllocatesNothing(t *testing.T) {
	h := NewHasher(Partition{Cluster: "c", Topic: "orders", Number: 3})
	r := &Record{Key: []byte("key"), Value: make([]byte, 200), Offset: 7}
	if n := testing.AllocsPerRun(100, func() { h.ID(r) }); n != 0 {
		t.Errorf("an id allocates %v times", n)
	}
}
