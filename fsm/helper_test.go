package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/stream-arrow/twgd/dedupset"
	"github.com/stream-arrow/twgd/lease"
	"github.com/stream-arrow/twgd/tuning"
)

// script feeds a state machine entries, index after index.
type script struct {
	t     testing.TB
	f     *FSM
	index uint64
	log   []*raft.Log
}

func newScript(t testing.TB) *script { return &script{t: t, f: New()} }

func (s *script) apply(data []byte) any {
	s.index++
	log := &raft.Log{Index: s.index, Type: raft.LogCommand, Data: data}
	s.log = append(s.log, log)
	return s.f.Apply(log)
}

func (s *script) entry(route byte, at time.Duration, cmd []byte) any {
	s.t.Helper()
	data, err := Entry(route, at, cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.apply(data)
}

func (s *script) body(answer any) []byte {
	s.t.Helper()
	r, ok := answer.(Reply)
	if !ok {
		s.t.Fatalf("the answer is %v", answer)
	}
	return r.Body
}

// Commands of the lease table, as docs/formats/lease.md draws them.

func acquire(name string, request byte, ttl time.Duration) []byte {
	cmd := append([]byte{1, 2, 0}, bytes.Repeat([]byte{request}, 16)...)
	cmd = binary.AppendUvarint(cmd, uint64(ttl))
	cmd = append(cmd, byte(len(name)))
	return append(append(cmd, name...), 1, 'n')
}

func renew(token uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{1, 3, 1}, token)
}

func done(name string, token uint64) []byte {
	cmd := binary.BigEndian.AppendUint64([]byte{1, 4, 1}, token)
	return append(append(cmd, byte(len(name))), name...)
}

func (s *script) now() (out time.Duration) {
	s.f.Read(func(_ *Tables, now time.Duration, _ uint64) { out = now })
	return out
}

func (s *script) holder(name string) (out lease.Info) {
	s.f.Read(func(t *Tables, _ time.Duration, _ uint64) { out = t.Leases.Observe(name) })
	return out
}

// claim claims a content for a record.
func claim(content, record byte) []byte {
	cmd, err := dedupset.Claim("s", [8]byte{}, [][24]byte{{content}, {content, 1, 23: record}})
	if err != nil {
		panic(err)
	}
	return cmd
}

// filled is a state machine with something in every table.
func filled(t testing.TB) *script {
	s := newScript(t)
	s.entry(RouteLease, time.Second, lease.Epoch(2))
	for i := range byte(50) {
		s.entry(RouteLease, 2*time.Second, acquire(fmt.Sprint("w", i), i, time.Minute))
	}
	s.entry(RouteTuning, 3*time.Second, tuning.Set(tuning.Size, "3"))
	s.entry(RouteDedup, 3*time.Second, dedupset.Declare("s", [8]byte{}, 20*time.Second, 1000))
	s.entry(RouteDedup, 3*time.Second, claim(1, 1))
	return s
}

// sink is where a snapshot goes.
type sink struct {
	bytes.Buffer
	closed, canceled bool
	fail             error
}

func (s *sink) ID() string    { return "test" }
func (s *sink) Close() error  { s.closed = true; return nil }
func (s *sink) Cancel() error { s.canceled = true; return nil }

func (s *sink) Write(p []byte) (int, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	return s.Buffer.Write(p)
}

func snapshotOf(t testing.TB, f *FSM) []byte {
	t.Helper()
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var out sink
	if err := snap.Persist(&out); err != nil || !out.closed {
		t.Fatalf("persist: %v, closed %v", err, out.closed)
	}
	snap.Release()
	return out.Bytes()
}

func restore(f *FSM, data []byte) error { return f.Restore(io.NopCloser(bytes.NewReader(data))) }
