package roster

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// bytesOf is the section of a table with these rows.
func bytesOf(r Rows) io.Reader {
	t := Table{facts: r.Facts, members: r.Members, marks: r.Marks, grants: r.Grants, refused: r.Refused}
	for _, m := range r.Members {
		t.joined = max(t.joined, m.Joined)
	}
	for id := range r.Tombs {
		t.tombs = append(t.tombs, id)
	}
	return bytes.NewReader(t.encode())
}

var (
	going3   = Mark{Terminating, 3}
	leaving3 = Mark{Leaving, 3}
	facts    = Facts{Cluster: "prod", Founding: [16]byte{1, 2}, Incarnation: 1, DedupKey: [32]byte{9}}
)

func TestTableCommands(t *testing.T) {
	var tab Table
	f := func(c Command, want string) {
		t.Helper()
		got := ""
		before := tab.encode()
		if err := ParseReply(tab.Apply(0, c.Encode())); err != nil {
			got = err.Error()
			if !bytes.Equal(before, tab.encode()) {
				t.Errorf("%+v was refused and changed something", c)
			}
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
		if err := tab.check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	f(Command{Op: OpConfirm}, "not founded")
	f(Command{Op: OpIncarnation, Facts: Facts{Incarnation: 2}}, "not founded")
	f(Command{Op: OpFound, Facts: Facts{Founding: [16]byte{1}}}, "needs an id and an incarnation")
	f(Command{Op: OpFound, Facts: facts}, "")
	f(Command{Op: OpFound, Facts: facts}, "")
	f(Command{Op: OpFound, Facts: Facts{Founding: [16]byte{7}, Incarnation: 1}}, "founded already as 0102")
	f(Command{Op: OpConfirm}, "")
	f(Command{Op: OpIncarnation, Facts: Facts{Incarnation: 3}}, "")
	f(Command{Op: OpIncarnation, Facts: Facts{Incarnation: 2}}, "") // never back
	if got := tab.Facts(); got.Incarnation != 3 || !got.Confirmed || got.DedupKey != facts.DedupKey {
		t.Errorf("facts: %+v", got)
	}

	seen := Command{Op: OpSeen, ID: "n3~x", Member: Member{Ordinal: 2, Addr: "n3:1"}}
	f(Command{Op: OpMark, ID: "n3~x", Mark: going3}, "is no member")
	f(Command{Op: OpSeen, ID: "n1~x", Member: Member{Ordinal: -1}}, "")
	f(seen, "")
	seen.Member.Addr = "n3:2"
	f(seen, "")
	if got, want := tab.Rows().Members["n3~x"], (Member{"n3~x", "n3", "x", 2, 2, "n3:2"}); got != want {
		t.Errorf("member %+v, want %+v", got, want)
	}

	f(Command{Op: OpGrant, ID: "n3~x", Mark: going3}, "no such mark")
	f(Command{Op: OpMark, ID: "n3~x", Mark: going3}, "")
	f(Command{Op: OpGrant, ID: "n3~x", Mark: Mark{Terminating, 4}}, "no such mark") // of another process
	f(Command{Op: OpGrant, ID: "n3~x", Mark: going3}, "")
	f(Command{Op: OpMark, ID: "n3~x", Mark: going3}, "") // said again: the grant stands
	if tab.Rows().Grants["n3~x"] != going3 {
		t.Error("the same mark again has dropped its grant")
	}
	f(Command{Op: OpMark, ID: "n3~x", Mark: leaving3}, "") // a new intent: it does not
	if len(tab.Rows().Grants) != 0 {
		t.Error("a new mark has kept the old grant")
	}
	f(Command{Op: OpRefuse, ID: "n3~x", Mark: going3}, "no such mark")
	f(Command{Op: OpRefuse, ID: "n3~x", Mark: leaving3}, "")
	f(Command{Op: OpRefuse, ID: "n3~x", Mark: leaving3}, "")
	if r := tab.Rows(); r.Refused["n3~x"] != leaving3 || len(r.Marks) != 0 {
		t.Errorf("refused: %+v", r)
	}
	f(Command{Op: OpClear, ID: "n3~x"}, "")
	f(Command{Op: OpForget, ID: "n1~x"}, "")
	f(Command{Op: OpBury, ID: "n3~x"}, "")
	f(Command{Op: OpBury, ID: "n3~x"}, "")
	f(seen, "removed for good")
	if r := tab.Rows(); len(r.Members) != 0 || !r.Tombs["n3~x"] {
		t.Errorf("buried: %+v", r)
	}
	f(Command{Op: OpSeen, ID: ""}, "no server id")
	f(Command{Op: 99, ID: "x"}, "unknown")
	f(Command{Op: OpSeen, ID: strings.Repeat("x", maxText+1)}, "at most 1024")
	f(Command{Op: OpMark, ID: "n1~x", Mark: Mark{Stays, 1}}, "intent 0")
}

func TestTableIsBounded(t *testing.T) {
	var tab Table
	for i := range maxMembers {
		if err := ParseReply(tab.Apply(0, Command{Op: OpSeen, ID: fmt.Sprintf("n%d~a", i)}.Encode())); err != nil {
			t.Fatal(err)
		}
	}
	err := ParseReply(tab.Apply(0, Command{Op: OpSeen, ID: "more~a"}.Encode()))
	if err == nil || !strings.Contains(err.Error(), "no room for more~a") {
		t.Errorf("one more: %v", err)
	}
	for i := range maxTombs + 10 {
		tab.Apply(0, Command{Op: OpBury, ID: fmt.Sprintf("n%d~a", i)}.Encode())
	}
	if len(tab.tombs) != maxTombs || tab.tombs[0] != "n10~a" {
		t.Errorf("%d tombs, the oldest is %s", len(tab.tombs), tab.tombs[0])
	}
	if err := tab.Restore(version, bytes.NewReader(tab.encode())); err != nil {
		t.Error(err)
	}
}

// someCommand is a random one about few ids, so that commands meet.
func someCommand(rng *rand.Rand) Command {
	c := Command{Op: Op(rng.IntN(10) + 1), ID: []string{"n1~a", "n2~a", "n2~b", "n3~a"}[rng.IntN(4)]}
	c.Mark = Mark{Intent(1 + rng.IntN(2)), uint64(rng.IntN(3))}
	c.Member = Member{Ordinal: rng.IntN(4) - 1, Addr: "a:1"}
	c.Facts = Facts{Cluster: "c", Founding: [16]byte{byte(rng.IntN(2))}, Incarnation: uint64(rng.IntN(3))}
	return c
}

// Two tables that apply the same commands are equal at each, also where one is restored from the other's section on the way; and after
// each the invariants beside the fields hold.
func TestTableIsDeterministic(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(1, seed))
		var a, b Table
		for range 100 {
			c := someCommand(rng).Encode()
			ra, rb := a.Apply(0, c), b.Apply(1, c)
			if !bytes.Equal(ra, rb) || !bytes.Equal(a.encode(), b.encode()) {
				t.Fatalf("seed %d: two tables differ", seed)
			}
			if err := a.check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if rng.IntN(10) == 0 {
				var out bytes.Buffer
				if err := a.Snapshot()(&out); err != nil {
					t.Fatal(err)
				}
				b = Table{}
				if err := b.Restore(b.Version(), &out); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		if r, err := DecodeRows(a.Query(nil)); err != nil || !reflect.DeepEqual(r, a.Rows()) {
			t.Fatalf("seed %d: the answer to a query differs from the rows: %v", seed, err)
		}
	}
}

// A command is idempotent: said twice in a row it changes nothing more.
func TestCommandsMayBeRepeated(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(2, seed))
		var tab Table
		for range 100 {
			c := someCommand(rng)
			tab.Apply(0, c.Encode())
			once := tab.encode()
			if tab.Apply(0, c.Encode()); !bytes.Equal(once, tab.encode()) {
				t.Fatalf("seed %d: %+v said twice changes more", seed, c)
			}
		}
	}
}

