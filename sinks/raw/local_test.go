package raw_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stream-arrow/twgd/avrofile"
	"github.com/stream-arrow/twgd/checkpoint"
	"github.com/stream-arrow/twgd/record"
	"github.com/stream-arrow/twgd/sinks/raw"
	"github.com/stream-arrow/twgd/store"
	"github.com/stream-arrow/twgd/store/storetest"
)

// onDisk opens a store on a disk in memory.
func onDisk(t testing.TB, d *storetest.Disk, opt raw.Options) *bench {
	t.Helper()
	b, err := store.Open(t.Context(), "file:///raw", store.Options{FS: d})
	if err != nil {
		t.Fatal(err)
	}
	opt.Bucket, opt.FS = b, d
	return openStore(t, opt)
}

// once is a fault that befalls the first operation of that name on a segment.
func once(name string, err error) func(storetest.Op) error {
	done := false
	return func(op storetest.Op) error {
		if done || op.Name != name || !strings.Contains(op.Path, "orders") {
			return nil
		}
		done = true
		return err
	}
}

func TestLocalFaults(t *testing.T) {
	f := func(name string, fault func(storetest.Op) error) {
		t.Run(name, func(t *testing.T) {
			d := storetest.NewDisk(1)
			s := onDisk(t, d, raw.Options{})
			s.begin(0)
			s.put(0, 10)
			d.Fault(fault)
			if st, err := s.Append(t.Context(), orders, batches(orders, 10, 20)); err == nil {
				t.Fatalf("the fault did not show: %+v", st)
			}
			s.holds(0, 10)
			s.put(10, 25) // the retry is longer
			s.put(25, 30)
			s.holds(0, 30)
			d.Fault(nil)
			d.PowerLoss()
			s = onDisk(t, d, raw.Options{})
			s.begin(30)
			s.holds(0, 30)
			s.put(30, 31)
			d.Kill()
			s = onDisk(t, d, raw.Options{})
			s.begin(31)
			s.holds(0, 31)
		})
	}
	f("D35 no room in the middle of a block", once("write", storetest.Partial{N: 50, Err: syscall.ENOSPC}))
	f("D11 no room at all", once("write", syscall.ENOSPC))
	f("D35 an fsync that fails once", once("sync", syscall.EIO))
	failed := false
	f("a file that cannot be cut", func(op storetest.Op) error {
		switch {
		case op.Name == "write" && strings.Contains(op.Path, "orders") && !failed:
			failed = true
			return storetest.Partial{N: 120, Err: syscall.ENOSPC}
		case op.Name == "truncate":
			return syscall.EIO
		}
		return nil
	})
}

func TestCaseD11FullForAWhile(t *testing.T) {
	d := storetest.NewDisk(3)
	s := onDisk(t, d, raw.Options{})
	s.begin(0)
	full := func(op storetest.Op) error {
		if op.Name == "write" || op.Name == "create" {
			return syscall.ENOSPC
		}
		return nil
	}
	// The first block of all, and one behind others.
	for _, at := range []int64{0, 10} {
		d.Fault(full)
		for range 30 {
			if _, err := s.Append(t.Context(), orders, batches(orders, at, at+10)); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			if head, _ := s.Head(t.Context(), orders); head.Next != at {
				t.Fatal("the head moved", head)
			}
		}
		d.Fault(nil)
		s.put(at, at+10)
		s.holds(0, at+10)
	}
	d.PowerLoss()
	s = onDisk(t, d, raw.Options{})
	s.begin(20)
	s.holds(0, 20)
}

func TestTheFirstBlockFails(t *testing.T) {
	for _, name := range []string{"write", "sync", "syncdir", "link"} {
		d := storetest.NewDisk(4)
		s := onDisk(t, d, raw.Options{})
		s.begin(0)
		for n := range 3 { // the name of the next file stays the same all the while
			skip := n // once it is the header that fails, then the block
			d.Fault(func(op storetest.Op) error {
				if op.Name != name || !strings.Contains(op.Path, "orders") {
					return nil
				}
				if skip--; skip < 0 {
					return syscall.EIO
				}
				return nil
			})
			if _, err := s.Append(t.Context(), orders, batches(orders, 0, 10)); err == nil {
				if name == "write" || name == "sync" {
					t.Errorf("%s %d: no error", name, n)
				}
				break
			}
		}
		d.Fault(nil)
		if head, _ := s.Head(t.Context(), orders); head.Next == 0 {
			s.put(0, 10)
		}
		s.put(10, 20)
		s.holds(0, 20)
		d.Kill()
		s = onDisk(t, d, raw.Options{})
		s.begin(20)
		s.holds(0, 20)
	}
}

