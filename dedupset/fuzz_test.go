package dedupset

import (
	"bytes"
	"testing"
	"time"
)

// lived is a table with two sets, one of which has claims of two times.
func lived(t testing.TB) *Table {
	var table Table
	table.Apply(0, Declare("a", [8]byte{1}, time.Minute, 1000))
	table.Apply(0, Declare("b", [8]byte{1}, time.Second, 2000))
	for i := range byte(3) {
		cmd, err := Claim("a", [8]byte{1}, [][rowSize]byte{{i}, {9, 23: i}, {8, i}})
		if err != nil {
			t.Fatal(err)
		}
		table.Apply(time.Duration(i)*time.Second, cmd)
	}
	return &table
}

// FuzzTable: any command gets a reply, and what the table is afterwards can be written and read.
func FuzzTable(f *testing.F) {
	one, _ := Claim("a", [8]byte{1}, [][rowSize]byte{{1}, {1, 23: 1}})
	other, _ := Claim("c", [8]byte{1}, nil)
	f.Add(one, int64(time.Second), Declare("a", [8]byte{1}, time.Hour, 5000))
	f.Add(other, int64(time.Hour), Declare("c", [8]byte{2}, -1, -1))
	f.Add([]byte{format, opClaim, 0xff, 0xff}, int64(0), Declare("", [8]byte{}, 0, 1<<62))
	f.Fuzz(func(t *testing.T, one []byte, at int64, two []byte) {
		table, other := lived(t), lived(t)
		now := 2*time.Second + time.Duration(at)&(1<<61-1) // the time never goes back
		for i, cmd := range [][]byte{one, two, one} {
			reply := table.Apply(now+time.Duration(i), cmd)
			if len(reply) == 0 || !bytes.Equal(reply, other.Apply(now+time.Duration(i), cmd)) {
				t.Errorf("%x: reply %x", cmd, reply)
			}
			_, _, _ = ParseReply(reply, len(cmd)/rowSize)
			_, _, _, _ = ParseDeclared(reply)
			if got, err := ParseStats(table.Query(cmd)); err != nil || len(got) != len(table.sets) {
				t.Errorf("stats %v: %v", got, err)
			}
			data := section(t, other)
			other = &Table{}
			if err := other.Restore(version, bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(data, section(t, table)) {
				t.Error("what was restored writes another section")
			}
		}
	})
}

// FuzzSectionOfClaims: a section is refused, or is what the table writes again; and a table of it works.
func FuzzSectionOfClaims(f *testing.F) {
	f.Add(section(f, &Table{}))
	f.Add(section(f, lived(f)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var table Table
		if err := table.Restore(version, bytes.NewReader(data)); err != nil {
			return
		}
		if again := section(t, &table); !bytes.Equal(data, again) {
			t.Errorf("%x became %x", data, again)
		}
		for _, s := range table.sets {
			cmd, _ := Claim(s.stream, s.check, [][rowSize]byte{{1}, {2, 23: 1}})
			table.Apply(1, cmd)
		}
		table.Expire(1<<63 - 1)
		if len(table.sets) != 0 {
			t.Errorf("%d sets outlive all time", len(table.sets))
		}
	})
}
