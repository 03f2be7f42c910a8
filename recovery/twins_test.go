package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stream-arrow/twgd/internal/pipetest"
	"github.com/stream-arrow/twgd/pipeline"
	"github.com/stream-arrow/twgd/pipeline/content"
	"github.com/stream-arrow/twgd/pipeline/duplicates"
	rejects "github.com/stream-arrow/twgd/pipeline/trail"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/recovery"
)

// TestStoryOfTwins is the story of a stream that drops duplicates. What a record holds follows from its offset alone, so that most contents
// are there once in each of the three topics. Claims are lost, late, refused and slow, the set is set back to what it was some time ago, notes
// fail, and processes die between any two of these.
//
// Whatever happened, each sink has each content that raw has, each record at most once, and of a content no more records than ever held
// it, were counted as unscreened, or were in a process that died before it asked.
func TestStoryOfTwins(t *testing.T) {
	for _, fleet := range []int{0, 2} {
		t.Run(fmt.Sprintf("agents %d", fleet+1), func(t *testing.T) { tell(t, fleet, true) })
	}
}

// twins is the part of a story that screening plays.
type twins struct {
	*story
	claims *pipetest.Claims
	lives  int

	mu                 sync.Mutex
	asked              map[record.ID]bool
	judged             map[record.ID]bool // an answer came, and where it names a twin, its note is durable
	uncertain, dropped int64
}

func newTwins(s *story) *twins {
	claims := pipetest.NewClaims()
	if s.dice.Percent(50) {
		claims.Window = s.dice.Between(10*time.Second, 3*time.Minute)
	}
	return &twins{story: s, claims: claims, asked: map[record.ID]bool{}, judged: map[record.ID]bool{}}
}

// screening is that of one process.
func (w *twins) screening() *pipeline.Screening {
	w.lives++
	s, err := content.New(content.Options{Stream: "s", On: content.OnValue, Claims: w.claims})
	if err != nil {
		w.Fatal(err)
	}
	notes := duplicates.NewWriter(duplicates.Options{Bucket: w.bucket, Stream: "s", Node: "writer", Instance: fmt.Sprint(w.lives)})
	return &pipeline.Screening{Contents: &watched{w, s}, Drop: true, Note: func(ctx context.Context, noted []duplicates.Noted) error {
		err := notes.Append(ctx, noted)
		if err == nil && ctx.Err() == nil {
			w.note(noted)
		}
		return err
	}}
}

// watched notes who was asked about.
type watched struct {
	w *twins
	s *content.Screen
}

func (x *watched) Screen(ctx context.Context, batches []content.Batch) (content.Verdict, error) {
	x.w.mark(x.w.asked, batches, nil)
	v, err := x.s.Screen(ctx, batches)
	if err == nil && ctx.Err() == nil {
		x.w.mark(x.w.judged, batches, v.Twins)
	}
	return v, err
}

// mark notes all records of batches but the twins.
func (w *twins) mark(in map[record.ID]bool, batches []content.Batch, but []content.Twin) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, b := range batches {
		for i, id := range b.IDs {
			if len(but) > 0 && but[0].Batch == n && but[0].Record == i {
				but = but[1:]
				continue
			}
			in[id] = true
		}
	}
}

func (w *twins) note(noted []duplicates.Noted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range noted {
		for _, d := range n.Dropped {
			w.judged[d.ID] = true
		}
	}
}

func (w *twins) leaveOut(sink string, rows recovery.Rows) pipeline.Duplicates {
	return recovery.LeaveOut(duplicates.NewReader(w.bucket, "s"), rejects.NewIndex(w.bucket, "s"), sink, rows, nil)
}

