package raw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
)

// faulty is a bucket that answers Creates of segments as its script says, one word each: "ok" stores; "lost" stores and does not
// know; "exists" stores and says exists, as a client library does that repeats a request by itself; "gone" stores nothing and does
// not know; "late" does so too, and stores when the next Create comes; "no" refuses.
type faulty struct {
	store.Bucket
	mu     sync.Mutex
	script []string
	late   func()
	before func() // runs once before the next Create of a segment
}

var errNo = errors.New("no")

func (b *faulty) Create(ctx context.Context, key string, body []byte) error {
	if !strings.HasSuffix(key, ".avro") {
		return b.Bucket.Create(ctx, key, body)
	}
	b.mu.Lock()
	word := "ok"
	if len(b.script) > 0 {
		word, b.script = b.script[0], b.script[1:]
	}
	first := []func(){b.late, b.before}
	b.late, b.before = nil, nil
	b.mu.Unlock()
	for _, f := range first {
		if f != nil {
			f()
		}
	}
	body = slices.Clone(body)
	kind := map[string]error{"lost": store.ErrUnknown, "gone": store.ErrUnknown, "late": store.ErrUnknown, "exists": store.ErrExists, "no": nil}
	switch word {
	case "lost", "exists":
		b.Bucket.Create(ctx, key, body)
	case "late":
		b.late = func() { b.Bucket.Create(ctx, key, body) }
	case "ok":
		return b.Bucket.Create(ctx, key, body)
	}
	return &store.Error{Op: "create", Key: key, Kind: kind[word], Err: errNo}
}

// pair is two stores over one place, as of two processes, with faults for each.
func pair(t *testing.T, url string) (a, b *bench, fa, fb *faulty, bucket store.Bucket) {
	fa, fb = &faulty{Bucket: openBucket(t, url)}, &faulty{Bucket: openBucket(t, url)}
	shared := strings.HasSuffix(url, sharedMark)
	return openStore(t, raw.Options{Bucket: fa, Shared: shared}), openStore(t, raw.Options{Bucket: fb, Shared: shared}), fa, fb, openBucket(t, url)
}