// A snapshot holds the table of its moment, whatever is applied before it is written; rows are a copy.
func TestSnapshotAndRowsStandStill(t *testing.T) {
	var tab Table
	tab.Apply(0, Command{Op: OpSeen, ID: "n1~a"}.Encode())
	write, rows, want := tab.Snapshot(), tab.Rows(), tab.encode()
	tab.Apply(0, Command{Op: OpMark, ID: "n1~a", Mark: going3}.Encode())
	var out bytes.Buffer
	if err := write(&out); err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("the snapshot has changed: %v", err)
	}
	if len(rows.Marks) != 0 {
		t.Error("the rows have changed")
	}
}

func TestRestoreRefuses(t *testing.T) {
	tab := Table{facts: facts, joined: 2}
	tab.make()
	tab.members["n1~a"], tab.members["n2~a"] = Member{ID: "n1~a", Joined: 1}, Member{ID: "n2~a", Joined: 2}
	tab.marks["n1~a"] = going3
	whole := tab.encode()
	f := func(v uint16, b []byte, want string) {
		t.Helper()
		before := tab.encode()
		err := tab.Restore(v, bytes.NewReader(b))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if !bytes.Equal(before, tab.encode()) {
			t.Error("a section that was refused has changed the table")
		}
	}
	f(2, whole, "version 2, this is version 1")
	f(1, append(slices.Clone(whole), 0), "1 bytes follow its end")
	for n := range whole {
		f(1, whole[:n], "")
	}
	swap := func(change func(*Table)) []byte {
		var o Table
		if err := o.Restore(1, bytes.NewReader(whole)); err != nil {
			t.Fatal(err)
		}
		change(&o)
		return o.encode()
	}
	f(1, swap(func(o *Table) { o.grants["n1~a"] = leaving3 }), "granted what it did not announce")
	f(1, swap(func(o *Table) { o.refused["n1~a"] = leaving3 }), "refused and marked")
	f(1, swap(func(o *Table) { o.tombs = []string{"n1~a"} }), "may not stand there")
	f(1, swap(func(o *Table) { o.joined = 1 }), "joined as number 2 of 1")
	f(1, make([]byte, maxSection+1), "more than")
}

// Nothing that comes in can make Apply or Restore panic or hold memory that the input does not pay for; and what is taken is written
// again as it was: one table has one encoding.
func FuzzTable(f *testing.F) {
	var tab Table
	rng := rand.New(rand.NewPCG(3, 3))
	for range 50 {
		c := someCommand(rng).Encode()
		f.Add(c, tab.encode())
		tab.Apply(0, c)
	}
	f.Fuzz(func(t *testing.T, cmd, section []byte) {
		var tab Table
		if err := tab.Restore(version, bytes.NewReader(section)); err == nil && !bytes.Equal(tab.encode(), section) {
			t.Errorf("section %x is written again as %x", section, tab.encode())
		}
		before := tab.encode()
		reply := tab.Apply(0, cmd)
		if err := ParseReply(reply); err != nil && !bytes.Equal(before, tab.encode()) {
			t.Errorf("a refused command has changed the table: %v", err)
		}
		if c, err := DecodeCommand(cmd); err == nil && !bytes.Equal(c.Encode(), cmd) {
			t.Errorf("command %x is written again as %x", cmd, c.Encode())
		}
		if err := tab.check(); err != nil {
			t.Error(err)
		}
	})
}
