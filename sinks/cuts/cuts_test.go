package cuts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks"
	"github.com/stream-arrow/twgd/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var orders = record.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{0xab, 1}, Number: 4}

const ordersDir = "s/_cuts/lake/orders~ab010000/4/"

func sp(from, to int64) checkpoint.Span { return checkpoint.Span{From: from, To: to} }

func chains(b store.Bucket, genesis, cell int64) *Chains {
	return New(Options{Bucket: b, Stream: "s", Sink: "lake", Cell: cell,
		Genesis: func(context.Context, record.Partition) (int64, error) { return genesis, nil },
		Now:     func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC) }})
}

func pin(t *testing.T, c *Chains, s checkpoint.Span, want bool) {
	t.Helper()
	if got, err := c.Pin(t.Context(), orders, s); err != nil || got != want {
		t.Fatalf("Pin(%v) = %v, %v, want %v", s, got, err, want)
	}
}

func hole(t *testing.T, c *Chains, to int64) {
	t.Helper()
	if err := c.PinHole(t.Context(), orders, to); err != nil {
		t.Fatal(err)
	}
}

// see compares the cells that a chain has, as c and as a process that knows nothing of it see it.
func see(t *testing.T, b store.Bucket, c *Chains, covered checkpoint.SpanSet, want string) {
	t.Helper()
	genesis, _ := c.opt.Genesis(t.Context(), orders)
	for name, c := range map[string]*Chains{"the writer": c, "a newcomer": chains(b, genesis, 7)} {
		got, err := c.Cells(t.Context(), orders, covered)
		if s := fmt.Sprint(got); err != nil || s != "["+want+"]" {
			t.Errorf("%s sees %s, %v, want [%s]", name, s, err, want)
		}
	}
}

func TestCellsOfAHole(t *testing.T) {
	f := func(c cut, covered checkpoint.SpanSet, want string) {
		t.Helper()
		if got := fmt.Sprint(c.uncovered(nil, covered)); got != "["+want+"]" {
			t.Errorf("cells of %v without %v are %s, want [%s]", c, covered, got, want)
		}
	}
	none := checkpoint.SpanSet{}
	f(cut{0, 10, 0}, none, "[0, 10)")
	f(cut{0, 10, 5}, none, "[0, 5) [5, 10)")
	f(cut{3, 12, 5}, none, "[3, 5) [5, 10) [10, 12)")
	f(cut{6, 8, 5}, none, "[6, 8)")
	f(cut{3, 12, 5}, checkpoint.NewSpanSet(sp(5, 10)), "[3, 5) [10, 12)")
	f(cut{3, 12, 5}, checkpoint.NewSpanSet(sp(0, 7), sp(8, 20)), "[5, 10)")
	f(cut{3, 12, 5}, checkpoint.NewSpanSet(sp(4, 6)), "[3, 5) [5, 10) [10, 12)")
	f(cut{3, 12, 5}, checkpoint.NewSpanSet(sp(3, 12)), "")
	const end = 1<<63 - 1
	f(cut{end - 3, end, 1 << 40}, none, fmt.Sprintf("[%d, %d)", int64(end-3), int64(end)))
}

func TestObject(t *testing.T) {
	b := faultbucket.New()
	c := chains(b, 100, 50)
	pin(t, c, sp(130, 180), true)
	f := func(name, want string) {
		t.Helper()
		got := string(b.Get(ordersDir + name))
		i := strings.Index(got, `"nonce":"`) + len(`"nonce":"`)
		if i < 20 || len(got) < i+32 || got[:i]+"…"+got[i+32:] != want {
			t.Errorf("%s holds\n%s, want\n%s", name, got, want)
		}
	}
	f("00000000000000000100", `{"version":1,"first":100,"next":130,"kind":"hole","cell":50,"nonce":"…","created":"2026-01-02T03:04:05.6Z"}`)
	f("00000000000000000130", `{"version":1,"first":130,"next":180,"kind":"cut","cell":0,"nonce":"…","created":"2026-01-02T03:04:05.6Z"}`)
	see(t, b, c, checkpoint.SpanSet{}, "[100, 130) [130, 180)")
}

