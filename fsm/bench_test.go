package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/dedupset"
	"github.com/stream-arrow/twgd/lease"
)

// BenchmarkApplyLeases applies acquire, renew and release of leases, beside as many others as are held.
func BenchmarkApplyLeases(b *testing.B) {
	for _, held := range []int{10, 10_000, 100_000} {
		b.Run(fmt.Sprint("held", held), func(b *testing.B) { applyLeases(b, held) })
	}
}

func many(b *testing.B, held int) *FSM {
	f := New()
	put := func(cmd []byte) {
		data, err := Entry(RouteLease, time.Second, cmd)
		if err != nil {
			b.Fatal(err)
		}
		f.Apply(&raft.Log{Index: 1, Data: data})
	}
	put(lease.Epoch(1))
	for i := range held {
		put(numbered(uint64(i)))
	}
	return f
}

// numbered acquires a name and by a request of a number.
func numbered(n uint64) []byte {
	cmd := acquire(fmt.Sprintf("window/%08x", n), 0, time.Hour)
	binary.BigEndian.PutUint64(cmd[3:], n)
	return cmd
}

func applyLeases(b *testing.B, held int) {
	f := many(b, held)
	at, index := 2*time.Second, uint64(2)
	b.ReportAllocs()
	for n := uint64(held); b.Loop(); n++ {
		token := 1<<40 | (n + 1)
		for _, cmd := range [][]byte{numbered(n), renew(token), done(fmt.Sprintf("window/%08x", n), token)} {
			data, _ := Entry(RouteLease, at, cmd)
			if r, ok := f.Apply(&raft.Log{Index: index, Data: data}).(Reply); !ok || r.Body[0] == 5 {
				b.Fatalf("%x: %v", cmd, r)
			}
			index++
		}
		at += time.Microsecond
	}
	b.ReportMetric(3*float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}

// BenchmarkSnapshot measures how long Apply is held up by a snapshot, and how fast it is written.
func BenchmarkSnapshot(b *testing.B) {
	f := many(b, 100_000)
	b.Run("pin", func(b *testing.B) {
		for b.Loop() {
			_, _ = f.Snapshot()
		}
	})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			snap, _ := f.Snapshot()
			if err := snap.(*snapshot).write(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// claimed is a state machine whose set of claims has so many.
func claimed(b *testing.B, entries int) *FSM {
	f := New()
	put := func(cmd []byte) {
		data, err := Entry(RouteDedup, time.Second, cmd)
		if err != nil {
			b.Fatal(err)
		}
		f.Apply(&raft.Log{Index: 1, Data: data})
	}
	put(dedupset.Declare("s", [8]byte{}, time.Hour, int64(entries)))
	random := rand.NewChaCha8([32]byte{})
	for n := dedupset.MaxRows("s"); entries > 0; entries -= n {
		rows := make([][24]byte, min(n, entries))
		for i := range rows {
			_, _ = random.Read(rows[i][:])
		}
		cmd, err := dedupset.Claim("s", [8]byte{}, rows)
		if err != nil {
			b.Fatal(err)
		}
		put(cmd)
	}
	return f
}

// BenchmarkSnapshotOfClaims writes a snapshot of five million claims: to nowhere, through Raft's own store, and, to compare, as many
// bytes to the same disk. BenchmarkRestoreOfClaims reads it.
func BenchmarkSnapshotOfClaims(b *testing.B) {
	f := claimed(b, 5_000_000)
	size := int64(5_000_000 * 24)
	b.Run("nowhere", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			snap, _ := f.Snapshot()
			if err := snap.(*snapshot).write(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("raft", func(b *testing.B) {
		store, err := raft.NewFileSnapshotStore(b.TempDir(), 1, io.Discard)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(size)
		for b.Loop() {
			snap, _ := f.Snapshot()
			sink, err := store.Create(1, 1, 1, raft.Configuration{}, 0, nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := snap.Persist(sink); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("disk", func(b *testing.B) {
		name, block := filepath.Join(b.TempDir(), "plain"), make([]byte, 1<<20)
		b.SetBytes(size)
		for b.Loop() {
			out, err := os.Create(name)
			for left := size; err == nil && left > 0; left -= int64(len(block)) {
				_, err = out.Write(block[:min(left, int64(len(block)))])
			}
			if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRestoreOfClaims(b *testing.B) {
	snap, _ := claimed(b, 5_000_000).Snapshot()
	var data bytes.Buffer
	if err := snap.(*snapshot).write(&data); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(data.Len()))
	for b.Loop() {
		if err := New().Restore(io.NopCloser(bytes.NewReader(data.Bytes()))); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		runtime.GC()
		b.StartTimer()
	}
}
