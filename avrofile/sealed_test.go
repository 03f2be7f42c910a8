package avrofile

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestSeal(t *testing.T) {
	blocks := []Block{{2, []byte("\x02\x04")}, {1, bytes.Repeat([]byte{6}, 5000)}}
	for _, name := range Codecs {
		codec, err := NewCodec(name)
		if err != nil {
			t.Fatal(err)
		}
		given := map[string]string{"a": "b"}
		body, err := Seal(`"long"`, codec, given, blocks...)
		if err != nil {
			t.Fatal(err)
		}
		meta, got, err := Unseal(body)
		if err != nil || !reflect.DeepEqual(got, blocks) || meta["a"] != "b" || meta["avro.codec"] != name || meta["twgd.count"] != "3" || len(given) != 1 {
			t.Errorf("%s: %v, %v, %v", name, meta, len(got), err)
		}
		for i := range body {
			if _, _, err := Unseal(body[:i]); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s cut at %d: %v", name, i, err)
			}
		}
	}
}

// What is whole as a container but not what was sealed is damage.
func TestUnsealComparesCountAndChecksum(t *testing.T) {
	f := func(what, count, sum string, n int) {
		t.Helper()
		h := Header{Sync: [16]byte{1}}
		body := AppendHeader(nil, `"long"`, nullCodec{}, map[string]string{metaCount: count, metaSum: sum}, h.Sync)
		body = h.AppendBlock(body, n, []byte("123456789"))
		_, _, err := Unseal(body)
		if (err == nil) != (what == "") || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	f("", "9", "e3069283", 9) // the check value of CRC-32C
	f("another checksum", "9", "e3069284", 9)
	f("another count", "8", "e3069283", 9)
	f("a block that counts more", "9", "e3069283", 8)
	f("more entries than bytes", "10", "e3069283", 10)
	f("no checksum", "9", "", 9)
}
