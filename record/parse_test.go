package record

import "testing"

func TestParseID(t *testing.T) {
	f := func(s string, want bool) {
		t.Helper()
		id, err := ParseID(s)
		if (err == nil) != want || want && id.String() != s || !want && id != (ID{}) {
			t.Errorf("ParseID(%q) = %v, %v", s, id, err)
		}
	}
	f("00112233-4455-8677-8899-aabbccddeeff", true)
	f("00000000-0000-0000-0000-000000000000", true)
	f("00112233-4455-8677-8899-AABBCCDDEEFF", false)
	f("00112233-4455-8677-8899-aabbccddeef", false)
	f("00112233-4455-8677-8899-aabbccddeeffa", false)
	f("00112233-4455-8677-8899_aabbccddeeff", false)
	f("0011223g-4455-8677-8899-aabbccddeeff", false)
	f("00112233445586778899aabbccddeeff", false)
	f("", false)
}

func TestParseTopicID(t *testing.T) {
	f := func(s string, want bool) {
		t.Helper()
		id, err := ParseTopicID(s)
		if (err == nil) != want || want && id != [16]byte{0xab, 15: 1} || !want && id != [16]byte{} {
			t.Errorf("ParseTopicID(%q) = %x, %v", s, id, err)
		}
	}
	f("ab000000000000000000000000000001", true)
	f("AB000000000000000000000000000001", false)
	f("ab00000000000000000000000000000", false)
	f("ab0000000000000000000000000000010", false)
	f("ab00000000000000000000000000000g", false)
}