// fault is well for a while and away for another, as a leader that changes.
func (w *twins) fault() func(context.Context) (bool, time.Duration, error) {
	var mu sync.Mutex
	var until time.Time
	away := false
	refused := &content.Unavailable{Reason: "no_leader", Err: errors.New("x")}
	return func(ctx context.Context) (land bool, late time.Duration, err error) {
		mu.Lock()
		if !time.Now().Before(until) {
			until, away = time.Now().Add(w.dice.Between(time.Second, 40*time.Second)), w.dice.Percent(25)
		}
		gone := away
		mu.Unlock()
		switch {
		case gone:
			return false, 0, refused
		case w.dice.Percent(4): // it lands, and nobody hears of it
			return true, 0, refused
		case w.dice.Percent(4):
			return true, w.dice.Between(time.Millisecond, time.Minute), refused
		case w.dice.Percent(2):
			<-ctx.Done()
			return w.dice.Percent(50), 0, ctx.Err()
		}
		return true, 0, pause(ctx, w.dice.Between(0, 400*time.Millisecond))
	}
}

// turn is what happens to the set now.
func (w *twins) turn() {
	switch {
	case w.dice.Percent(3):
		w.claims.Keep()
	case w.dice.Percent(1):
		w.claims.Restore()
	}
}

// ended takes what a process has counted.
func (w *twins) ended(stream *pipeline.Stream) {
	st, _ := stream.Status(context.Background())
	if st.Dedup.Waiting != 0 {
		w.Errorf("%d bytes still wait to be screened", st.Dedup.Waiting)
	}
	for _, n := range st.Dedup.Unavailable {
		w.uncertain += n
	}
	w.dropped += st.Dedup.Dropped
}

// verify holds the sinks against the logs.
func (w *twins) verify() {
	end := int64(0)
	for _, p := range w.topics {
		end = max(end, w.broker.End(p))
	}
	died := int64(0)
	for _, p := range w.topics {
		for _, id := range w.ids(p) {
			if !w.asked[id] {
				died++
			}
		}
	}
	for i, t := range w.tables {
		w.inSink(i, t, end, died)
	}
	if w.dropped < end/50 {
		w.Errorf("only %d records were dropped of %d contents", w.dropped, end)
	}
	w.Logf("%d contents, %d records dropped, %d passed unscreened, %d were never asked about", end, w.dropped, w.uncertain, died)
}

// ids of the records that the log of p holds, by offset.
func (w *twins) ids(p record.Partition) map[int64]record.ID {
	h, out := record.NewHasher(p), map[int64]record.ID{}
	for _, o := range present(w.broker.End(p)) {
		r := pipetest.Record(o, 60)
		out[o] = h.ID(&r)
	}
	return out
}

// inSink checks what sink i holds.
func (w *twins) inSink(i int, t *pipetest.Table, end, died int64) {
	copies, excused, won := map[int64]int64{}, map[int64]int64{}, map[int64]int64{}
	for _, p := range w.topics {
		ids, rows := w.ids(p), t.Rows(p)
		for o, n := range rows {
			if _, there := ids[o]; n > 1 || n == 1 && (!there || rejected(&record.Record{Offset: o})) {
				w.Errorf("sink %d: offset %d of %v is there %d times", i, o, p, n)
			}
			copies[o] += int64(n)
		}
		for o, id := range ids {
			if rows[o] > 0 && !w.judged[id] {
				excused[o]++
			}
			if w.claims.Won(id.Tail()) {
				won[o]++
			}
		}
	}
	extra, restored := int64(0), int64(0)
	for _, o := range present(end) {
		if rejected(&record.Record{Offset: o}) {
			continue
		}
		switch n := copies[o]; {
		case n == 0:
			w.Errorf("sink %d: the content of offset %d is in raw, and lost", i, o)
		case n > won[o]+excused[o]:
			w.Errorf("sink %d: the content of offset %d is there %d times; %d ever held it, %d were not judged", i, o, n, won[o], excused[o])
		}
		extra += copies[o] - 1
		restored += max(0, won[o]-1)
	}
	if extra > w.uncertain+died+restored {
		w.Errorf("sink %d has %d duplicates; %d are counted, %d died, %d claims were forgotten", i, extra, w.uncertain, died, restored)
	}
	w.Logf("sink %d has %d duplicates left", i, extra)
}