// TestLocalSurvivesAnything runs a writer through faults, kills and power losses at random. What was acknowledged is read back each
// time; what was not may be there or not.
func TestLocalSurvivesAnything(t *testing.T) {
	for seed := range uint64(200 / min(stride, 2)) {
		d := storetest.NewDisk(seed)
		rng := newRand(seed)
		acked, tried := int64(0), int64(0) // tried: the end of the longest attempt since acked
		for life := range 6 {
			d.Fault(nil)
			s := onDisk(t, d, raw.Options{Roll: int64(1000 + rng.IntN(4000)), Codec: avrofile.Codecs[rng.IntN(4)]})
			head, err := s.Begin(t.Context(), orders, from(0))
			if err != nil || head.Next < acked || head.Next > max(acked, tried) {
				t.Fatalf("seed %d, life %d: head %+v, %v; acknowledged %d, tried %d", seed, life, head, err, acked, tried)
			}
			acked = head.Next
			s.holds(0, acked)
			if rng.IntN(2) == 0 {
				d.Fault(func(op storetest.Op) error {
					switch {
					case !strings.Contains(op.Path, "orders") || rng.IntN(6) > 0:
						return nil
					case op.Name == "write":
						return storetest.Partial{N: rng.IntN(op.Size + 1), Err: syscall.ENOSPC}
					case op.Name == "sync", op.Name == "truncate", op.Name == "syncdir", op.Name == "link":
						return syscall.EIO
					}
					return nil
				})
			}
			for range rng.IntN(12) {
				next := acked + 1 + int64(rng.IntN(40))
				st, err := s.Append(t.Context(), orders, batches(orders, acked, next))
				if err == nil {
					acked, tried = st.Next, st.Next
				} else {
					tried = max(tried, next)
				}
				if rng.IntN(8) == 0 {
					break
				}
			}
			switch rng.IntN(3) {
			case 0:
				d.PowerLoss()
			case 1:
				d.Kill()
			default:
				d.Fault(nil)
				s.Close()
			}
		}
	}
}

// local is a chain in one file of a temporary directory.
func local(t *testing.T, codec string, blocks int64) (url, file string) {
	url = "file://" + t.TempDir()
	s := openStore(t, raw.Options{Bucket: openBucket(t, url), Codec: codec})
	s.begin(0)
	for o := range blocks {
		s.put(o*3, o*3+3)
	}
	s.Close()
	files := localFiles(t, url, ".avro")
	if len(files) != 1 {
		t.Fatal(files)
	}
	return url, files[0]
}

func localFiles(t testing.TB, url, suffix string) []string {
	files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(url, "file://"), "s", orders.Path(), "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// blocks are where the blocks of a file begin, and its end.
func blocks(t testing.TB, file string) (h avrofile.Header, at []int64) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = avrofile.ParseHeader(b); err != nil {
		t.Fatal(err)
	}
	end, err := h.Walk(bytes.NewReader(b), h.Size, int64(len(b)), func(f avrofile.Frame) { at = append(at, f.Offset) })
	if err != nil {
		t.Fatal(err)
	}
	return h, append(at, end)
}

