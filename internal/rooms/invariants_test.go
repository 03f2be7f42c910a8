package rooms

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func TestInvariantsNameTestsThatExist(t *testing.T) {
	doc, err := os.ReadFile("../../docs/INVARIANTS.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "grep", "-hoE", "^func Test[A-Za-z0-9_]+", "--", "../../*_test.go").Output()
	if err != nil {
		t.Fatal("listing the tests: ", err)
	}
	exists := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		exists[strings.TrimSpace(strings.TrimPrefix(line, "func "))] = true
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) == 0 {
		t.Fatal("docs/INVARIANTS.md names no test")
	}
	for _, m := range named {
		if !exists[m[1]] {
			t.Errorf("docs/INVARIANTS.md names %s, which does not exist", m[1])
		}
	}
}
