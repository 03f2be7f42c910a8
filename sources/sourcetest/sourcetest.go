package sourcetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sources"
)

// Log is one log with one partition, and the source under test that reads it from its start.
type Log interface {
	New(t *testing.T) sources.Source
	Append(t *testing.T, records ...record.Record) // key, value and headers count
}

// Case is one thing that a replayable source must do. Run it in a synctest bubble where the log lives in memory.
type Case struct {
	Name string
	Run  func(t *testing.T, log Log)
}

// Cases are all of them.
func Cases() []Case {
	return []Case{
		{"in order and without a hole", inOrder},
		{"nil and empty stay apart", fidelity},
		{"what the gate has stored wins", resumes},
		{"paused", paused},
		{"seek", seek},
		{"next ends with its context, close ends next", ends},
	}
}

func appendNumbers(t *testing.T, log Log, from, to int) (values []string) {
	t.Helper()
	for i := from; i < to; i++ {
		values = append(values, fmt.Sprint(i))
		log.Append(t, record.Record{Value: []byte(values[len(values)-1])})
	}
	return values
}

func inOrder(t *testing.T, log Log) {
	want := appendNumbers(t, log, 0, 30)
	r := Read(t, log.New(t), NewGate())
	defer r.Close()
	p := r.Only()
	r.Until("what was there", func() bool { return r.Total() == 30 })
	want = append(want, appendNumbers(t, log, 30, 60)...)
	r.Until("what came later, and the end", func() bool { return r.Total() == 60 && r.Ends[p] == r.Next[p] })
	if !slices.Equal(r.Values[p], want) || len(r.Gaps)+len(r.Held) > 0 {
		t.Fatalf("read %v, gaps %v, held %v", r.Values[p], r.Gaps, r.Held)
	}
}

func fidelity(t *testing.T, log Log) {
	headers := []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "c", Value: []byte{}}}
	want := []record.Record{{Key: []byte("k"), Headers: headers}, {Key: []byte("k"), Value: []byte{}}, {Value: []byte("v")}, {Key: []byte{}, Value: []byte("v")}, {}}
	log.Append(t, want...)
	r := Read(t, log.New(t), NewGate())
	defer r.Close()
	p := r.Only()
	r.Until("all", func() bool { return r.Total() == len(want) })
	for i, got := range r.Records[p] {
		if !same(got.Key, want[i].Key) || !same(got.Value, want[i].Value) || len(got.Headers) != len(want[i].Headers) {
			t.Fatalf("%+v became %+v", want[i], got)
		}
		for j, h := range got.Headers {
			if h.Key != headers[j].Key || !same(h.Value, headers[j].Value) {
				t.Fatalf("header %d became %+v", j, h)
			}
		}
	}
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) }

func resumes(t *testing.T, log Log) {
	appendNumbers(t, log, 0, 20)
	g := NewGate()
	a := Read(t, log.New(t), g)
	p := a.Only()
	a.Until("all", func() bool { return a.Total() == 20 })
	next := a.Next[p]
	a.Close()
	want := appendNumbers(t, log, 20, 30)
	b := Read(t, log.New(t), g)
	defer b.Close()
	b.Until("the rest", func() bool { return b.Total() == 10 })
	if !slices.Equal(b.Values[p], want) || b.Assigned[p].Next != next {
		t.Fatalf("read %v from %d, want %v from %d", b.Values[p], b.Assigned[p].Next, want, next)
	}
}

func paused(t *testing.T, log Log) {
	r := Read(t, log.New(t), NewGate())
	defer r.Close()
	r.Only()
	r.Source.Pause()
	appendNumbers(t, log, 0, 10)
	r.For(5 * time.Second)
	if r.Total() > 0 {
		t.Fatalf("%d records came while paused", r.Total())
	}
	r.Source.Resume()
	r.Until("all", func() bool { return r.Total() == 10 })
}

func seek(t *testing.T, log Log) {
	appendNumbers(t, log, 0, 20)
	r := Read(t, log.New(t), NewGate())
	defer r.Close()
	p := r.Only()
	r.Until("all", func() bool { return r.Total() == 20 })
	before, at := r.Assigned[p].Epoch, r.Records[p][12].Offset
	r.Gate.Store(p, sources.Start{Next: at, LeaderEpoch: -1, Stored: true})
	r.Source.Seek(p, at)
	r.Until("the rest again", func() bool { return r.Total() == 28 })
	if now := r.Assigned[p]; now.Epoch <= before || now.Next != at || r.Values[p][20] != "12" {
		t.Fatalf("assigned as %+v after epoch %d, read %v", now, before, r.Values[p])
	}
}

func ends(t *testing.T, log Log) {
	r := Read(t, log.New(t), NewGate())
	r.Only()
	r.For(5 * time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if e, err := r.Source.Next(ctx); err != ctx.Err() {
		t.Fatalf("Next with an ended context: %v %v", e, err)
	}
	r.Close()
	if e, err := r.Source.Next(context.Background()); err == nil {
		t.Fatalf("Next after Close: %v", e)
	}
	r.Close()
}
