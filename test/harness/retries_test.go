package harness

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// Of all records 5 % come a second time, on another partition, within the time that was named, and each once.
func TestRetrying(t *testing.T) {
	r := &retrying{Retries: Retries{Every: 20, Within: time.Second}, partitions: 4}
	first, again := map[string]Record{}, map[string]time.Duration{}
	sent := map[string]time.Duration{}
	for now := time.Duration(0); now < 30*time.Second; now += 10 * time.Millisecond {
		for range 10 {
			one := r.first(now)
			if _, ok := first[string(one.Value)]; ok {
				t.Fatalf("%s comes twice as new", one.Value)
			}
			first[string(one.Value)], sent[string(one.Value)] = one, now
		}
		for _, two := range r.again(now) {
			one := first[string(two.Value)]
			if _, ok := again[string(two.Value)]; ok || one.Partition == two.Partition || !bytes.Equal(one.Key, two.Key) || two.Partition < 0 || two.Partition >= 4 {
				t.Fatalf("%s follows %s", two, one)
			}
			again[string(two.Value)] = now
			if late := now - sent[string(two.Value)]; late < 0 || late > time.Second+10*time.Millisecond {
				t.Errorf("%s follows after %v", two, late)
			}
		}
	}
	if got := len(again) + len(r.due); got != 1500 || len(first) != 30_000 || len(again) < 1450 {
		t.Errorf("of %d records %d came twice and %d will", len(first), len(again), len(r.due))
	}
}

// complaints takes what a comparison says.
type complaints struct {
	testing.TB
	said []string
}

func (c *complaints) Helper() {}
func (c *complaints) Errorf(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

// What a store is owed is found to be missing, and what it has too much of is counted.
func TestContents(t *testing.T) {
	s := &Suite{Cluster: "c"}
	topic := Topic{Name: "t", Partitions: 2}
	acked := []Record{{Value: []byte("a")}, {Partition: 1, Value: []byte("a")}, {Offset: 1, Value: []byte("b")}, {Offset: 2}, {Partition: 1, Offset: 2}}
	ids := s.IDs(topic, acked)
	c := s.Contents(topic, acked, nil)
	if c.Twins != 1 || c.Records() != 5 || c.Distinct() != 4 || !c.Repeated(ids[1]) || c.Repeated(ids[3]) {
		t.Fatalf("%d twins among %d records of %d contents", c.Twins, c.Records(), c.Distinct())
	}
	tail := func(i int) string { return ids[i][19:23] + ids[i][24:] }
	twin := Dropped{ID: ids[1], Stands: tail(0)}
	f := func(extra int64, complaining bool, named []Dropped, there ...string) {
		t.Helper()
		var held []Held
		for _, id := range there {
			held = append(held, Held{ID: id})
		}
		var said complaints
		got := c.Present(&said, "it", held)
		c.LeftOut(&said, "it", held, named, false)
		if got != extra || complaining != (len(said.said) > 0) {
			t.Errorf("with %q %d are extra, and it says %q", there, got, said.said)
		}
	}
	f(0, false, []Dropped{twin}, ids[0], ids[2], ids[3], ids[4])
	f(1, false, nil, ids...)
	f(1, true, []Dropped{twin}, ids...)                                                  // named and there
	f(0, true, nil, ids[0], ids[2], ids[3], ids[4])                                      // neither there nor named
	f(0, true, []Dropped{twin}, ids[2], ids[3], ids[4])                                  // who stands for it is absent
	f(0, true, []Dropped{twin}, ids[0], ids[3], ids[4])                                  // a content is absent
	f(0, true, []Dropped{twin}, ids[0], ids[2], ids[3])                                  // no tombstone stands for another
	f(0, true, []Dropped{{ID: ids[1], Stands: tail(1)}}, ids[0], ids[2], ids[3], ids[4]) // its own twin
	f(0, true, []Dropped{twin}, ids[0], ids[0], ids[2], ids[3], ids[4])
}
