package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one mistake in a file. Line and Column count from 1, columns in characters.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path,omitempty"` // of the key, as in streams[0].raw.to
	Text    string `json:"problem"`
	Found   string `json:"found,omitempty"`
	Allowed string `json:"allowed,omitempty"`
	Meant   string `json:"meant,omitempty"` // what was probably meant
}

// String is the line that a user reads.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Text)
	for _, part := range []struct{ word, text string }{{"found", p.Found}, {"did you mean", p.Meant}, {"allowed:", p.Allowed}} {
		if part.text != "" {
			b.WriteString("; " + part.word + " " + part.text)
		}
	}
	return b.String()
}

// Problems is the error of a file with mistakes, in the order of their places.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sort brings the problems into the file's order and drops those said twice: an alias shows the same text in two places.
func (ps Problems) sort() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return slices.Compact(ps)
}

// scrub takes secrets out of what was quoted from the file, in case a check quoted one. The words of the messages themselves
// stay: they are the program's.
func (ps Problems) scrub(secrets []string) {
	for _, s := range secrets {
		if len(s) < 4 { // replacing a letter or two would spell the secret out instead
			continue
		}
		for i := range ps {
			for _, text := range []*string{&ps[i].Path, &ps[i].Found, &ps[i].Meant} {
				*text = strings.ReplaceAll(*text, s, hidden)
			}
		}
	}
}

// hidden stands where a secret would.
const hidden = "(hidden)"

// show quotes a value for a message: short, on one line, without credentials.
func show(value string) string {
	value = withoutCredentials(value)
	if r := []rune(value); len(r) > 60 {
		value = string(r[:57]) + "..."
	}
	return strconv.Quote(value)
}

// withoutCredentials hides what stands before the @ of a URL, or of anything that looks like user:password@host.
func withoutCredentials(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return s
	}
	start := strings.Index(s[:at], "//")
	if start < 0 && !strings.Contains(s[:at], ":") {
		return s
	}
	if start >= 0 {
		start += 2
	}
	return s[:max(start, 0)] + hidden + s[at:]
}

// join is the path of key below path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// word writes a key into a path: as it is where it is harmless, else quoted.
func word(key string) string {
	for _, r := range key {
		if !strings.ContainsRune("_.-<", r) && (r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z') {
			return show(key)
		}
	}
	if key == "" || len(key) > 60 {
		return show(key)
	}
	return key
}

// near is the candidate that a misspelled word probably meant, or none: the one with the least distance, if that is small for
// the word's length and no other is as near.
func near(text string, candidates []string) string {
	best, meant := 1+max(1, min(len(text), 12)/3), ""
	for _, c := range candidates {
		switch d := distance(strings.ToLower(text), c); {
		case d < best:
			best, meant = d, c
		case d == best:
			meant = ""
		}
	}
	return meant
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			rows[i][j] = step(rows, a, b, i, j)
		}
	}
	return rows[len(a)][len(b)]
}

func step(rows [][]int, a, b string, i, j int) int {
	change := 1
	if a[i-1] == b[j-1] {
		change = 0
	}
	d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
	if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
		d = min(d, rows[i-2][j-2]+1)
	}
	return d
}