func segments(t testing.TB, b store.Bucket, p record.Partition) map[string][]byte {
	t.Helper()
	entries, err := b.List(t.Context(), "s/"+p.Path()+"/", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if out[e.Key], err = b.Read(t.Context(), e.Key); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestCaseD01AWriterThatSleptChangesNothing(t *testing.T) {
	severalNodes(t, func(t *testing.T, url string) {
		a, b, _, _, bucket := pair(t, url)
		a.begin(0)
		a.put(0, 100)
		b.begin(100)
		held := batches(orders, 100, 110) // A has these open and is stopped
		b.put(100, 150)
		b.put(150, 200)
		before := segments(t, bucket, orders)

		st, err := a.Append(t.Context(), orders, held)
		if err != nil || st.Ours || st.Next != 150 || st.Last != 100 || st.LeaderEpoch != 50 || st.Bytes != 0 {
			t.Fatalf("A has to be told that it was fenced, and B's next and epoch: %+v, %v", st, err)
		}
		after := segments(t, bucket, orders)
		for k, v := range before {
			if !bytes.Equal(after[k], v) {
				t.Errorf("%s has changed", k)
			}
		}
		if len(after) != len(before) {
			t.Error("something was added")
		}
		// A goes on from there and meets B's second one, then rejoins at the head.
		if st, err = a.Append(t.Context(), orders, batches(orders, 150, 151)); err != nil || st.Ours || st.Next != 200 {
			t.Fatal(st, err)
		}
		a.End(orders)
		a.begin(200)
		a.holds(0, 200)
	})
}

func TestWhatIsLeftBehindAnothersCommitBecomesTheNextSegment(t *testing.T) {
	severalNodes(t, func(t *testing.T, url string) {
		a, b, _, _, _ := pair(t, url)
		a.begin(0)
		b.begin(0)
		b.put(0, 4)
		mine := batch(orders, 0, 10)
		st, err := a.Append(t.Context(), orders, []*record.Batch{mine})
		if err != nil || st.Ours || st.Next != 4 {
			t.Fatal(st, err)
		}
		if st, err = a.Append(t.Context(), orders, []*record.Batch{mine.From(st.Next)}); err != nil || !st.Ours || st.Next != 10 {
			t.Fatal(st, err)
		}
		a.holds(0, 10)
	})
}

func TestLostReplies(t *testing.T) {
	f := func(name string, script string, tries ...[3]int64) {
		t.Run(name, func(t *testing.T) {
			severalNodes(t, func(t *testing.T, url string) {
				a, _, fa, _, _ := pair(t, url)
				a.begin(0)
				fa.script = strings.Fields(script)
				for _, try := range tries {
					st, err := a.Append(t.Context(), orders, batches(orders, try[0], try[1]))
					if want := try[2]; want < 0 && err == nil || want >= 0 && (err != nil || !st.Ours || st.Next != want) {
						t.Fatalf("%v: %+v, %v", try, st, err)
					}
				}
				end := tries[len(tries)-1][2]
				a.holds(0, end)
				a.Close()
				again := openStore(t, raw.Options{Bucket: fa, Shared: strings.HasSuffix(url, sharedMark)})
				again.begin(end)
				again.holds(0, end)
			})
		})
	}
	const fails = -1
	f("D10 the answer is lost", "lost", [3]int64{0, 5, 5}, [3]int64{5, 8, 8})
	f("D10 a repeated request says exists", "exists", [3]int64{0, 5, 5}, [3]int64{5, 8, 8})
	f("D30 a longer retry meets the first attempt", "late", [3]int64{0, 2, fails}, [3]int64{0, 3, 2}, [3]int64{2, 3, 3})
	f("D30 nothing had landed", "gone", [3]int64{0, 2, fails}, [3]int64{0, 3, 3})
	f("D08 refused five times", "no no no no no", [3]int64{0, 2, fails}, [3]int64{0, 2, fails}, [3]int64{0, 2, fails}, [3]int64{0, 2, fails}, [3]int64{0, 2, fails}, [3]int64{0, 3, 3})
	f("two late ones in a row", "late late", [3]int64{0, 2, fails}, [3]int64{0, 3, 2}, [3]int64{2, 6, 6})
}

func TestAnEarlierAttemptIsReportedAsItWasStored(t *testing.T) {
	severalNodes(t, func(t *testing.T, url string) {
		a, _, fa, _, _ := pair(t, url)
		a.begin(0)
		fa.script = []string{"late"}
		short, long := batch(orders, 0, 2), batch(orders, 2, 30)
		short.LeaderEpoch, long.LeaderEpoch = 5, 8
		if _, err := a.Append(t.Context(), orders, []*record.Batch{short}); !errors.Is(err, store.ErrUnknown) {
			t.Fatal(err)
		}
		st, err := a.Append(t.Context(), orders, []*record.Batch{short, long})
		if err != nil || !st.Ours || st.Next != 2 || st.LeaderEpoch != 5 {
			t.Fatalf("the leader epoch of what is stored is that of the short attempt: %+v, %v", st, err)
		}
	})
}

func TestCreateOnlyRacesOfGenesis(t *testing.T) {
	severalNodes(t, func(t *testing.T, url string) {
		const racers = 8
		var wg sync.WaitGroup
		heads, called := make([]int64, racers), make([]bool, racers)
		for i := range racers {
			s := open(t, url)
			wg.Go(func() {
				head, err := s.Begin(t.Context(), orders, func(context.Context) (int64, error) {
					called[i] = true
					return int64(100 + i), nil
				})
				if err != nil {
					t.Error(err)
				}
				heads[i] = head.Next
			})
		}
		wg.Wait()
		for i := range racers {
			if heads[i] != heads[0] || heads[i] < 100 {
				t.Errorf("racers begin at different places: %v", heads)
			}
		}
		if !called[heads[0]-100] {
			t.Error("nobody asked for that offset")
		}
	})
}

func TestCaseD33GenesisStandsBeforeAnythingIsFetched(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		if head, err := s.Begin(t.Context(), orders, from(40)); err != nil || head.Next != 40 { // start: latest, and idle
			t.Fatal(head, err)
		}
		s.Close() // killed; ten records come, and then it would begin at 50
		s = open(t, url)
		head, err := s.Begin(t.Context(), orders, func(context.Context) (int64, error) {
			t.Error("the beginning was asked for again")
			return 50, nil
		})
		if err != nil || head.Next != 40 || head.Genesis != 40 {
			t.Fatal(head, err)
		}
		if _, err := s.Append(t.Context(), orders, batches(orders, 40, 50)); err != nil {
			t.Fatal(err)
		}
		s.holds(40, 50)
		if _, err := open(t, memURL()).Begin(t.Context(), orders, from(-1)); err == nil {
			t.Error("a chain began at offset -1")
		}
	})
}

