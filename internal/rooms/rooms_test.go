// Package rooms holds the table of rooms in docs/ARCHITECTURE.md against what the packages import.
package rooms

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/stream-arrow/twgd/"

// floors reads the table.
func floors(t *testing.T) map[string]int {
	t.Helper()
	doc, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d) \| (\S+) \|`).FindAllStringSubmatch(string(doc), -1) {
		out[m[2]], _ = strconv.Atoi(m[1])
	}
	if len(out) == 0 {
		t.Fatal("docs/ARCHITECTURE.md has no table of rooms")
	}
	return out
}

// controlHouse reads which rooms of the table stand in the control house.
func controlHouse(t *testing.T) map[string]bool {
	t.Helper()
	doc, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(doc), "### Control house")
	if !found {
		t.Fatal("docs/ARCHITECTURE.md has no table of the control house")
	}
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| \d \| (\S+) \|`).FindAllStringSubmatch(table, -1) {
		out[m[1]] = true
	}
	return out
}

// suites and the tests' own packages stand beside the house.
func outside(room string) bool {
	return strings.HasPrefix(room, "internal/") || strings.HasPrefix(room, "test/") || strings.HasSuffix(room, "test") || strings.HasPrefix(room, "store/")
}

func TestRoomsImportLowerFloorsOnly(t *testing.T) {
	floor, control := floors(t), controlHouse(t)
	list := exec.Command("go", append([]string{"list", "-e", "-f", `{{.ImportPath}} {{join .Imports " "}}`}, packages(t)...)...)
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal("go list: ", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(strings.TrimSpace(line))
		room := strings.TrimPrefix(fields[0], module)
		if outside(room) {
			continue
		}
		seen[room] = true
		mine, known := floor[room]
		if !known {
			t.Errorf("room %s is not in the table of docs/ARCHITECTURE.md", room)
			continue
		}
		for _, imp := range fields[1:] {
			check(t, floor, control, room, mine, strings.TrimPrefix(imp, module), strings.HasPrefix(imp, module))
		}
	}
	for room := range floor {
		if !seen[room] {
			t.Errorf("docs/ARCHITECTURE.md names room %s, which does not exist", room)
		}
	}
}

// packages are the folders with Go files that belong to the project. What merely lies around in a working copy is nobody's room.
func packages(t *testing.T) (out []string) {
	t.Helper()
	files := exec.Command("git", "ls-files", "--", "*.go")
	files.Dir = "../.."
	list, err := files.Output()
	if err != nil {
		t.Fatal("git ls-files: ", err)
	}
	for file := range strings.Lines(string(list)) {
		out = append(out, "./"+path.Dir(strings.TrimSpace(file)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// between are rooms that belong to neither house.
var between = map[string]bool{"unit": true}

func check(t *testing.T, floor map[string]int, control map[string]bool, room string, mine int, imp string, ours bool) {
	switch {
	case !ours || imp == "store":
	case imp == "admin" && room != "cmd/twgd":
		t.Errorf("%s imports admin, which only cmd/twgd may", room)
	case outside(imp):
		t.Errorf("%s imports %s, which is for tests", room, imp)
	case control[imp] != control[room] && room != "cmd/twgd" && !between[imp]:
		t.Errorf("%s imports %s, which stands in the other house", room, imp)
	case floor[imp] >= mine:
		t.Errorf("%s (floor %d) imports %s (floor %d)", room, mine, imp, floor[imp])
	}
}
