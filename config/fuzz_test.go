package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzLoad: whatever the file holds, nothing panics, every problem lies inside the file and names it, and what came from a file
// is never printed.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(Example(testParts()))
	parts := testParts()
	parts.AllowMem = true
	e := testExpander()
	e.read = func(string) ([]byte, error) { return []byte(canary), nil }
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Contains(string(data), canary) || len(data) > 1<<14 {
			t.Skip()
		}
		cfg, err := load(data, "f.yaml", e, parts)
		if err == nil {
			if shown := Show(cfg); strings.Contains(string(shown), canary) {
				t.Errorf("a secret is shown:\n%s", shown)
			}
			return
		}
		if strings.Contains(err.Error(), canary) {
			t.Errorf("a secret is printed: %v", err)
		}
		var ps Problems
		if !errors.As(err, &ps) || len(ps) == 0 {
			t.Fatalf("no problems: %v", err)
		}
		inside(t, string(data), ps)
	})
}

// inside checks positions. YAML also ends lines at a carriage return and at three separators of Unicode.
func inside(t *testing.T, data string, ps Problems) {
	lines := strings.FieldsFunc(strings.NewReplacer("\r\n", "x\n", "\r", "x\n", "\n", "x\n", "\u0085", "x\n", "\u2028", "x\n", "\u2029", "x\n").Replace(data)+"x",
		func(r rune) bool { return r == '\n' })
	for _, p := range ps {
		if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > 1+utf8.RuneCountInString(lines[p.Line-1]) {
			t.Errorf("%v lies outside of the file", p)
		}
		if p.File != "f.yaml" || p.Text == "" {
			t.Errorf("%#v says too little", p)
		}
	}
}
