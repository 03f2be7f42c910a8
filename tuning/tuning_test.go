package tuning

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	ok := func(key, value string) {
		t.Helper()
		if err := Check(key, value); err != nil {
			t.Error(err)
		}
	}
	bad := func(key, value, want string) {
		t.Helper()
		if err := Check(key, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s=%s: %v", key, value, err)
		}
	}
	for _, n := range []string{"1", "3", "5", "7"} {
		ok(Size, n)
	}
	bad(Size, "0", "1, 3, 5 and 7")
	bad(Size, "2", "no more losses than 1 does")
	bad(Size, "4", "no more losses than 3 does")
	bad(Size, "9", "1, 3, 5 and 7")
	bad(Size, "03", "1, 3, 5 and 7")
	bad(Size, "three", "1, 3, 5 and 7")
	ok(Settle, "15m")
	ok(Settle, "10s")
	ok(Settle, "24h")
	bad(Settle, "9.9s", "from 10s to 24h")
	bad(Settle, "24h1s", "from 10s to 24h")
	bad(Settle, "15", "such as 15m")
	for _, key := range []string{VoterBudget, Share} {
		ok(key, "1")
		ok(key, "0.25")
		bad(key, "0", "above 0")
		bad(key, "1.01", "at most 1")
		bad(key, "-0.5", "above 0")
		bad(key, "NaN", "above 0")
		bad(key, "half", "such as 0.5")
	}
	bad("cluster.sise", "3", "there is no setting")
	for _, key := range Keys() {
		bad(key, "", key)
	}
}

func all(t *testing.T, table *Table) map[string]string {
	t.Helper()
	out, err := Settings(table.Query(nil))
	if err != nil || !maps.Equal(out, table.All()) {
		t.Fatalf("a question gives %v, %v; the table has %v", out, err, table.All())
	}
	return out
}

func section(t testing.TB, table *Table) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := table.Snapshot()(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTable(t *testing.T) {
	var table Table
	f := func(cmd []byte, ok bool, want map[string]string) {
		t.Helper()
		if err := Answer(table.Apply(0, cmd)); (err == nil) != ok {
			t.Errorf("%x: %v", cmd, err)
		}
		if got := all(t, &table); !maps.Equal(got, want) {
			t.Errorf("%x: %v, want %v", cmd, got, want)
		}
		var other Table
		if err := other.Restore(version, bytes.NewReader(section(t, &table))); err != nil || !maps.Equal(other.All(), want) {
			t.Errorf("%x: restored %v, %v", cmd, other.All(), err)
		}
	}
	f(Unset(Size), true, nil)
	f(Set(Size, "3"), true, map[string]string{Size: "3"})
	f(Set(Size, "3"), true, map[string]string{Size: "3"})
	f(Set("of.a.later.version", "ä"), true, map[string]string{Size: "3", "of.a.later.version": "ä"})
	f(Unset("of.a.later.version"), true, map[string]string{Size: "3"})
	f(Set(Size, ""), true, map[string]string{Size: ""})
	f(Set(Size, "5"), true, map[string]string{Size: "5"})
	was := map[string]string{Size: "5"}
	f(nil, false, was)
	f([]byte{opSet}, false, was)
	f([]byte{9, 1, 'k'}, false, was)
	f(Set("", "x"), false, was)
	f(Set(strings.Repeat("k", MaxKey+1), "x"), false, was)
	f(Set("k", strings.Repeat("v", MaxValue+1)), false, was)
	f(Set("k", "\xff"), false, was)
	f(append(Set("k", "v"), 0), false, was)
	f(append(Unset(Size), 0), false, was)
	if v, ok := table.Get(Size); v != "5" || !ok {
		t.Errorf("%s, %v", v, ok)
	}
}

func TestTableIsBounded(t *testing.T) {
	var table Table
	for i := range MaxKeys {
		if err := Answer(table.Apply(0, Set(fmt.Sprint("k", i), "v"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := Answer(table.Apply(0, Set("one more", "v"))); err == nil || !strings.Contains(err.Error(), "64") {
		t.Error(err)
	}
	if err := Answer(table.Apply(0, Set("k0", "w"))); err != nil {
		t.Error("one that is there already: ", err)
	}
}

func TestSnapshotStays(t *testing.T) {
	var table Table
	table.Apply(0, Set("k", "old"))
	write := table.Snapshot()
	table.Apply(0, Set("k", "new"))
	table.Apply(0, Set("l", "new"))
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	if got, err := Settings(b.Bytes()); err != nil || !maps.Equal(got, map[string]string{"k": "old"}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRestoreRefuses(t *testing.T) {
	var table Table
	table.Apply(0, Set("k", "v"))
	good := section(t, &table)
	f := func(version uint16, data []byte) {
		t.Helper()
		if err := table.Restore(version, bytes.NewReader(data)); err == nil || table.All()["k"] != "v" {
			t.Errorf("%x: %v, %v", data, err, table.All())
		}
	}
	f(version+1, good)
	f(version, append(bytes.Clone(good), 0))
	f(version, []byte{2, 1, 'b', 0, 1, 'a', 0}) // not in order
	f(version, []byte{2, 1, 'a', 0, 1, 'a', 0}) // twice
	for i := range good {
		f(version, good[:i])
	}
}

func FuzzTable(f *testing.F) {
	f.Add(Set("k", "v"))
	f.Add([]byte{1, 1, 'k', 1, 'v'})
	f.Fuzz(func(t *testing.T, data []byte) {
		var table Table
		table.Apply(0, data)
		all(t, &table)
		var other Table
		if err := other.Restore(version, bytes.NewReader(data)); err == nil && !bytes.Equal(section(t, &other), data) {
			// A number may be written longer than it need be; what it says is the same.
			var again Table
			if err := again.Restore(version, bytes.NewReader(section(t, &other))); err != nil || !maps.Equal(again.All(), other.All()) {
				t.Errorf("%v became %v", other.All(), again.All())
			}
		}
	})
}