// TestEveryFlipInAFileIsFound flips every bit of a file of four blocks. In the last one the flip may also be what a power loss has
// left of a block that was never acknowledged: then it is said to be doubtful, and its owner keeps it aside.
func TestEveryFlipInAFileIsFound(t *testing.T) {
	for _, codec := range avrofile.Codecs {
		t.Run(codec, func(t *testing.T) {
			url, file := local(t, codec, 4)
			h, at := blocks(t, file)
			last := at[3]
			f, err := os.OpenFile(file, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			content, _ := os.ReadFile(file)
			from := int64(0)
			if codec != "null" { // the headers are alike for all
				from = h.Size
			}
			bucket := openBucket(t, url)
			for bit := from * 8; bit < int64(len(content))*8; bit += stride {
				pos := bit / 8
				f.WriteAt([]byte{content[pos] ^ 1<<(bit%8)}, pos)
				s := openStore(t, raw.Options{Bucket: bucket, ReadOnly: true})
				got, err := s.read(0, 12)
				found := s.findings()
				switch {
				case err == nil && slices.Equal(got, offsets(0, 12)) && len(found) == 0:
					block, _ := slices.BinarySearch(at, pos+1)
					mayBeHarmless(t, codec, int(pos), int(at[block-1]), int(at[block]))
				case pos < last:
					if !errors.Is(err, avrofile.ErrDamaged) || len(found) == 0 || found[0].Kind != raw.Damaged || found[0].Kind.Cuttable() || found[0].Path != file {
						t.Fatalf("bit %d of byte %d: read %v, %v; found %+v", bit%8, pos, got, err, found)
					}
					if block, ok := slices.BinarySearch(at, pos+1); !ok && block > 0 && found[0].Byte != at[block-1] {
						t.Fatalf("byte %d is in the block at %d, and Verify says %+v", pos, at[block-1], found[0])
					}
				case err != nil || !slices.Equal(got, offsets(0, 9)) || len(found) != 1 || found[0].Kind != raw.Doubtful || found[0].Byte != last ||
					found[0].Span != (checkpoint.Span{From: 9, To: raw.OpenEnd}):
					t.Fatalf("bit %d of byte %d in the last block: read %v, %v; found %+v", bit%8, pos, got, err, found)
				}
				f.WriteAt(content[pos:pos+1], pos)
			}
		})
	}
}

// TestDoubtfulEndIsKeptAside flips bits of the last block and opens the chain for writing.
func TestDoubtfulEndIsKeptAside(t *testing.T) {
	url, file := local(t, "snappy", 4)
	_, at := blocks(t, file)
	content, _ := os.ReadFile(file)
	for _, pos := range []int64{at[3], at[3] + 1, at[3] + 10, at[4] - 20, at[4] - 1} {
		t.Run(fmt.Sprint("byte ", pos), func(t *testing.T) {
			hurt := slices.Clone(content)
			hurt[pos] ^= 4
			os.WriteFile(file, hurt, 0o644)
			var said bytes.Buffer
			s := openStore(t, raw.Options{Bucket: openBucket(t, url), Codec: "snappy", Log: slog.New(slog.NewTextHandler(&said, nil))})
			s.begin(9)
			s.holds(0, 9)
			kept := localFiles(t, url, ".torn")
			if len(kept) != 1 {
				t.Fatal(kept)
			}
			if b, _ := os.ReadFile(kept[0]); !bytes.Equal(b, hurt[at[3]:]) {
				t.Error("what was kept aside is not what was cut")
			}
			for _, want := range []string{"level=ERROR", kept[0], fmt.Sprintf("byte=%d bytes=%d offset=9", at[3], at[4]-at[3])} {
				if !strings.Contains(said.String(), want) {
					t.Errorf("the log does not say %q: %s", want, said.String())
				}
			}
			s.put(9, 20)
			s.holds(0, 20)
			if f := s.findings(); len(f) != 1 || f[0].Kind != raw.Stray || f[0].Path != kept[0] {
				t.Error(f)
			}
			s.Close()
			os.Remove(kept[0])
		})
	}
}

// TestTornEndIsCut cuts the last block anywhere, as a killed process does.
func TestTornEndIsCut(t *testing.T) {
	url, file := local(t, "null", 3)
	_, at := blocks(t, file)
	content, _ := os.ReadFile(file)
	for size := at[2]; size < at[3]; size++ {
		os.WriteFile(file, content[:size], 0o644)
		ro := readOnly(t, url)
		if got, err := ro.read(0, 9); err != nil || !slices.Equal(got, offsets(0, 6)) {
			t.Fatal(size, got, err)
		}
		if f := ro.findings(); size == at[2] && len(f) != 0 || size > at[2] && (len(f) != 1 || f[0].Kind != raw.Torn || f[0].Byte != at[2]) {
			t.Fatal(size, f)
		}
		if size%7 > 0 && size > at[2]+3 {
			continue // opening for writing syncs
		}
		s := open(t, url)
		s.begin(6)
		s.holds(0, 6)
		s.Close()
		if info, _ := os.Stat(file); info.Size() != at[2] {
			t.Fatalf("cut at %d: the file has %d bytes, want %d", size, info.Size(), at[2])
		}
	}
	if kept := localFiles(t, url, ".torn"); len(kept) != 0 {
		t.Error(kept)
	}
}

func TestZerosAtTheEndAreDoubtful(t *testing.T) {
	url, file := local(t, "zstd", 2)
	content, _ := os.ReadFile(file)
	os.WriteFile(file, append(content, make([]byte, 5000)...), 0o644)
	s := open(t, url)
	s.begin(6)
	if kept := localFiles(t, url, ".torn"); len(kept) != 1 {
		t.Error("a page of zeros is nothing that a killed process leaves:", kept)
	}
	s.holds(0, 6)
}

// TestDamageIsNeverCut damages more than the last block, in ways that look like a torn end.
func TestDamageIsNeverCut(t *testing.T) {
	for _, codec := range []string{"zstd", "null"} {
		url, file := local(t, codec, 4)
		h, at := blocks(t, file)
		content, _ := os.ReadFile(file)
		f := func(what string, change func(b []byte) []byte) {
			t.Run(codec+" "+what, func(t *testing.T) {
				hurt := change(slices.Clone(content))
				os.WriteFile(file, hurt, 0o644)
				s := open(t, url)
				defer s.Close()
				if _, err := s.Begin(t.Context(), orders, from(0)); !errors.Is(err, avrofile.ErrDamaged) {
					t.Errorf("Begin: %v", err)
				}
				if b, _ := os.ReadFile(file); !bytes.Equal(b, hurt) {
					t.Error("the file was changed")
				}
				if _, err := s.read(0, 12); !errors.Is(err, avrofile.ErrDamaged) {
					t.Errorf("Read: %v", err)
				}
				if f := s.findings(); len(f) == 0 || f[0].Kind != raw.Damaged {
					t.Errorf("Verify: %+v", f)
				}
			})
		}
		both := func(p, q int64) func(b []byte) []byte {
			return func(b []byte) []byte {
				b[p] ^= 0x10
				b[q] ^= 0x10
				return b
			}
		}
		body := func(i int) int64 { return (at[i] + at[i+1]) / 2 }
		f("the header's marker", func(b []byte) []byte { b[h.Size-1] ^= 1; return b })
		f("the last two blocks", both(body(2), body(3)))
		f("the last two blocks and their counts", both(at[2], at[3]))
		f("the last two blocks' sizes", both(at[2]+1, at[3]+1))
		f("the second last one's marker and the last one's body", both(at[3]-1, body(3)))
		f("the last one, torn, behind a bad one", func(b []byte) []byte { b[body(2)] ^= 1; return b[:at[4]-20] })
		f("the last one, torn in its counts, behind a bad one", func(b []byte) []byte { b[body(2)] ^= 1; return b[:at[3]+1] })
		f("the second last one's marker, and a torn last one", func(b []byte) []byte { b[at[3]-3] ^= 1; b[at[2]] ^= 2; return b })
		f("a page of zeros in the middle", func(b []byte) []byte { clear(b[at[1]:at[2]]); return b })
		f("the beginning", func(b []byte) []byte { return b[:100] })
		f("everything", func(b []byte) []byte { return nil })
		f("all blocks", func(b []byte) []byte {
			for i := range 4 {
				b[body(i)] ^= 1
			}
			return b
		})
	}
}

// rolled is a chain of several files.
func rolled(t *testing.T) (url string, files []string) {
	url = "file://" + t.TempDir()
	s := openStore(t, raw.Options{Bucket: openBucket(t, url), Codec: "null", Roll: 2500})
	s.begin(0)
	for o := range int64(40) {
		s.put(o*3, o*3+3)
	}
	s.Close()
	if files = localFiles(t, url, ".avro"); len(files) < 3 {
		t.Fatal(files)
	}
	return url, files
}

func TestDamageBetweenFiles(t *testing.T) {
	f := func(what string, hurt func(t *testing.T, files []string), span func(names []int64) checkpoint.Span) {
		t.Run(what, func(t *testing.T) {
			url, files := rolled(t)
			var names []int64
			for _, f := range files {
				o, _ := record.ParseOffset(strings.TrimSuffix(filepath.Base(f), ".avro"))
				names = append(names, o)
			}
			hurt(t, files)
			s := readOnly(t, url)
			if _, err := s.read(0, 120); !errors.Is(err, avrofile.ErrDamaged) {
				t.Errorf("Read: %v", err)
			}
			found := s.findings()
			if len(found) == 0 || found[0].Kind != raw.Damaged || found[0].Span != span(names) {
				t.Errorf("Verify: %+v, want %v of %v", found, span(names), names)
			}
		})
	}
	cut := func(n int64) func(*testing.T, []string) {
		return func(t *testing.T, files []string) {
			info, _ := os.Stat(files[1])
			if err := os.Truncate(files[1], info.Size()-n); err != nil {
				t.Fatal(err)
			}
		}
	}
	lastOfSecond := func(names []int64) checkpoint.Span { return checkpoint.Span{From: names[2] - 3, To: names[2]} }
	f("a file that is cut short in its last block", cut(20), lastOfSecond)
	f("a file that lacks a marker", cut(16), lastOfSecond)
	f("a file that is missing", func(t *testing.T, files []string) { os.Remove(files[1]) },
		func(names []int64) checkpoint.Span { return checkpoint.Span{From: names[1], To: names[2]} })
	f("the first file is missing", func(t *testing.T, files []string) { os.Remove(files[0]) },
		func(names []int64) checkpoint.Span { return checkpoint.Span{From: 0, To: names[1]} })
	f("a file without blocks", func(t *testing.T, files []string) {
		h, _ := blocks(t, files[1])
		os.Truncate(files[1], h.Size)
	}, func(names []int64) checkpoint.Span { return checkpoint.Span{From: names[1], To: names[2]} })
	f("a header", func(t *testing.T, files []string) {
		b, _ := os.ReadFile(files[1])
		b[200] ^= 1
		os.WriteFile(files[1], b, 0o644)
	}, func(names []int64) checkpoint.Span { return checkpoint.Span{From: names[1], To: names[2]} })
	f("a file under another name", func(t *testing.T, files []string) {
		os.Remove(files[1])
		os.Rename(files[2], files[1])
	}, func(names []int64) checkpoint.Span { return checkpoint.Span{From: names[1], To: names[3]} })
}

func TestVerifyGoesOnBehindDamage(t *testing.T) {
	url, file := local(t, "null", 6)
	_, at := blocks(t, file)
	b, _ := os.ReadFile(file)
	b[at[1]+20] ^= 1 // the body of one
	b[at[4]] ^= 8    // and the count of another
	os.WriteFile(file, b, 0o644)
	found := readOnly(t, url).findings()
	if len(found) != 2 || found[0].Byte != at[1] || found[0].Span != (checkpoint.Span{From: 3, To: 6}) || found[1].Byte != at[4] || found[1].Span != (checkpoint.Span{From: 12, To: 15}) {
		t.Errorf("%+v, want [3, 6) at %d and [12, 15) at %d", found, at[1], at[4])
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	url := "file://" + t.TempDir()
	s := open(t, url)
	_, err := raw.Open(t.Context(), raw.Options{Bucket: openBucket(t, url), Stream: "s", Codec: "zstd"})
	if !errors.Is(err, store.ErrLocked) {
		t.Fatal(err)
	}
	readOnly(t, url)
	s.Close()
	open(t, url)
}

// Whoever comes after a removed lock believes to be alone; so the one before must not write any more.
func TestNothingIsAppendedUnderARemovedLock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir)
	s.Begin(t.Context(), orders, from(0))
	if _, err := s.Append(t.Context(), orders, []*record.Batch{batch(orders, 0, 3)}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "s", "lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), orders, []*record.Batch{batch(orders, 3, 6)}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("the error is %v", err)
	}
	if head, err := s.Head(t.Context(), orders); err != nil || head.Next != 3 {
		t.Errorf("the head is %+v, %v", head, err)
	}
}

