package record

import (
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"
)

var testTopicID = [16]byte{0xde, 0xad, 0xbe, 0xef, 0x01}

func TestPath(t *testing.T) {
	f := func(topic string, id [16]byte, number, generation int32, want string) {
		t.Helper()
		p := Partition{Cluster: "c", Topic: topic, TopicID: id, Number: number, Generation: generation}
		if got := p.Path(); got != want {
			t.Errorf("Path of %v is %q, want %q", p, got, want)
		}
		gotTopic, short, n, g, err := ParsePath(want)
		if err != nil || gotTopic != topic || short != p.ShortTopicID() || n != number || g != generation {
			t.Errorf("ParsePath(%q) = %q, %q, %d, %d, %v", want, gotTopic, short, n, g, err)
		}
	}
	f("orders", testTopicID, 0, 0, "orders~deadbeef/0")
	f("orders", [16]byte{}, 12, 0, "orders~00000000/12")
	f("orders", testTopicID, 3, 2, "orders~deadbeef/3.2")
	f("or.ders_A-9", testTopicID, math.MaxInt32, math.MaxInt32, "or.ders_A-9~deadbeef/2147483647.2147483647")
	f("_schemas", testTopicID, 0, 0, "%5Fschemas~deadbeef/0")
	f("__consumer_offsets", testTopicID, 0, 0, "%5F_consumer_offsets~deadbeef/0")
	f("a~b", testTopicID, 0, 0, "a%7Eb~deadbeef/0")
	f("a/b", testTopicID, 0, 0, "a%2Fb~deadbeef/0")
	f("a%5Fb", testTopicID, 0, 0, "a%255Fb~deadbeef/0")
	f("..", testTopicID, 0, 0, "..~deadbeef/0")
	f("ä\x00\xff", testTopicID, 0, 0, "%C3%A4%00%FF~deadbeef/0")
	f(strings.Repeat("x", 249), testTopicID, 0, 0, strings.Repeat("x", 249)+"~deadbeef/0")
}

func TestParsePathRefuses(t *testing.T) {
	f := func(path string) {
		t.Helper()
		if topic, short, n, g, err := ParsePath(path); err == nil {
			t.Errorf("ParsePath(%q) = %q, %q, %d, %d, want an error", path, topic, short, n, g)
		}
	}
	f("")
	f("orders~deadbeef")
	f("orders/0")
	f("~deadbeef/0")
	f("orders~DEADBEEF/0")
	f("orders~deadbee/0")
	f("orders~deadbeef/")
	f("orders~deadbeef/00")
	f("orders~deadbeef/-1")
	f("orders~deadbeef/+1")
	f("orders~deadbeef/2147483648")
	f("orders~deadbeef/0.")
	f("orders~deadbeef/0.0")
	f("orders~deadbeef/0.01")
	f("orders~deadbeef/0.1.2")
	f("orders~deadbeef/0/1")
	f("_orders~deadbeef/0")   // a leading _ is escaped
	f("or%64ers~deadbeef/0")  // d needs no escape
	f("or%7eders~deadbeef/0") // hex digits are upper case
	f("orders%~deadbeef/0")
	f("orders%2~deadbeef/0")
	f("orders%ZZ~deadbeef/0")
	f("or ders~deadbeef/0")
	f("a~b~deadbeef/0")
}

func TestOffsetName(t *testing.T) {
	f := func(offset int64, want string) {
		t.Helper()
		if got := OffsetName(offset); got != want {
			t.Errorf("OffsetName(%d) = %q, want %q", offset, got, want)
		}
		if got, err := ParseOffset(want); err != nil || got != offset {
			t.Errorf("ParseOffset(%q) = %d, %v", want, got, err)
		}
	}
	f(0, "00000000000000000000")
	f(7, "00000000000000000007")
	f(1234567890123456789, "01234567890123456789")
	f(math.MaxInt64, "09223372036854775807")
}

func TestOffsetNamesSortAsOffsets(t *testing.T) {
	offsets := []int64{0, 9, 10, 99, 100, 1 << 40, math.MaxInt64}
	var names []string
	for _, o := range offsets {
		names = append(names, OffsetName(o))
	}
	if !slices.IsSorted(names) {
		t.Errorf("names are not in order: %q", names)
	}
}

func TestParseOffsetRefuses(t *testing.T) {
	f := func(name string) {
		t.Helper()
		if got, err := ParseOffset(name); err == nil {
			t.Errorf("ParseOffset(%q) = %d, want an error", name, got)
		}
	}
	f("")
	f("7")
	f("0000000000000000007")   // nineteen
	f("000000000000000000007") // twenty-one
	f("0000000000000000000x")
	f("-0000000000000000007")
	f("+0000000000000000007")
	f("09223372036854775808")
	f("18446744073709551617")
	f("99999999999999999999")
}

func TestOffsetNameOfNegativePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a negative offset got a name")
		}
	}()
	OffsetName(-1)
}

// FuzzParsePath: every path that is accepted is exactly the one that its partition gets.
func FuzzParsePath(f *testing.F) {
	f.Add("orders~deadbeef/0")
	f.Add("%5Forders~00000000/12.3")
	f.Add("a%7Eb~deadbeef/0")
	f.Fuzz(func(t *testing.T, path string) {
		topic, short, number, generation, err := ParsePath(path)
		if err != nil {
			return
		}
		id, err := hex.DecodeString(short)
		if err != nil {
			t.Fatalf("ParsePath(%q) gives the id %q", path, short)
		}
		p := Partition{Topic: topic, Number: number, Generation: generation}
		copy(p.TopicID[:], id)
		if got := p.Path(); got != path {
			t.Errorf("%q was accepted, and its partition has the path %q", path, got)
		}
	})
}