func TestCaseD09AnotherFlushSize(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		s.begin(0)
		s.put(0, 100)
		if local := strings.HasPrefix(url, "file"); local {
			s.Close() // the lock is the process's: a second one in this process would be refused
		}
		s = open(t, url) // killed, and started with a flush size of 60
		s.begin(100)
		s.put(100, 160)
		s.holds(0, 160)
	})
}

func TestCaseD29TheHeadComesFromRawAlone(t *testing.T) {
	severalNodes(t, func(t *testing.T, url string) {
		a, b, _, _, _ := pair(t, url)
		a.begin(0)
		for o := int64(0); o < 50; o++ {
			a.put(o*10, o*10+10)
		}
		if head := b.begin(500); head.Last != 490 || head.Genesis != 0 || head.LeaderEpoch != 0 {
			t.Error(head)
		}
	})
}

func TestTopicsAndGenerationsHaveChainsOfTheirOwn(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		other, again, fifth := orders, orders, orders
		other.TopicID = [16]byte{9, 9}
		again.Generation = 1
		fifth.Number = 5
		all := []record.Partition{orders, again, fifth, other}
		for i, p := range all {
			s.p = p
			s.begin(0)
			s.put(0, int64(10*(i+1)))
		}
		for i, p := range all {
			s.p = p
			s.holds(0, int64(10*(i+1)))
		}
		ps, err := s.Partitions(t.Context())
		slices.SortFunc(ps, func(p, q record.Partition) int { return strings.Compare(p.Path(), q.Path()) })
		if err != nil || !slices.Equal(ps, []record.Partition{orders, again, fifth, other}) {
			t.Error("D24", ps, err)
		}
	})
}

func TestAnothersGenesisIsRefused(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		s.begin(0)
		s.put(0, 10)
		f := func(change func(*record.Partition), want string) {
			t.Helper()
			p := orders
			change(&p)
			_, err := s.Begin(t.Context(), p, from(0))
			if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, avrofile.ErrDamaged) {
				t.Errorf("%+v: %v", p, err)
			}
			if err := s.Read(t.Context(), p, checkpoint.Span{From: 0, To: 10}, nil); err == nil {
				t.Error("read", p)
			}
		}
		f(func(p *record.Partition) { p.TopicID[15] = 1 }, "begins like")
		f(func(p *record.Partition) { p.Cluster = "another" }, "other records")
	})
}

func TestFound(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		five := orders
		five.Number = 5
		starts := map[record.Partition]int64{orders: 7, five: 9}
		for range 2 {
			got, err := s.Found(t.Context(), "c", starts)
			if err != nil || len(got) != 2 || got[orders] != 7 || got[five] != 9 {
				t.Fatal(got, err)
			}
			starts = map[record.Partition]int64{orders: 100} // what it means later changes nothing
		}
		if _, err := s.Found(t.Context(), "elsewhere", nil); err == nil || !strings.Contains(err.Error(), "other records") {
			t.Error(err)
		}
	})
}

