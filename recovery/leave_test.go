package recovery_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	rejects "github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
)

// standing is the tail of the record that stands for all twins of these tests.
var standing = record.ID{15: 77}

// note notes the records of raw for which twin says so, as a process does that dies before it offers them.
func (s *site) note(p *process, twin func(offset int64) bool) (dropped []int64) {
	s.Helper()
	ids := record.NewHasher(orders)
	n := duplicates.Noted{Partition: orders}
	err := p.raw.Read(s.Context(), orders, sp(0, 1<<40), func(b *record.Batch) error {
		n.Span.To = b.Next
		for i := range b.Records {
			if r := &b.Records[i]; twin(r.Offset) {
				n.Dropped = append(n.Dropped, duplicates.Dropped{Offset: r.Offset, ID: ids.ID(r), Stands: standing.Tail()})
				dropped = append(dropped, r.Offset)
			}
		}
		return nil
	})
	if err == nil {
		err = duplicates.NewWriter(duplicates.Options{Bucket: s.bucket, Stream: "s", Node: "dead", Instance: "i"}).Append(s.Context(), []duplicates.Noted{n})
	}
	if err != nil {
		s.Fatal(err)
	}
	return dropped
}

// leaving are the options of a process whose recovery leaves out what notes name.
func (s *site) leaving() options {
	rows := s.table.Count
	if s.table.Files {
		rows = nil
	}
	return options{lane: pipeline.LaneOptions{Duplicates: recovery.LeaveOut(duplicates.NewReader(s.bucket, "s"), rejects.NewIndex(s.bucket, "s"), "t", rows, nil)}}
}

// completeBut checks that the destination has every record of [0, next) but those.
func (s *site) completeBut(next int64, dropped []int64) {
	s.Helper()
	have := s.table.Rows(orders)
	for o := int64(0); o < next; o++ {
		if want := map[bool]int{true: 1}[pipetest.Present(o) && !slices.Contains(dropped, o)]; have[o] != want {
			s.Fatalf("offset %d is there %d times, want %d", o, have[o], want)
		}
	}
}

