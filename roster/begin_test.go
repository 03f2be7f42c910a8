package roster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A script of testdata/begin sets up what one node sees, line by line, and says what Begin answers:
//
//	peer n2:7481 empty n2~a ordinal=1      an address of join (with "met": met by gossip only) and what it says
//	leader n1~a role=voter                 a verified leader's answer to the check-in; "leader none" takes it back
//	store latest=1 claimant=n1~a note=n1   the backup store; "store away" cannot be reached
//	-> hold | n3:7481 is silent            the move, and something that its text says
//	-- text                                begins anew
//
// A founding is a letter: f, g, h.
type beginning struct{ v StartView }

// words are the options of a line: "ordinal=1" and "leads".
type words map[string]string

func (w words) num(key string, otherwise int) int {
	if n, err := strconv.Atoi(w[key]); err == nil {
		return n
	}
	return otherwise
}

func (w words) is(key string) bool { _, is := w[key]; return is }

func (w words) facts() (f Facts) {
	copy(f.Founding[:], w["founding"])
	f.Incarnation, f.Confirmed = uint64(w.num("incarnation", one(w.is("founding")))), w.is("confirmed")
	return f
}

func (w words) duration(key string) time.Duration {
	d, _ := time.ParseDuration(w[key])
	return d
}

func (b *beginning) line(fields []string) error {
	w := words{}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		w[k] = v
	}
	arg := func(i int) string {
		if i < len(fields) {
			return fields[i]
		}
		return ""
	}
	v := &b.v
	switch fields[0] {
	case "me":
		v.Me, v.Name, v.Ordinal = arg(1), NameOf(arg(1)), w.num("ordinal", -1)
	case "state":
		v.State, v.Facts, v.Leading, v.Unconfirmed = true, w.facts(), w.is("leads"), w.is("unconfirmed")
	case "seats":
		v.Seats = fields[1:]
	case "asking":
		v.Asking, _ = time.ParseDuration(arg(1))
	case "silence":
		v.NoLeader, _ = time.ParseDuration(arg(1))
	case "joining":
		v.Joining = true
	case "--found":
		v.Found = true
	case "peer":
		b.peer(arg(1), arg(2), arg(3), w)
	case "leader":
		b.leader(arg(1), w)
	case "store":
		v.Store = &StoreView{Reached: !w.is("away"), Latest: uint64(w.num("latest", 0)), Claimant: w["claimant"], Restore: !w.is("never"), Error: "503"}
		if w["note"] != "" {
			v.Store.Note = strings.Split(w["note"], ",")
		}
	case "terminating", "leaving":
		b.depart(fields[0], w)
	default:
		return fmt.Errorf("%q", fields[0])
	}
	return nil
}

func (b *beginning) peer(addr, says, id string, w words) {
	p := Peer{Addr: addr, Listed: !w.is("met"), ID: id, Name: NameOf(id), Ordinal: w.num("ordinal", -1), Facts: w.facts(), HasLeader: w.is("led"), Leads: w.is("leads"), Error: w["error"]}
	p.Says = Says(slices.Index([]string{"silent", "empty", "claiming", "state", "foreign"}, says))
	b.v.Peers = slices.DeleteFunc(b.v.Peers, func(o Peer) bool { return o.Addr == addr })
	b.v.Peers = append(b.v.Peers, p)
}

func (b *beginning) leader(id string, w words) {
	if id == "none" {
		b.v.Leader = nil
		return
	}
	a := &Answer{ID: id, Addr: NameOf(id) + ":7481", Facts: w.facts(), Tombstone: w.is("tomb"), NameAlive: w["alive"], Stuck: w.is("stuck")}
	a.Role = Role(max(slices.Index([]string{"none", "nonvoter", "voter"}, w["role"]), 0))
	if w.is("granted") {
		a.Granted = Mark{Terminating, uint64(w.num("granted", 0))}
	}
	if w.is("refused") {
		a.Refused = Mark{Leaving, uint64(w.num("refused", 0))}
	}
	b.v.Leader = a
}

func (b *beginning) depart(how string, w words) {
	d := Departure{Intent: Terminating, Nonce: uint64(w.num("nonce", 7)), Left: 20 * time.Second, Forced: w.is("again"), Last: w.is("last"), Waited: w.duration("waited")}
	if how == "leaving" {
		d.Intent, d.Left = Leaving, 0
	}
	if w.is("left") {
		d.Left = w.duration("left")
	}
	if w["remaining"] != "" {
		d.Remaining = strings.Split(w["remaining"], ",")
	}
	b.v.Departure = d
}

// wrote is a move as scripts write it.
func wrote(m Move) string {
	out := m.Kind.String()
	if m.Addr != "" {
		out += " " + m.Addr
	}
	if m.Incarnation != 0 {
		out += fmt.Sprintf(" %d", m.Incarnation)
	}
	if m.Presumptive {
		out += " presumptive"
	}
	return out
}

func TestBeginByScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/begin/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts: ", err)
	}
	kinds := map[MoveKind]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var b beginning
		for i, line := range strings.Split(string(text), "\n") {
			where := fmt.Sprintf("%s:%d", filepath.Base(file), i+1)
			line, _, _ = strings.Cut(line, "#")
			switch fields := strings.Fields(line); {
			case len(fields) == 0:
			case fields[0] == "--":
				b = beginning{StartView{FoundAfter: 15 * time.Second}}
			case fields[0] == "->":
				m := Begin(b.v)
				kinds[m.Kind] = true
				expect(t, where, m, strings.TrimSpace(line)[2:])
			default:
				if err := b.line(fields); err != nil {
					t.Fatalf("%s: no such word: %v", where, err)
				}
			}
		}
	}
	for k := range MoveKind(len(moveNames)) {
		if !kinds[k] {
			t.Errorf("no script shows %v", k)
		}
	}
}

func expect(t *testing.T, where string, m Move, line string) {
	t.Helper()
	want, says, ok := strings.Cut(line, "|")
	want, says = strings.TrimSpace(want), strings.TrimSpace(says)
	if wrote(m) != want || !strings.Contains(m.Text, says) {
		t.Errorf("%s: %s | %s\n  want %s | %s", where, wrote(m), m.Text, want, says)
	}
	if !ok || says == "" || m.Text == "" {
		t.Errorf("%s: a move has a text, and a script says something of it", where)
	}
}
