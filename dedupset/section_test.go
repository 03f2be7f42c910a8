package dedupset

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

func TestPinnedChunksAreLeftAlone(t *testing.T) {
	heapOnly = true
	defer func() { heapOnly = false }()
	s := &script{T: t}
	s.declare("a", time.Hour, 150_000)
	var all sync.WaitGroup
	var held []func()
	recycled := false
	for at := 0; at < 1_000_000; at += 10_000 {
		s.now += youth / 10
		s.want("a", at, 10_000, 1)
		recycled = recycled || len(s.table.sets[0].chunks.spares) > 0
		if at%250_000 != 0 {
			continue
		}
		if len(held) == 2 { // all that it has to write has gone meanwhile
			all.Go(held[0])
			held = held[1:]
		}
		want := section(t, &s.table)
		write := s.table.Snapshot()
		held = append(held, func() {
			var out bytes.Buffer
			if err := write(slowWriter{&out}); err != nil || !bytes.Equal(out.Bytes(), want) {
				t.Errorf("the snapshot at %d has changed: %v", at, err)
			}
			if write(io.Discard) == nil {
				t.Error("a snapshot is written twice")
			}
		})
	}
	all.Wait()
	if !recycled {
		t.Error("no chunk came back")
	}
}

type slowWriter struct{ w io.Writer }

func (w slowWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		m, e := w.w.Write(p[:min(len(p), 4<<10)])
		n, p, err = n+m, p[m:], e
	}
	return n, err
}

func TestASnapshotThatFailsUnpins(t *testing.T) {
	s := &script{T: t}
	s.declare("a", time.Hour, 1000)
	s.want("a", 0, 10, 1)
	if err := s.table.Snapshot()(iotest.TruncateWriter(failing{}, 0)); err != nil {
		t.Error("nothing was written, and it failed:", err)
	}
	if err := s.table.Snapshot()(failing{}); err == nil {
		t.Error("a writer's error is lost")
	}
	if n := s.table.sets[0].chunks.ring[0].pins.Load(); n != 0 {
		t.Errorf("%d pins", n)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestSectionsAreValidated(t *testing.T) {
	table := lived(t)
	data := section(t, table)
	f := func(what string, change func(b []byte) []byte) {
		t.Helper()
		if err := table.Restore(version, bytes.NewReader(change(bytes.Clone(data)))); err == nil {
			t.Errorf("%s: restored", what)
		}
	}
	put := func(at int, with ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], with); return b }
	}
	const head = 2 + 1 + 1 + 8 // up to the numbers of set a
	number := func(i int, with ...byte) func([]byte) []byte { return put(head+8*i, with...) }
	marks := head + 10*8
	young := marks + 2 + 3*16
	rows := young + 2 + 16*len(table.sets[0].young)
	f("too many sets", put(0, 0xff))
	f("a set too few", put(0, 0, 3))
	f("a set too many", put(0, 0, 1))
	f("no name", put(2, 0))
	f("the second before the first", put(3, 'c'))
	f("twice", put(3, 'b'))
	f("window", number(0, 0xff))
	f("no window", number(0, 0, 0, 0, 0, 0, 0, 0, 0))
	f("cap", number(1, 0xff))
	f("no cap", number(1, 0, 0, 0, 0, 0, 0, 0, 0))
	f("used", number(2, 0x7f))
	f("lost", number(3, 0x7f))
	f("oldest after next", number(7, 0, 0, 0, 0, 0, 0, 0, 99))
	f("sequence at its end", number(8, 0x80))
	f("settled after next", number(9, 0, 0, 0, 0, 0, 0, 0, 99))
	f("no mark of young rows", put(young, 0, 0))
	f("a mark before young rows", put(young+2+15, 1))
	f("no marks", put(marks, 0, 0))
	f("too many marks", put(marks, 0xff, 0xff))
	f("a mark before rows", put(marks+2+15, 1))
	f("a mark out of order", put(marks+2+16, 0, 0, 0, 0, 0, 0, 0, 0))
	f("a mark behind rows", put(marks+2+16+16+15, 99))
	f("a content twice", func(b []byte) []byte { copy(b[rows:], b[rows+rowSize:rows+rowSize+tailAt]); return b })
	f("more", func(b []byte) []byte { return append(b, 0) })
	for i := range data {
		f(fmt.Sprint("cut at ", i), func(b []byte) []byte { return b[:i] })
	}
	if err := table.Restore(version+1, bytes.NewReader(data)); err == nil {
		t.Error("a later version is restored")
	}
	if !bytes.Equal(data, section(t, table)) {
		t.Error("a restore that failed changed something")
	}
	if err := table.Restore(version, iotest.OneByteReader(bytes.NewReader(data))); err != nil || !bytes.Equal(data, section(t, table)) {
		t.Error("byte by byte: ", err)
	}
}