func TestIdentityIsOfOneRaw(t *testing.T) {
	bothLayouts(t, func(t *testing.T, url string) {
		s := open(t, url)
		if _, err := s.Identity(t.Context()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("before the first start: %v", err)
		}
		f := func() (id [32]byte) {
			_, err := s.Found(t.Context(), "c", map[record.Partition]int64{orders: 7})
			if err == nil {
				id, err = s.Identity(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := f()
		if f() != first {
			t.Error("one raw has two identities")
		}
		if err := openBucket(t, url).Delete(t.Context(), "s/_stream"); err != nil {
			t.Fatal(err)
		}
		if f() == first {
			t.Error("a raw that began anew has the identity of the one before")
		}
	})
}

func TestAHoleInTheChainIsDamage(t *testing.T) {
	f := func(name string, lost int64, read [2]int64, damaged bool) {
		t.Run(name, func(t *testing.T) {
			severalNodes(t, func(t *testing.T, url string) {
				a, _, _, _, bucket := pair(t, url)
				a.begin(0)
				for o := int64(0); o < 50; o += 10 {
					a.put(o, o+10)
				}
				a.End(orders)
				if err := bucket.Delete(t.Context(), "s/"+orders.Path()+"/"+record.OffsetName(lost)+".avro"); err != nil {
					t.Fatal(err)
				}
				if _, err := a.read(read[0], read[1]); errors.Is(err, avrofile.ErrDamaged) != damaged {
					t.Errorf("Read: %v", err)
				}
				got := a.findings()
				if lost == 40 {
					if len(got) != 0 { // the last one: nothing tells that there was more
						t.Error(got)
					}
					return
				}
				if len(got) != 1 || got[0].Kind != raw.Damaged || got[0].Span != (checkpoint.Span{From: lost, To: lost + 10}) {
					t.Errorf("Verify: %+v", got)
				}
			})
		})
	}
	f("in the middle", 20, [2]int64{0, 50}, true)
	f("the first", 0, [2]int64{0, 50}, true)
	f("the first, read from behind", 0, [2]int64{5, 50}, true)
	f("read up to it", 20, [2]int64{0, 20}, false)
	f("read from behind it", 20, [2]int64{30, 50}, false)
	f("read from in it", 20, [2]int64{25, 50}, true)
	f("the last", 40, [2]int64{0, 50}, false)
}

func TestTheOwnerKnowsThatTheLastIsMissing(t *testing.T) {
	severalNodes(t, func(t *testing.T, url string) {
		a, _, _, _, bucket := pair(t, url)
		a.begin(0)
		a.put(0, 10)
		a.put(10, 20)
		bucket.Delete(t.Context(), "s/"+orders.Path()+"/"+record.OffsetName(10)+".avro")
		if _, err := a.read(0, 20); !errors.Is(err, avrofile.ErrDamaged) {
			t.Error(err)
		}
		if got := a.findings(); len(got) != 1 || got[0].Kind != raw.Damaged || got[0].Span != (checkpoint.Span{From: 10, To: 20}) {
			t.Error(got)
		}
	})
}

func TestVerifyNamesWhatDoesNotBelong(t *testing.T) {
	severalNodes(t, func(t *testing.T, url string) {
		a, _, _, _, bucket := pair(t, url)
		if _, err := a.Begin(t.Context(), orders, from(10)); err != nil {
			t.Fatal(err)
		}
		a.put(10, 20)
		dir := "s/" + orders.Path() + "/"
		body, _ := bucket.Read(t.Context(), dir+record.OffsetName(10)+".avro")
		for _, name := range []string{"notes.txt", record.OffsetName(5) + ".avro", record.OffsetName(20) + ".avro"} {
			if err := bucket.Create(t.Context(), dir+name, body); err != nil {
				t.Fatal(err)
			}
		}
		a.End(orders)
		got := map[string]raw.FindingKind{}
		for _, f := range a.findings() {
			got[strings.TrimPrefix(f.Path, dir)] = f.Kind
		}
		want := map[string]raw.FindingKind{"notes.txt": raw.Stray, record.OffsetName(5) + ".avro": raw.Stray, record.OffsetName(20) + ".avro": raw.Damaged}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		// A copy under another name is not taken for the end of the chain.
		if _, err := a.Head(t.Context(), orders); !errors.Is(err, avrofile.ErrDamaged) {
			t.Error(err)
		}
	})
}

// TestEveryFlipInAnObjectIsFound flips every bit of a segment in the middle and of the last one. The headers are alike for all
// codecs, so one will do for theirs.
func TestEveryFlipInAnObjectIsFound(t *testing.T) {
	for _, codec := range avrofile.Codecs {
		t.Run(codec, func(t *testing.T) {
			b := &overlay{Bucket: openBucket(t, memURL())}
			s := openStore(t, raw.Options{Bucket: b, Codec: codec})
			s.begin(0)
			for o := int64(0); o < 9; o += 3 {
				s.put(o, o+3)
			}
			s.Close()
			s = openStore(t, raw.Options{Bucket: b, ReadOnly: true})
			for _, first := range []int64{3, 6} {
				b.key = "s/" + orders.Path() + "/" + record.OffsetName(first) + ".avro"
				b.body, _ = b.Bucket.Read(t.Context(), b.key)
				h, _ := avrofile.ParseHeader(b.body)
				bit := int(h.Size) * 8
				if codec == "null" && first == 6 {
					bit = 0
				}
				for ; bit < len(b.body)*8; bit += stride {
					b.body[bit/8] ^= 1 << (bit % 8)
					if !s.flipFound(b.key, 9) {
						mayBeHarmless(t, codec, bit/8, int(h.Size), len(b.body))
					}
					b.body[bit/8] ^= 1 << (bit % 8)
				}
				b.key = ""
			}
		})
	}
}

// mayBeHarmless fails for a byte in which every flip has to be noticed. Only bits in the compressed entries of zstd and deflate
// may mean nothing to anybody: the window's size, padding.
func mayBeHarmless(t *testing.T, codec string, at, begin, end int) {
	t.Helper()
	if codec == "null" || codec == "snappy" || at < begin+2 || at >= end-16 {
		t.Errorf("%s: a flip in byte %d of a block in [%d, %d) was not noticed", codec, at, begin, end)
	}
}

// overlay shows another content for one key.
type overlay struct {
	store.Bucket
	key  string
	body []byte
}

func (b *overlay) Read(ctx context.Context, key string) ([]byte, error) {
	if key == b.key {
		return slices.Clone(b.body), nil
	}
	return b.Bucket.Read(ctx, key)
}

func (b *overlay) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if key == b.key {
		return slices.Clone(b.body[off:min(int64(len(b.body)), off+n)]), nil
	}
	return b.Bucket.ReadRange(ctx, key, off, n)
}

// flipFound reads and verifies the chain, in which one bit of the object under key is flipped. Either both say so, or, which
// returns false, all is read as if nothing had happened: some bits of compressed data mean nothing.
func (b *bench) flipFound(key string, end int64) bool {
	b.Helper()
	got, err := b.read(0, end)
	found := b.findings()
	if err == nil && len(found) == 0 && slices.Equal(got, offsets(0, end)) {
		return false
	}
	if !errors.Is(err, avrofile.ErrDamaged) || len(found) == 0 || found[0].Kind != raw.Damaged || found[0].Path != key {
		b.Fatalf("read %v, %v; found %+v", got, err, found)
	}
	return true
}
