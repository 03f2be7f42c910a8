package cuts

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/internal/faultbucket"
)

// D31: an upload of a lane is held back past the deadline, recovery writes the span, the upload lands: one file.
func TestCaseD31LateUpload(t *testing.T) {
	b := faultbucket.New()
	lane, recovery := chains(b, 0, 100), chains(b, 0, 100)
	files := map[checkpoint.Span]int{}
	create := func(s checkpoint.Span) {
		if _, taken := files[s]; !taken {
			files[s] = 1
		}
	}
	pin(t, lane, sp(20, 60), true) // the lane pins, and its upload is held back
	// Past the deadline recovery sees gaps where the lane's file is missing, and fills what the chain says.
	hole(t, recovery, 90)
	cells, err := recovery.Cells(t.Context(), orders, checkpoint.SpanSet{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		create(c)
	}
	create(sp(20, 60)) // the upload lands
	if fmt.Sprint(files) != "map[[0, 20):1 [20, 60):1 [60, 90):1]" {
		t.Errorf("files are %v", files)
	}
	// A lane that woke up with another load is told to discard it.
	pin(t, lane, sp(60, 95), false)
}

// Four processes pin, give up, lose replies and upload late over a store that fails in every way it can: never do two files
// overlap, all see the same cells, and at the end all is covered.
func TestNoTwoFilesOverlap(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { race(t, rand.New(rand.NewPCG(seed, 31))) })
	}
}

func race(t *testing.T, rng *rand.Rand) {
	b := faultbucket.New()
	procs := make([]*Chains, 4)
	for i := range procs {
		procs[i] = chains(b, 3, int64(2+rng.IntN(6)))
	}
	var files checkpoint.SpanSet
	names := map[checkpoint.Span]bool{}
	land := func(s checkpoint.Span) {
		if names[s] {
			return // create-only
		}
		if files.Overlaps(s) {
			t.Fatalf("file %v overlaps %v", s, files)
		}
		names[s] = true
		files.Add(s)
	}
	faults := []faultbucket.Fault{faultbucket.Refuse, faultbucket.Lost, faultbucket.Mine, faultbucket.Vanish, faultbucket.Late}
	b.Fault(func(faultbucket.Call) faultbucket.Fault {
		if rng.IntN(4) > 0 {
			return faultbucket.None
		}
		return faults[rng.IntN(len(faults))]
	})
	var late []checkpoint.Span
	upload := func(s checkpoint.Span) {
		if rng.IntN(2) == 0 {
			land(s)
		} else {
			late = append(late, s)
		}
	}
	end := int64(3)
	for range 120 {
		end += rng.Int64N(4)
		i := rng.IntN(len(procs))
		c := procs[i]
		switch rng.IntN(8) {
		case 0:
			if n := b.Pending(); n > 0 {
				b.Land(rng.IntN(n), rng.IntN(4) == 0)
			}
		case 1:
			if n := len(late); n > 0 {
				k := rng.IntN(n)
				land(late[k])
				late = append(late[:k], late[k+1:]...)
			}
		case 2:
			procs[i] = chains(b, 3, int64(2+rng.IntN(6))) // it crashes and starts again
		case 3, 4, 5: // a lane closes what it has open
			from := max(3, end-1-rng.Int64N(12))
			s := sp(from, from+1+rng.Int64N(6))
			if ok, err := c.Pin(t.Context(), orders, s); err == nil && ok {
				upload(s)
			}
		case 6:
			if rng.IntN(3) == 0 {
				c.PinHole(t.Context(), orders, end)
			}
		case 7: // recovery fills some of what is missing
			cells, err := c.Cells(t.Context(), orders, files)
			if err == nil && len(cells) > 0 {
				upload(cells[rng.IntN(len(cells))])
			}
		}
	}
	b.Fault(nil)
	for b.Pending() > 0 {
		b.Land(0, false)
	}
	finish(t, procs, end, &files, land, late)
}

// finish lets recovery end its work in a store that works again.
func finish(t *testing.T, procs []*Chains, end int64, files *checkpoint.SpanSet, land func(checkpoint.Span), late []checkpoint.Span) {
	hole(t, procs[0], end)
	head, err := procs[0].Head(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	var all string
	for i, c := range procs {
		cells, err := c.Cells(t.Context(), orders, *files)
		if err != nil {
			t.Fatal(err)
		}
		if s := fmt.Sprint(cells); i == 0 {
			all = s
		} else if s != all {
			t.Fatalf("process %d sees %s, process 0 %s", i, s, all)
		}
	}
	cells, _ := procs[1].Cells(t.Context(), orders, *files)
	for _, c := range cells {
		land(c)
	}
	for _, s := range late {
		land(s)
	}
	if !files.Covers(sp(3, head)) || files.Len() != head-3 {
		t.Fatalf("files cover %v of [3, %d)", files, head)
	}
	if left, err := procs[2].Cells(t.Context(), orders, *files); err != nil || len(left) > 0 {
		t.Fatalf("%v is left over, %v", left, err)
	}
}
