package raw

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/store"
)

func localStore(t testing.TB, dir string) *Store {
	b, err := store.Open(t.Context(), "file://"+dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Bucket: b, Stream: "s", Codec: "zstd"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func descriptors(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc: descriptors cannot be counted here")
	}
	return len(entries)
}

func oneRecord(p record.Partition, offset int64) []*record.Batch {
	b := &record.Batch{Partition: p, First: offset, Next: offset + 1, Records: []record.Record{{Offset: offset, Value: []byte(fmt.Sprint(p.Number, offset))}}}
	return []*record.Batch{b.Weigh(nil)}
}

// TestIdleChainsGiveTheirDescriptorsBack writes many chains in turns with few descriptors: those that are parked are opened again,
// and nothing is lost or written twice.
func TestIdleChainsGiveTheirDescriptorsBack(t *testing.T) {
	const chains, limit, rounds = 40, 8, 4
	dir := t.TempDir()
	s := localStore(t, dir)
	s.medium.(*files).idle.max = limit
	before := descriptors(t)
	for round := range int64(rounds) {
		for n := range int32(chains) {
			p := record.Partition{Topic: "t", Number: n}
			if round == 0 {
				if _, err := s.Begin(t.Context(), p, func(context.Context) (int64, error) { return 0, nil }); err != nil {
					t.Fatal(err)
				}
			}
			if st, err := s.Append(t.Context(), p, oneRecord(p, round)); err != nil || st.Next != round+1 {
				t.Fatal(st, err)
			}
		}
		if now := descriptors(t); now > before+limit+1 {
			t.Errorf("%d descriptors for %d chains, at most %d are wanted", now-before, chains, limit)
		}
	}
	s.Close()
	if now := descriptors(t); now >= before {
		t.Errorf("%d descriptors are left open", now-before+1)
	}
	s = localStore(t, dir)
	for n := range int32(chains) {
		p := record.Partition{Topic: "t", Number: n}
		got := ""
		err := s.Read(t.Context(), p, checkpoint.Span{From: 0, To: 10}, func(b *record.Batch) error {
			got += string(b.Records[0].Value) + ";"
			return nil
		})
		if want := fmt.Sprintf("%d 0;%d 1;%d 2;%d 3;", n, n, n, n); err != nil || got != want {
			t.Errorf("%v: %q, %v, want %q", p, got, err, want)
		}
	}
	if names, _ := s.medium.(*files).list(s.id(record.Partition{Topic: "t"})); len(names) != 1 {
		t.Error("parking made new files:", names)
	}
}

// TestAParkedFileThatChangedIsNotContinued: what goes behind a damaged block would make it damage for good.
func TestAParkedFileThatChangedIsNotContinued(t *testing.T) {
	s := localStore(t, t.TempDir())
	p := record.Partition{Topic: "t"}
	s.Begin(t.Context(), p, func(context.Context) (int64, error) { return 0, nil })
	for o := range int64(2) {
		if _, err := s.Append(t.Context(), p, oneRecord(p, o)); err != nil {
			t.Fatal(err)
		}
	}
	w := s.chain(p).writer.(*fileWriter)
	w.mu.Lock()
	w.park()
	w.mu.Unlock()
	content, _ := os.ReadFile(w.path)
	for _, change := range []func(b []byte) []byte{
		func(b []byte) []byte { b[w.last+5] ^= 1; return b },
		func(b []byte) []byte { b[w.size-1] ^= 1; return b },
		func(b []byte) []byte { return b[:w.size-1] },
	} {
		os.WriteFile(w.path, change(append([]byte(nil), content...)), 0o644)
		if _, err := s.Append(t.Context(), p, oneRecord(p, 2)); err == nil {
			t.Fatal("a block went behind a damaged one")
		}
	}
	os.WriteFile(w.path, content, 0o644)
	if _, err := s.Append(t.Context(), p, oneRecord(p, 2)); err != nil {
		t.Fatal(err)
	}
}

// TestBeginAfterEndIsSerialised: a chain that is begun anew while an append is under way would give its file two writers.
func TestBeginAfterEndIsSerialised(t *testing.T) {
	s := localStore(t, t.TempDir())
	p := record.Partition{Topic: "t"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 50 {
			s.End(p)
		}
	}()
	next := int64(0)
	for range 50 {
		head, err := s.Begin(t.Context(), p, func(context.Context) (int64, error) { return 0, nil })
		if err != nil || head.Next != next {
			t.Fatal(head, err, next)
		}
		if st, err := s.Append(t.Context(), p, oneRecord(p, next)); err == nil {
			next = st.Next
		}
	}
	<-done
	if err := s.Read(t.Context(), p, checkpoint.Span{From: 0, To: next}, func(*record.Batch) error { return nil }); err != nil {
		t.Fatal(err)
	}
}