// A process dies between its note and the lanes, with all of one span dropped: recovery leaves out what was noted and covers the span. A
// sink that is added later is filled the same way, and neither comes back to it.
func TestCaseD32AllOfASpanIsDropped(t *testing.T) {
	for _, files := range []bool{false, true} {
		t.Run(fmt.Sprintf("files %v", files), func(t *testing.T) {
			onSite(t, files, func(s *site) {
				twin := func(o int64) bool { return o >= 40 && o < 120 || o == 3 || o == 199 }
				p := s.start(s.leaving())
				e := s.assign(orders)
				s.table.Fault(on("commit", away))
				s.src.Poll(orders, e, 0, 200)
				time.Sleep(time.Second)
				dropped := s.note(p, twin)
				time.Sleep(30 * time.Second) // the lane has given up
				s.table.Fault(nil)
				time.Sleep(time.Minute)
				s.completeBut(200, dropped)
				if b := p.agent.Backlog(); b != (recovery.Backlog{}) {
					t.Errorf("backlog %+v", b)
				}
				begun := s.table.Calls("begin")
				time.Sleep(time.Minute)
				if n := s.table.Calls("begin") - begun; n > 0 {
					t.Errorf("recovery came back %d times", n)
				}
				s.end(p)

				s.table = pipetest.NewTable(files) // a sink added later
				if files {
					s.bucket.Fault(nil)
					for _, k := range s.bucket.Keys() {
						if len(k) > 7 && k[:7] == "s/_cuts" {
							if err := s.bucket.Delete(s.Context(), k); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				p = s.start(s.leaving())
				s.assign(orders)
				time.Sleep(time.Minute)
				s.completeBut(200, dropped)
				s.end(p)
			})
		})
	}
}

// Where this sink has rejected the record that stands for them, twins are written; what another sink has rejected counts for that one.
func TestTwinsOfARejectedRecordAreWritten(t *testing.T) {
	f := func(sink string, written bool) {
		t.Helper()
		onSite(t, false, func(s *site) {
			w := rejects.NewWriter(rejects.Options{Bucket: s.bucket, Stream: "s", Node: "n", Instance: "i"})
			err := w.Append(s.Context(), []rejects.Entry{{Partition: bills, Span: sp(5, 6), Sink: sink, Reason: "sink", ID: standing, At: time.Now()}})
			if err != nil {
				t.Fatal(err)
			}
			p := s.start(s.leaving())
			e := s.assign(orders)
			s.table.Fault(on("commit", away))
			s.src.Poll(orders, e, 0, 100)
			time.Sleep(time.Second)
			dropped := s.note(p, func(o int64) bool { return o%5 == 0 })
			time.Sleep(30 * time.Second)
			s.table.Fault(nil)
			time.Sleep(time.Minute)
			if written {
				dropped = nil
			}
			s.completeBut(100, dropped)
			s.end(p)
		})
	}
	f("t", true)
	f("", true)
	f("another", false)
}

// A rejected record that the sink has taken at a later attempt stands for its twins again. Where the sink does not say, they are written.
func TestTwinsOfARecordThatWasTakenLaterAreLeftOut(t *testing.T) {
	f := func(offset int64, ids []record.ID, count error, written bool) {
		t.Helper()
		onSite(t, false, func(s *site) {
			w := rejects.NewWriter(rejects.Options{Bucket: s.bucket, Stream: "s", Node: "n", Instance: "i"})
			for i, id := range ids {
				at := sp(offset+int64(i), offset+int64(i)+1)
				if err := w.Append(s.Context(), []rejects.Entry{{Partition: bills, Span: at, Sink: "t", Reason: "sink", ID: id, At: time.Now()}}); err != nil {
					t.Fatal(err)
				}
			}
			p := s.start(s.leaving())
			s.src.Poll(bills, s.assign(bills), 0, 20)
			e := s.assign(orders)
			time.Sleep(time.Minute)
			s.rows(bills, len(present(20)))
			s.table.Fault(on("commit", away))
			s.src.Poll(orders, e, 0, 100)
			time.Sleep(time.Second)
			dropped := s.note(p, func(o int64) bool { return o%5 == 0 })
			time.Sleep(30 * time.Second)
			s.table.Fault(on("count", count))
			time.Sleep(time.Minute)
			if written {
				dropped = nil
			}
			s.completeBut(100, dropped)
			s.end(p)
		})
	}
	one := []record.ID{standing}
	f(5, one, nil, false)
	f(3, one, nil, true) // the sink has its neighbours
	f(5, one, away, true)
	f(5, []record.ID{standing, {0: 1, 15: 77}}, nil, true) // whose tail it is, nobody knows
}

// A record that was rejected after its twins had been left out: a forced recovery writes them.
func TestForceWritesTwinsOfARejectedRecord(t *testing.T) {
	onSite(t, false, func(s *site) {
		p := s.start(s.leaving())
		e := s.assign(orders)
		s.table.Fault(on("commit", away))
		s.src.Poll(orders, e, 0, 100)
		time.Sleep(time.Second)
		dropped := s.note(p, func(o int64) bool { return o%5 == 0 })
		time.Sleep(30 * time.Second)
		s.table.Fault(nil)
		time.Sleep(time.Minute)
		s.completeBut(100, dropped)
		if err := p.agent.Force(s.Context(), orders, sp(0, 100), func(int, int) {}); err != nil {
			t.Fatal(err)
		}
		s.completeBut(100, dropped)
		w := rejects.NewWriter(rejects.Options{Bucket: s.bucket, Stream: "s", Node: "n", Instance: "i"})
		if err := w.Append(s.Context(), []rejects.Entry{{Partition: bills, Span: sp(5, 6), Sink: "t", Reason: "sink", ID: standing, At: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		if err := p.agent.Force(s.Context(), orders, sp(0, 100), func(int, int) {}); err != nil {
			t.Fatal(err)
		}
		s.completeBut(100, nil)
		s.end(p)
	})
}

// A process dies between its claims and its note: nothing is named, and everything is written. Notes that are damaged are no better than
// none, and notes of another record at that offset name nothing.
func TestWhatIsNotNamedIsWritten(t *testing.T) {
	f := func(spoil func(s *site, p *process)) {
		t.Helper()
		onSite(t, false, func(s *site) {
			p := s.start(s.leaving())
			e := s.assign(orders)
			s.table.Fault(on("commit", away))
			s.src.Poll(orders, e, 0, 100)
			time.Sleep(time.Second)
			spoil(s, p)
			time.Sleep(30 * time.Second)
			s.table.Fault(nil)
			time.Sleep(time.Minute)
			s.completeBut(100, nil)
			s.end(p)
		})
	}
	f(func(*site, *process) {})
	f(func(s *site, p *process) {
		s.note(p, func(o int64) bool { return o%2 == 0 })
		s.spoil("s/_duplicates")
	})
	f(func(s *site, _ *process) {
		w := duplicates.NewWriter(duplicates.Options{Bucket: s.bucket, Stream: "s", Node: "dead", Instance: "i"})
		n := duplicates.Noted{Partition: orders, Span: sp(0, 100), Dropped: []duplicates.Dropped{{Offset: 5, ID: record.ID{1}, Stands: standing.Tail()}}}
		if err := w.Append(s.Context(), []duplicates.Noted{n}); err != nil {
			s.Fatal(err)
		}
	})
	f(func(s *site, p *process) { // the trail is damaged: whose twins are to be written, nobody knows
		s.note(p, func(o int64) bool { return o%2 == 0 })
		w := rejects.NewWriter(rejects.Options{Bucket: s.bucket, Stream: "s", Node: "n", Instance: "i"})
		if err := w.Append(s.Context(), []rejects.Entry{{Partition: bills, Span: sp(5, 6), Sink: "t", Reason: "sink", At: time.Now()}}); err != nil {
			s.Fatal(err)
		}
		s.spoil("s/_trail")
	})
}

// spoil flips a bit near the end of every object below a prefix.
func (s *site) spoil(prefix string) {
	s.Helper()
	n := 0
	for _, k := range s.bucket.Keys() {
		if len(k) > len(prefix) && k[:len(prefix)] == prefix {
			b := slices.Clone(s.bucket.Get(k))
			b[len(b)-40] ^= 1
			s.bucket.Put(k, b)
			n++
		}
	}
	if n == 0 {
		s.Fatalf("nothing lies below %s", prefix)
	}
}
