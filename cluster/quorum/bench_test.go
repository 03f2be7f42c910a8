package quorum

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/stream-arrow/twgd/fsm"
	"github.com/stream-arrow/twgd/tuning"
)

// BenchmarkPropose is one server with 1, 64 and 512 proposers at once, to be held against a bare commit of Bolt and a bare sync.
func BenchmarkPropose(b *testing.B) {
	for _, proposers := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(proposers), func(b *testing.B) {
			q := alongside(b)
			cmd := tuning.Set("key", "value")
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			done := make(chan error, proposers)
			for range proposers {
				go func() {
					var err error
					for err == nil && left.Add(-1) >= 0 {
						_, err = q.Propose(context.Background(), fsm.RouteTuning, cmd)
					}
					done <- err
				}()
			}
			for range proposers {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "proposals/s")
		})
	}
}

func alongside(b *testing.B) *Quorum {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "raft")
	id, err := Create(dir, "n1")
	if err != nil {
		b.Fatal(err)
	}
	q, err := Open(Options{Dir: dir, FSM: fsm.New(), Stream: newMesh().listen(id, id), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { q.Close(context.Background()) })
	if err := q.Bootstrap(context.Background()); err != nil {
		b.Fatal(err)
	}
	return q
}

func BenchmarkBareBolt(b *testing.B) {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "x"), 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for i := 0; b.Loop(); i++ {
		err := db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("logs"))
			if err != nil {
				return err
			}
			return bucket.Put(fmt.Appendf(nil, "%016x", i), make([]byte, 100))
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBareSync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "x"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if _, err := f.Write(make([]byte, 100)); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStartToLeader is one server that comes back: from Open until it may propose.
func BenchmarkStartToLeader(b *testing.B) {
	q := alongside(b)
	dir, id := q.disk.dir, q.id
	if err := q.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	var standing time.Duration
	for b.Loop() {
		q, err := Open(Options{Dir: dir, FSM: fsm.New(), Stream: newMesh().listen(id, id), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		if err := q.Stand(); err != nil {
			b.Fatal(err)
		}
		if err := q.installed(context.Background()); err != nil {
			b.Fatal(err)
		}
		standing += time.Since(at)
		b.StopTimer()
		if err := q.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(standing.Microseconds())/float64(b.N)/1000, "ms-standing/op")
}
