package avrofile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
)

const testSchema = `{"type":"record","name":"T","fields":[{"name":"n","type":"long"},{"name":"s","type":"string"},{"name":"b","type":["null","bytes"]},{"name":"f","type":"boolean"}]}`

var testSync = [16]byte{0xf0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

type entry struct {
	N int64  `avro:"n"`
	S string `avro:"s"`
	B []byte `avro:"b"`
	F bool   `avro:"f"`
}

func (e entry) append(b []byte) []byte {
	b = AppendBytes(AppendLong(b, e.N), e.S)
	return AppendBool(AppendNullable(b, e.B), e.F)
}

func parseEntry(d *Decoder) entry {
	return entry{N: d.Long(), S: string(d.Bytes()), B: d.Nullable(), F: d.Bool()}
}

// entries are of all shapes; block k has k+1 of them.
func entries(block int) (out []entry) {
	rng := rand.New(rand.NewPCG(1, uint64(block)))
	for i := range block + 1 {
		e := entry{N: int64(rng.Uint64()) >> rng.IntN(64), S: strings.Repeat("ä", rng.IntN(50)), F: i%2 == 0}
		switch i % 3 {
		case 1:
			e.B = []byte{}
		case 2:
			e.B = []byte(strings.Repeat("b", rng.IntN(300)))
		}
		out = append(out, e)
	}
	return out
}

func newCodec(t testing.TB, name string) Codec {
	c, err := NewCodec(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// build makes a file of so many blocks and returns where each begins, and the end.
func build(t testing.TB, codec Codec, blocks int) (file []byte, at []int64) {
	file = AppendHeader(nil, testSchema, codec, map[string]string{"zz": "last", "a": ""}, testSync)
	h := Header{Sync: testSync, Codec: codec}
	for k := range blocks {
		var raw []byte
		for _, e := range entries(k) {
			raw = e.append(raw)
		}
		packed, err := codec.Compress(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, int64(len(file)))
		file = h.AppendBlock(file, k+1, packed)
	}
	return file, append(at, int64(len(file)))
}

func readBlock(h *Header, file []byte, f Frame) (out []entry, err error) {
	b, _, err := h.ReadBlock(bytes.NewReader(file), f, nil, nil)
	if err != nil {
		return nil, err
	}
	d := NewDecoder(b)
	for range f.Count {
		out = append(out, parseEntry(d))
	}
	if d.Err() == nil && d.More() {
		return nil, errors.New("bytes are left")
	}
	return out, d.Err()
}

func TestWrittenHereReadByAnother(t *testing.T) {
	for _, name := range Codecs {
		t.Run(name, func(t *testing.T) {
			file, _ := build(t, newCodec(t, name), 20)
			r, err := ocf.NewReader(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			if m := r.Metadata(); string(m["zz"]) != "last" || m["a"] == nil || string(m["avro.codec"]) != name {
				t.Errorf("metadata %q", m)
			}
			for k := range 20 {
				for _, want := range entries(k) {
					var got entry
					if err := r.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
						t.Fatalf("block %d: %+v, %v, want %+v", k, got, err, want)
					}
				}
			}
			if err := r.Decode(new(entry)); err != io.EOF {
				t.Error(err)
			}
		})
	}
}

func TestWrittenByAnotherReadHere(t *testing.T) {
	for name, codec := range map[string]ocf.Codec{"null": nil, "snappy": ocf.SnappyCodec(), "deflate": ocf.DeflateCodec(6), "zstandard": ocf.MustZstdCodec(nil, nil)} {
		t.Run(name, func(t *testing.T) {
			opts := []ocf.WriterOpt{ocf.WithMetadata(map[string][]byte{"zz": []byte("last")}), ocf.WithSyncMarker(testSync)}
			if codec != nil {
				opts = append(opts, ocf.WithCodec(codec))
			}
			var file bytes.Buffer
			w, err := ocf.NewWriter(&file, avro.MustParse(testSchema), opts...)
			if err != nil {
				t.Fatal(err)
			}
			for k := range 20 {
				for _, e := range entries(k) {
					if err := w.Encode(&e); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			h, err := ParseHeader(file.Bytes())
			if err != nil || h.Codec.Name() != name || h.Meta["zz"] != "last" || h.Sync != testSync {
				t.Fatal(h, err)
			}
			k := 0
			end, err := h.Walk(bytes.NewReader(file.Bytes()), h.Size, int64(file.Len()), func(f Frame) {
				if got, err := readBlock(&h, file.Bytes(), f); err != nil || !reflect.DeepEqual(got, entries(k)) {
					t.Fatalf("block %d: %v", k, err)
				}
				k++
			})
			if err != nil || end != int64(file.Len()) || k != 20 {
				t.Fatal(end, k, err)
			}
		})
	}
}

func TestHeader(t *testing.T) {
	file, at := build(t, newCodec(t, "null"), 1)
	h, err := ParseHeader(file)
	if err != nil || h.Size != at[0] || h.Sync != testSync || len(h.Meta) != 4 || h.Meta["avro.schema"] != testSchema {
		t.Fatal(h, err)
	}
	for n := range at[0] {
		if _, err := ParseHeader(file[:n]); !errors.Is(err, ErrTorn) {
			t.Fatalf("a header of %d bytes out of %d: %v", n, at[0], err)
		}
	}
	f := func(what string, b []byte, want error) {
		t.Helper()
		if _, err := ParseHeader(b); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	f("another magic", append([]byte("Obj\x02"), file[4:]...), ErrDamaged)
	f("a map that lies about its length", binary.AppendVarint([]byte(magic), 1<<50), ErrTorn)
	f("an unknown codec", AppendHeader(nil, "", other{}, nil, testSync), ErrDamaged)
	// A map may come in several runs, with their sizes in front.
	runs := []byte(magic)
	for k, v := range map[string]string{"avro.codec": "null", "x": "y"} {
		run := AppendBytes(AppendBytes(nil, k), v)
		runs = append(AppendLong(AppendLong(runs, -1), int64(len(run))), run...)
	}
	runs = append(AppendLong(runs, 0), testSync[:]...)
	if h, err := ParseHeader(runs); err != nil || !maps.Equal(h.Meta, map[string]string{"avro.codec": "null", "x": "y"}) {
		t.Error(h, err)
	}
}

type other struct{ nullCodec }

func (other) Name() string { return "bzip2" }

func TestFrames(t *testing.T) {
	file, at := build(t, newCodec(t, "snappy"), 5)
	h, _ := ParseHeader(file)
	r := bytes.NewReader(file)
	var frames []Frame
	if end, err := h.Walk(r, h.Size, int64(len(file)), func(f Frame) { frames = append(frames, f) }); err != nil || end != int64(len(file)) {
		t.Fatal(end, err)
	}
	for k, f := range frames {
		if f.Offset != at[k] || f.End() != at[k+1] || f.Count != int64(k+1) {
			t.Errorf("frame %d: %+v", k, f)
		}
		if g, err := h.NextFrame(r, at[k], int64(len(file))); err != nil || g != f {
			t.Errorf("frame %d: %+v, %v, want %+v", k, g, err, f)
		}
	}
	if _, err := h.NextFrame(r, at[5], int64(len(file))); err != io.EOF {
		t.Error(err)
	}
	// A file that ends anywhere inside the last block is torn there.
	for size := at[4] + 1; size < at[5]; size++ {
		n := 0
		end, err := h.Walk(r, h.Size, size, func(Frame) { n++ })
		if end != at[4] || n != 4 || !errors.Is(err, ErrTorn) {
			t.Fatalf("cut at %d: walked to %d, %d blocks, %v", size, end, n, err)
		}
		if _, found, err := h.FindFrame(r, at[4], size, func(Frame) bool { return true }); found || err != nil {
			t.Fatalf("cut at %d: found a block behind it: %v", size, err)
		}
	}
	if _, err := h.Walk(failing{}, h.Size, int64(len(file)), nil); !errors.Is(err, errFailing) {
		t.Error("an error of reading must stay one:", err)
	}
}

var errFailing = errors.New("the disk is gone")

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errFailing }

// TestFindFrame flips every bit of one block of three and of its marker, and looks for the next valid block from where the walk
// stops.
func TestFindFrame(t *testing.T) {
	for _, name := range Codecs {
		codec := newCodec(t, name)
		file, at := build(t, codec, 3)
		h, _ := ParseHeader(file)
		valid := func(b []byte) func(Frame) bool {
			return func(f Frame) bool { _, err := readBlock(&h, b, f); return err == nil }
		}
		for bit := at[1] * 8; bit < at[2]*8; bit++ { // of the second last block
			b := slices.Clone(file)
			b[bit/8] ^= 1 << (bit % 8)
			var blocks []Frame
			stop, err := h.Walk(bytes.NewReader(b), h.Size, int64(len(b)), func(f Frame) { blocks = append(blocks, f) })
			if err == nil { // the frames are whole: the content's checksum has to tell, above this package
				if len(blocks) != 3 {
					t.Fatalf("%s, bit %d: %d blocks without an error", name, bit, len(blocks))
				}
				continue
			}
			if stop != at[1] {
				t.Fatalf("%s, bit %d: stopped at %d, want %d", name, bit, stop, at[1])
			}
			f, found, err := h.FindFrame(bytes.NewReader(b), stop, int64(len(b)), valid(b))
			if err != nil || !found || f.Offset != at[2] {
				t.Fatalf("%s, bit %d: found %v %v, %v, want the block at %d", name, bit, f, found, err, at[2])
			}
		}
		for bit := at[2] * 8; bit < at[3]*8; bit++ { // of the last one: nothing follows
			b := slices.Clone(file)
			b[bit/8] ^= 1 << (bit % 8)
			if f, found, err := h.FindFrame(bytes.NewReader(b), at[2], int64(len(b)), valid(b)); err != nil || found {
				t.Fatalf("%s, last block, bit %d: found %v, %v", name, bit, f, err)
			}
		}
	}
}

func TestFindMarkerAcrossWindows(t *testing.T) {
	h := Header{Sync: testSync}
	for _, at := range []int{0, 1, 64<<10 - 17, 64<<10 - 16, 64<<10 - 15, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000} {
		b := append(append(make([]byte, at), testSync[:]...), 1, 2, 3)
		if end, found, err := h.FindMarker(bytes.NewReader(b), 0, int64(len(b))); !found || err != nil || end != int64(at)+16 {
			t.Errorf("a marker at %d: %d, %v, %v", at, end, found, err)
		}
		if _, found, _ := h.FindMarker(bytes.NewReader(b), int64(at)+1, int64(len(b))); found {
			t.Errorf("a marker at %d was found behind it", at)
		}
	}
}

func TestCodecs(t *testing.T) {
	for _, name := range append(Codecs, "zstd", "") {
		c := newCodec(t, name)
		for _, n := range []int{0, 1, 100, 300_000} {
			src := bytes.Repeat([]byte("abc"), n)
			packed, err := c.Compress([]byte("head"), src)
			if err != nil || !bytes.HasPrefix(packed, []byte("head")) {
				t.Fatal(name, n, err)
			}
			out, err := c.Decompress([]byte("front"), packed[4:], int64(len(src)))
			if err != nil || string(out) != "front"+string(src) {
				t.Fatalf("%s of %d bytes: %d bytes, %v", name, len(src), len(out), err)
			}
			if len(src) > 0 {
				if _, err := c.Decompress(nil, packed[4:], int64(len(src)-1)); err == nil {
					t.Errorf("%s gave more than its limit", name)
				}
			}
		}
	}
	if _, err := NewCodec("lz4"); err == nil || !strings.Contains(err.Error(), "zstandard") {
		t.Error("an unknown codec should name the known ones:", err)
	}
}

// TestSizesThatLie gives the decoders small inputs which claim to become large.
func TestSizesThatLie(t *testing.T) {
	f := func(what, codec string, src []byte) {
		t.Helper()
		c := newCodec(t, codec)
		c.Decompress(nil, nil, 1) // makes the decoders
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, err := c.Decompress(nil, src, MaxBlock)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s became %d bytes", what, len(out))
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("%s took %d bytes of memory", what, used)
		}
	}
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	claim := func(size uint64, blocks ...byte) []byte { // single segment, eight bytes of size, no checksum
		return append(binary.LittleEndian.AppendUint64(append(slices.Clone(magic), 0xe0), size), blocks...)
	}
	f("an empty frame that claims 1 GiB", "zstd", claim(1<<30, 1, 0, 0))
	f("a frame of 1 MiB that claims 2 GiB", "zstd", claim(2<<30, append([]byte{1, 0, 0x80}, make([]byte, 1<<20)...)...))
	f("a frame beyond the limit", "zstd", claim(1<<40, 1, 0, 0))
	f("a frame without blocks", "zstd", claim(10))
	f("a block that is cut off", "zstd", claim(10, 0x51, 0, 0, 1))
	f("a reserved block", "zstd", claim(0, 7, 0, 0))
	f("bytes behind the frame", "zstd", claim(0, 1, 0, 0, 9))
	f("a skippable frame", "zstd", []byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0})
	f("a snappy block that claims 1 GiB", "snappy", append(binary.AppendUvarint(nil, 1<<30), 0, 0, 0, 0, 0, 0))
	f("a snappy block beyond the limit", "snappy", append(binary.AppendUvarint(nil, 3<<30), 0, 0, 0, 0, 0, 0))
	f("a snappy block without a checksum", "snappy", []byte{1, 2, 3})
	wrong := append(snappy.Encode(nil, []byte("abc")), 1, 2, 3, 4)
	f("a snappy block with another checksum", "snappy", wrong)
}

// TestRatios: what shrinks as much as it can is not taken for a lie.
func TestRatios(t *testing.T) {
	src := make([]byte, 50<<20)
	for _, name := range []string{"zstd", "snappy", "deflate"} {
		c := newCodec(t, name)
		packed, err := c.Compress(nil, src)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Decompress(nil, packed, MaxBlock)
		if err != nil || !bytes.Equal(out, src) {
			t.Errorf("%s: %d bytes to %d: %v", name, len(src), len(packed), err)
		}
	}
	// Frames without a size in front, as streaming encoders write them.
	var streamed bytes.Buffer
	w, _ := zstd.NewWriter(&streamed)
	w.Write(src)
	w.Close()
	if out, err := newCodec(t, "zstd").Decompress(nil, streamed.Bytes(), MaxBlock); err != nil || len(out) != len(src) {
		t.Error(err)
	}
}

func TestCompressAllocatesNothing(t *testing.T) {
	src := bytes.Repeat([]byte("some bytes that repeat and then some. "), 3000)
	for _, name := range []string{"zstd", "snappy", "null"} {
		c := newCodec(t, name)
		dst, _ := c.Compress(nil, src)
		dst = slices.Grow(dst[:0], len(src)*2)
		if n := testing.AllocsPerRun(20, func() { dst, _ = c.Compress(dst[:0], src) }); n > 2 {
			t.Errorf("%s: %v allocations a block", name, n)
		}
	}
}

func TestDecoder(t *testing.T) {
	f := func(b []byte, read func(*Decoder) any, want any) {
		t.Helper()
		d := NewDecoder(b)
		got := read(d)
		if s, ok := want.(string); ok && s == "error" {
			if d.Err() == nil {
				t.Errorf("% x gave %v", b, got)
			}
			if d.More() || d.Long() != 0 || d.Bytes() != nil || d.Bool() {
				t.Errorf("% x: something came behind an error", b)
			}
			return
		}
		if d.Err() != nil || !reflect.DeepEqual(got, want) || d.More() {
			t.Errorf("% x gave %#v, %v, want %#v", b, got, d.Err(), want)
		}
	}
	long := func(d *Decoder) any { return d.Long() }
	bytes := func(d *Decoder) any { return d.Bytes() }
	nullable := func(d *Decoder) any { return d.Nullable() }
	boolean := func(d *Decoder) any { return d.Bool() }
	array := func(d *Decoder) any {
		var out []int64
		d.Array(func() { out = append(out, d.Long()) })
		return out
	}
	f([]byte{0}, long, int64(0))
	f([]byte{1}, long, int64(-1))
	f([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, long, int64(-1<<63))
	f([]byte{0x80}, long, "error")
	f([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2}, long, "error")
	f(nil, long, "error")
	f([]byte{0}, bytes, []byte{})
	f([]byte{4, 'a', 'b'}, bytes, []byte("ab"))
	f([]byte{6, 'a', 'b'}, bytes, "error")
	f([]byte{1}, bytes, "error")
	f([]byte{0}, nullable, []byte(nil))
	f([]byte{2, 0}, nullable, []byte{})
	f([]byte{4, 0}, nullable, "error")
	f([]byte{1}, boolean, true)
	f(nil, boolean, "error")
	fixed := func(d *Decoder) any { return d.Fixed(2) }
	f([]byte{1, 2}, fixed, []byte{1, 2})
	f([]byte{1}, fixed, "error")
	f([]byte{0}, array, []int64(nil))
	f([]byte{4, 2, 4, 0}, array, []int64{1, 2})
	f([]byte{3, 4, 2, 4, 0}, array, []int64{1, 2}) // the count negative, a size behind it
	f([]byte{200, 1, 0}, array, "error")
	f([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0}, array, "error") // -2^63 has no opposite
	f([]byte{2, 2}, array, "error")
}

func FuzzHeader(f *testing.F) {
	for _, name := range Codecs {
		file, at := build(f, newCodec(f, name), 1)
		f.Add(file[:at[0]])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if h.Size > int64(len(b)) || h.Codec == nil {
			t.Fatalf("a header of %d bytes in %d", h.Size, len(b))
		}
		total := 0
		for k, v := range h.Meta {
			total += len(k) + len(v)
		}
		if total > len(b) {
			t.Fatalf("%d bytes of metadata out of %d", total, len(b))
		}
	})
}

func FuzzFrame(f *testing.F) {
	for _, name := range Codecs {
		file, at := build(f, newCodec(f, name), 3)
		f.Add(file[at[0]:], name)
	}
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		codec, err := NewCodec(name)
		if err != nil {
			return
		}
		h, r, size := Header{Sync: testSync, Codec: codec}, bytes.NewReader(b), int64(len(b))
		var frames []Frame
		end, _ := h.Walk(r, 0, size, func(f Frame) { frames = append(frames, f) })
		at := int64(0)
		for _, f := range frames {
			if f.Offset != at || f.Count < 0 || f.Size < 18 {
				t.Fatalf("%+v at %d", f, at)
			}
			if g, err := h.NextFrame(r, at, size); err != nil || f != g {
				t.Fatalf("%+v, alone %+v, %v", f, g, err)
			}
			if out, _, err := h.ReadBlock(r, f, nil, nil); err == nil && int64(len(out)) > f.Size*(1<<16) {
				t.Fatalf("a block of %d bytes became %d", f.Size, len(out))
			}
			at = f.End()
		}
		if at != end {
			t.Fatalf("walked to %d, the last block ends at %d", end, at)
		}
		if g, found, err := h.FindFrame(r, end, size, func(Frame) bool { return true }); err != nil || found && (g.Offset <= end || g.End() > size) {
			t.Fatalf("%+v behind %d, %v", g, end, err)
		}
	})
}

func FuzzDecoder(f *testing.F) {
	for k := range 5 {
		var b []byte
		for _, e := range entries(k) {
			b = e.append(b)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDecoder(b)
		for d.More() {
			e := parseEntry(d)
			if len(e.S)+len(e.B) > len(b) {
				t.Fatal("more bytes than there are")
			}
		}
		n := 0
		a := NewDecoder(b)
		a.Array(func() { n++; a.Nullable() })
		if n > len(b) || a.Offset() > len(b) {
			t.Fatalf("%d items of %d bytes", n, len(b))
		}
	})
}

func ExampleAppendHeader() {
	codec, _ := NewCodec("null")
	b := AppendHeader(nil, `"long"`, codec, nil, [16]byte{})
	h := Header{}
	b = h.AppendBlock(b, 2, AppendLong(AppendLong(nil, 1), 2))
	fmt.Printf("%q\n", b)
	// Output: "Obj\x01\x04\x16avro.schema\f\"long\"\x14avro.codec\bnull\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x04\x02\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
}