func TestPin(t *testing.T) {
	b := faultbucket.New()
	lane, other := chains(b, 0, 10), chains(b, 0, 20)
	pin(t, lane, sp(0, 5), true)
	pin(t, lane, sp(0, 5), true)     // again
	pin(t, other, sp(0, 5), true)    // by another
	pin(t, other, sp(0, 6), false)   // longer
	pin(t, other, sp(0, 4), false)   // shorter
	pin(t, other, sp(2, 5), false)   // inside
	pin(t, lane, sp(17, 20), true)   // behind a hole
	pin(t, other, sp(18, 25), false) // across
	pin(t, other, sp(5, 17), false)  // the hole has two cells, of which no lane writes one file
	hole(t, other, 18)               // is there already
	hole(t, other, 27)
	pin(t, other, sp(20, 27), true) // of a hole that has one cell there is one file, whoever writes it
	see(t, b, lane, checkpoint.SpanSet{}, "[0, 5) [5, 10) [10, 17) [17, 20) [20, 27)")
}

func TestOverRealStores(t *testing.T) {
	for _, url := range []string{"file://" + t.TempDir(), "mem://cuts"} {
		b, err := store.Open(t.Context(), url, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, other := chains(b, 5, 10), chains(b, 5, 10)
		pin(t, c, sp(8, 20), true)
		pin(t, other, sp(9, 20), false)
		hole(t, other, 34)
		for _, s := range []checkpoint.Span{sp(5, 8), sp(20, 30), sp(20, 30)} {
			if err := c.MarkEmpty(t.Context(), orders, s); err != nil {
				t.Fatal(err)
			}
		}
		pin(t, c, sp(34, 40), true) // cuts go on behind the marks
		empty, err := other.Empties(t.Context(), orders)
		if err != nil || empty.String() != "[5, 8) [20, 30)" {
			t.Errorf("%s: empty is %v, %v", url, empty, err)
		}
		see(t, b, c, empty, "[8, 20) [30, 34) [34, 40)")
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestHoleOfOneCellIsAlike(t *testing.T) {
	b := faultbucket.New()
	lane, recovery := chains(b, 0, 10), chains(b, 0, 10)
	hole(t, recovery, 7)
	pin(t, lane, sp(0, 7), true)
	hole(t, recovery, 14)
	pin(t, lane, sp(7, 14), false)
}

func TestHead(t *testing.T) {
	b := faultbucket.New()
	c, other := chains(b, 40, 10), chains(b, 40, 10)
	f := func(want int64) {
		t.Helper()
		if got, err := c.Head(t.Context(), orders); err != nil || got != want {
			t.Errorf("the head is %d, %v, want %d", got, err, want)
		}
	}
	f(40)
	for i := range int64(20) { // more than refresh reads one by one
		pin(t, other, sp(40+i, 41+i), true)
	}
	f(60)
	hole(t, other, 61)
	f(61)
}

func TestLostReplies(t *testing.T) {
	f := func(faults ...faultbucket.Fault) {
		t.Helper()
		b := faultbucket.New()
		c := chains(b, 0, 100)
		b.Script("create", faults...)
		for range faults {
			if _, err := c.Pin(t.Context(), orders, sp(5, 9)); err == nil {
				break
			}
		}
		pin(t, c, sp(5, 9), true)
		see(t, b, c, checkpoint.SpanSet{}, "[0, 5) [5, 9)")
	}
	f(faultbucket.Lost, faultbucket.Lost)
	f(faultbucket.Mine, faultbucket.Mine)
	f(faultbucket.Vanish, faultbucket.None, faultbucket.Vanish)
	f(faultbucket.Refuse, faultbucket.Deny, faultbucket.None, faultbucket.Refuse)
}

// A pin of ours that got lost lands after we have gone on: it is the chain's, and the longer load must go.
func TestLatePinIsOurs(t *testing.T) {
	b := faultbucket.New()
	c := chains(b, 0, 100)
	b.Script("create", faultbucket.Late)
	if _, err := c.Pin(t.Context(), orders, sp(0, 3)); err == nil {
		t.Fatal("a pin without an answer is taken for pinned")
	}
	b.Land(0, false)
	pin(t, c, sp(0, 4), false)
	pin(t, c, sp(0, 3), true)
}

func TestHangingStoreHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faultbucket.New()
		c := chains(b, 0, 100)
		b.Fault(func(c faultbucket.Call) faultbucket.Fault {
			if c.Op == "create" {
				return faultbucket.Hang
			}
			return faultbucket.None
		})
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error)
		go func() {
			_, err := c.Pin(long, orders, sp(0, 3))
			done <- err
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := c.Head(short, orders); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if err := <-done; err == nil {
			t.Error("a pin that hung is pinned")
		}
		b.Fault(nil)
		pin(t, c, sp(0, 3), true)
	})
}

