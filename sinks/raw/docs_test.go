package raw

import (
	"os"
	"strings"
	"testing"
)

// TestTheDocumentedFoundingsAreValid reads the examples of docs/formats/raw.md.
func TestTheDocumentedFoundingsAreValid(t *testing.T) {
	page, err := os.ReadFile("../../docs/formats/raw.md")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, part := range strings.Split(string(page), "```json\n")[1:] {
		body, _, _ := strings.Cut(part, "\n```")
		var err error
		switch {
		case strings.Contains(body, `"starts"`):
			err = unmarshalSealed([]byte(body), &founding{})
		case strings.Contains(body, `"nonce": "`):
			err = unmarshalSealed([]byte(body), &genesis{})
		default:
			continue
		}
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		read++
	}
	if read != 2 {
		t.Errorf("%d examples", read)
	}
}
