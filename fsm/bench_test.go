package fsm

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

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
