package roster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// stage is what a script of testdata/decide has set up. A line names a node and all that is not ordinary about it:
//
//	n2 voter going            n2 holds a seat, is in contact, caught up, steady, and terminates
//	-> grant n2 [4a]          what Decide says now
//	-- text                   a remark that begins a new stage
//
// A node's line replaces its former one; its ordinal is the number in its name.
type stage struct{ view View }

func (s *stage) line(text string) error {
	words := strings.Fields(text)
	switch words[0] {
	case "size":
		s.view.Size, _ = strconv.Atoi(words[1])
		return nil
	case "busy", "idle":
		s.view.Busy = words[0] == "busy"
		return nil
	case "gone":
		s.view.Nodes = slices.DeleteFunc(s.view.Nodes, func(n Node) bool { return n.ID == id(words[1]) })
		return nil
	}
	n := Node{ID: id(words[0]), Name: NameOf(id(words[0])), Contact: true, HasConfig: true, Caught: true, Steady: true, Addr: words[0] + ":7481"}
	n.Ordinal, _ = strconv.Atoi(strings.TrimPrefix(n.Name, "n"))
	for _, w := range words[1:] {
		if err := s.word(&n, w); err != nil {
			return err
		}
	}
	s.view.Nodes = slices.DeleteFunc(s.view.Nodes, func(o Node) bool { return o.ID == n.ID })
	s.view.Nodes = append(s.view.Nodes, n)
	return nil
}

func (s *stage) word(n *Node, w string) error {
	if k, v, ok := strings.Cut(w, "="); ok {
		num, err := strconv.Atoi(v)
		switch k {
		case "ordinal":
			n.Ordinal = num
		case "joined":
			n.Joined = uint64(num)
		default:
			return fmt.Errorf("%q", w)
		}
		return err
	}
	switch w {
	case "none", "nonvoter", "voter":
		n.Role = Role(slices.Index([]string{"none", "nonvoter", "voter"}, w))
	case "leads":
		s.view.Me = n.ID
	case "away":
		n.Contact, n.Steady = false, false
	case "lost":
		n.Contact, n.Steady, n.Lost = false, false, true
	case "new":
		n.Steady = false
	case "seasoned":
		n.Seasoned = true
	case "behind":
		n.Caught = false
	case "unheard":
		n.Caught, n.HasConfig = false, false
	case "going":
		n.Going = true
	case "leaving":
		n.Leaving = true
	case "granted":
		n.Granted, n.Going = true, true
	case "just":
		n.JustGranted = true
	case "returned":
		n.Returned = true
	case "stuck":
		n.Stuck, n.Caught = true, false
	default:
		return fmt.Errorf("%q", w)
	}
	return nil
}

func id(name string) string {
	if strings.Contains(name, "~") {
		return name
	}
	return name + "~a"
}

// say writes a step as scripts do.
func say(s Step) string {
	who := strings.TrimSuffix(s.ID, "~a")
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s [%s]", s.Kind, who, s.Rule)), " ")
}

// minutes runs the scripts and hands each stage that Decide was asked about to see.
func minutes(t *testing.T, see func(where string, v View, want string)) {
	files, err := filepath.Glob("testdata/decide/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := stage{}
		for i, line := range strings.Split(string(text), "\n") {
			where := fmt.Sprintf("%s:%d", filepath.Base(file), i+1)
			line, _, _ = strings.Cut(line, "#")
			switch line = strings.TrimSpace(line); {
			case line == "":
			case strings.HasPrefix(line, "--"):
				s = stage{view: View{Size: 3}}
			case strings.HasPrefix(line, "->"):
				see(where, s.view, strings.TrimSpace(line[2:]))
			default:
				if err := s.line(line); err != nil {
					t.Fatalf("%s: no such word: %v", where, err)
				}
			}
		}
	}
}

func TestDecideByScripts(t *testing.T) {
	rulesSeen := map[string]bool{}
	minutes(t, func(where string, v View, want string) {
		got := Decide(v)
		rulesSeen[got.Rule] = true
		if say(got) != want {
			t.Errorf("%s: %s, want %s\n  %s", where, say(got), want, got.Why)
		}
		if got.Why == "" || strings.Contains(got.Why, "%") {
			t.Errorf("%s: %s says why: %q", where, say(got), got.Why)
		}
	})
	for _, r := range rules {
		if !rulesSeen[r.no] {
			t.Errorf("no script shows rule %s", r.no)
		}
	}
}

// The order of nodes in a view is of no importance.
func TestDecideIgnoresTheOrderOfNodes(t *testing.T) {
	minutes(t, func(where string, v View, _ string) {
		want := Decide(v)
		for range len(v.Nodes) {
			v.Nodes = append(slices.Clone(v.Nodes[1:]), v.Nodes[0])
			if got := Decide(v); got != want {
				t.Errorf("%s: %v, in another order %v", where, want, got)
			}
		}
	})
}