func TestGenesisUnknown(t *testing.T) {
	c := New(Options{Bucket: faultbucket.New(), Stream: "s", Sink: "lake", Cell: 1,
		Genesis: func(context.Context, record.Partition) (int64, error) { return 0, sinks.ErrNoChain }})
	if _, err := c.Head(t.Context(), orders); !errors.Is(err, sinks.ErrNoChain) {
		t.Error(err)
	}
}

func TestDamagedCut(t *testing.T) {
	f := func(body string) {
		t.Helper()
		b := faultbucket.New()
		b.Put(ordersDir+"00000000000000000000", []byte(body))
		if got, err := chains(b, 0, 10).Cells(t.Context(), orders, checkpoint.SpanSet{}); err == nil {
			t.Errorf("%s is read as %v", body, got)
		}
	}
	whole := `{"version":1,"first":0,"next":5,"kind":"cut","cell":0,"nonce":"00112233445566778899aabbccddeeff"}`
	if _, _, err := decode([]byte(whole)); err != nil {
		t.Fatal(err)
	}
	f("")
	f(whole[:40])
	f(strings.Replace(whole, `"version":1`, `"version":2`, 1))
	f(strings.Replace(whole, `"first":0`, `"first":1`, 1))
	f(strings.Replace(whole, `"first":0`, `"first":-1`, 1))
	f(strings.Replace(whole, `"next":5`, `"next":0`, 1))
	f(strings.Replace(whole, `"cut"`, `"cat"`, 1))
	f(strings.Replace(whole, `"cell":0`, `"cell":5`, 1))
	f(strings.Replace(whole, `"cut"`, `"hole"`, 1))
	f(strings.Replace(whole, `ff"`, `"`, 1))
}

