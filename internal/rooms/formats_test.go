package rooms

import (
	"os"
	"strings"
	"testing"
)

// TestEveryFormatIsInTheIndex holds docs/formats/README.md against the pages beside it.
func TestEveryFormatIsInTheIndex(t *testing.T) {
	index, err := os.ReadFile("../../docs/formats/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := os.ReadDir("../../docs/formats")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if name := p.Name(); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/formats/README.md does not name %s", name)
		}
	}
}