func TestReadOnlyChangesNothing(t *testing.T) {
	url, file := local(t, "zstd", 3)
	content, _ := os.ReadFile(file)
	torn := content[:len(content)-5]
	os.WriteFile(file, torn, 0o644)
	s := readOnly(t, url)
	s.read(0, 9)
	s.findings()
	s.Head(t.Context(), orders)
	s.Close()
	if b, _ := os.ReadFile(file); !bytes.Equal(b, torn) {
		t.Error("the file was changed")
	}
	if kept := localFiles(t, url, ".torn"); len(kept) != 0 {
		t.Error(kept)
	}
}

// A file that somebody removes while it is open takes blocks as before: they would be acknowledged and never read.
func TestNothingIsAcknowledgedInARemovedFile(t *testing.T) {
	for name, remove := range map[string]string{"file": "/s/*/*/*.avro", "folder": "/s"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, "file://"+dir)
			s.begin(0)
			s.put(0, 10)
			found, err := filepath.Glob(dir + remove)
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			if err := os.RemoveAll(found[0]); err != nil {
				t.Fatal(err)
			}
			if st, err := s.Append(t.Context(), orders, batches(orders, 10, 20)); err == nil {
				t.Fatalf("acknowledged: %+v", st)
			}
			if name == "file" {
				return
			}
			for range 2 {
				if st, err := s.Append(t.Context(), orders, batches(orders, 10, 20)); err == nil {
					t.Fatalf("acknowledged in a chain without a genesis: %+v", st)
				}
			}
			if left, _ := filepath.Glob(dir + "/s/*/*/*"); len(left) != 0 {
				t.Errorf("made anew: %v", left)
			}
		})
	}
}