func TestCutThatIsGoneIsDamage(t *testing.T) {
	b := faultbucket.New()
	c := chains(b, 0, 10)
	for i := range int64(5) {
		pin(t, c, sp(i, i+1), true)
	}
	if err := b.Delete(t.Context(), ordersDir+record.OffsetName(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := chains(b, 0, 10).Cells(t.Context(), orders, checkpoint.SpanSet{}); !errors.Is(err, avrofile.ErrDamaged) {
		t.Error(err)
	}
}

func TestEmpties(t *testing.T) {
	b := faultbucket.New()
	c, other := chains(b, 0, 10), chains(b, 0, 10)
	f := func(c *Chains, want string) {
		t.Helper()
		if got, err := c.Empties(t.Context(), orders); err != nil || got.String() != want {
			t.Errorf("empty is %v, %v, want %s", got, err, want)
		}
	}
	mark := func(c *Chains, s checkpoint.Span) {
		t.Helper()
		if err := c.MarkEmpty(t.Context(), orders, s); err != nil {
			t.Fatal(err)
		}
	}
	f(c, "")
	hole(t, c, 40)
	mark(c, sp(10, 20))
	mark(c, sp(10, 20))
	mark(other, sp(10, 20))
	b.Script("create", faultbucket.Lost)
	mark(other, sp(30, 40))
	f(c, "[10, 20) [30, 40)")
	if body := string(b.Get(ordersDir + "_empty/00000000000000000030-00000000000000000040.empty")); body !=
		`{"version":1,"first":30,"next":40,"created":"2026-01-02T03:04:05.6Z"}` {
		t.Error(body)
	}
	see(t, b, c, checkpoint.NewSpanSet(sp(0, 20), sp(30, 40)), "[20, 30)")
	f(c, "[10, 20) [30, 40)")
	mark(other, sp(20, 30)) // behind the place up to which c has listed
	f(c, "[10, 40)")
	see(t, b, c, checkpoint.NewSpanSet(sp(0, 40)), "")
	f(c, "[10, 40)")
	b.Put(ordersDir+"_empty/00000000000000000040-00000000000000000040.empty", nil)
	if _, err := c.Empties(t.Context(), orders); !errors.Is(err, avrofile.ErrDamaged) {
		t.Error(err)
	}
}

// A mark that another process made, and that coverage has passed before we ever listed it, is still found.
func TestEmptiesThatCoverageHasPassed(t *testing.T) {
	b := faultbucket.New()
	c, other := chains(b, 0, 10), chains(b, 0, 10)
	hole(t, c, 30)
	if _, err := c.Empties(t.Context(), orders); err != nil {
		t.Fatal(err)
	}
	if err := other.MarkEmpty(t.Context(), orders, sp(0, 10)); err != nil {
		t.Fatal(err)
	}
	see(t, b, c, checkpoint.NewSpanSet(sp(0, 20)), "[20, 30)")
	if got, err := c.Empties(t.Context(), orders); err != nil || got.String() != "[0, 10)" {
		t.Error(got, err)
	}
}

// Years of cuts: what is covered is neither listed nor read.
func TestSteadyStateIsCheap(t *testing.T) {
	b := faultbucket.New()
	writer := chains(b, 0, 10)
	const n = 3000
	for i := range int64(n) {
		pin(t, writer, sp(i*10, i*10+10), true)
	}
	covered := checkpoint.NewSpanSet(sp(0, n*10-20))
	c := chains(b, 0, 10)
	look := func(want string) (lists, reads int) {
		t.Helper()
		lists, reads = b.Calls("list"), b.Calls("read")
		got, err := c.Cells(t.Context(), orders, covered)
		if s := fmt.Sprint(got); err != nil || s != want {
			t.Fatalf("cells %s, %v, want %s", s, err, want)
		}
		return b.Calls("list") - lists, b.Calls("read") - reads
	}
	look("[[29980, 29990) [29990, 30000)]")
	for range 3 {
		if lists, reads := look("[[29980, 29990) [29990, 30000)]"); lists != 0 || reads != 1 {
			t.Errorf("an idle look costs %d listings and %d reads", lists, reads)
		}
	}
	pin(t, writer, sp(n*10, n*10+5), true)
	covered.Add(sp(0, n*10))
	if lists, reads := look("[[30000, 30005)]"); lists != 0 || reads != 3 {
		t.Errorf("one new cut costs %d listings and %d reads", lists, reads)
	}
	l := c.mu.ledgers[orders]
	if len(l.known) != 1 {
		t.Errorf("%d cuts are kept in memory", len(l.known))
	}
	// Somebody takes a file away: its cut comes back.
	covered = checkpoint.NewSpanSet(sp(0, 500), sp(510, n*10+5))
	if _, reads := look("[[500, 510)]"); reads != 2 {
		t.Errorf("one old cut costs %d reads", reads)
	}
	if len(writer.mu.ledgers[orders].known) > forget {
		t.Errorf("a lane that never asks for cells keeps %d cuts", len(writer.mu.ledgers[orders].known))
	}
}
