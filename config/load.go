package config

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Load reads a configuration from data; file names it in messages. env looks up the environment, as os.LookupEnv does. The
// error is of type Problems and holds every mistake that the file has; there is no configuration then.
func Load(data []byte, file string, env func(string) (string, bool), parts Parts) (*Config, error) {
	return load(data, file, expander{env, readFile}, parts)
}

func load(data []byte, file string, e expander, parts Parts) (*Config, error) {
	return loadWith(data, file, e, parts, nil)
}

func loadWith(data []byte, file string, e expander, parts Parts, j *Joining) (*Config, error) {
	d := &decoder{file: file, expander: e, parts: parts,
		at: map[string]position{}, bad: map[string]bool{}, hidden: map[string]bool{}}
	cfg := &Config{spec: specOf(parts), hidden: d.hidden}
	root, fault := parse(data)
	if fault != nil {
		d.problems = append(d.problems, *fault)
	}
	if root != nil {
		d.decode(cfg.spec, root, reflect.ValueOf(cfg).Elem(), "")
		j.apply(d, &cfg.Cluster)
		d.complete(cfg)
		d.check(cfg)
	}
	if len(d.problems) > 0 {
		return nil, d.finish(split(data))
	}
	return cfg, nil
}

// finish is the error for the user: secrets out, file in, in order. The library puts what is not there, such as the value of a key
// at the end of the file, behind the end.
func (d *decoder) finish(lines [][]byte) Problems {
	d.problems.scrub(d.secrets)
	for i := range d.problems {
		p := &d.problems[i]
		p.File, p.Line = d.file, min(max(p.Line, 1), len(lines))
		p.Column = min(max(p.Column, 1), 1+utf8.RuneCount(lines[p.Line-1]))
	}
	return d.problems.sort()
}

// parse reads the one document that a file has. The root is nil where it cannot be read at all; a fault beside a root says that
// something follows the document.
func parse(data []byte) (root *yaml.Node, fault *Problem) {
	if at := invalid(data); at >= 0 {
		line, column := locate(data, at)
		return nil, &Problem{Line: line, Column: column, Text: "the file is not UTF-8"}
	}
	var doc, next yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1, Column: 1}, nil
	case err != nil:
		return nil, notYAML(data, err)
	}
	switch err := dec.Decode(&next); {
	case errors.Is(err, io.EOF):
		return doc.Content[0], nil
	case err != nil:
		return nil, notYAML(data, err)
	}
	return doc.Content[0], &Problem{Line: next.Line, Column: next.Column, Text: "a second document begins here; a file has one"}
}

// invalid is the index of the first byte that is no UTF-8, or -1.
func invalid(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return -1
}

// locate is the line and column of an index.
func locate(data []byte, at int) (line, column int) {
	lines := split(data[:at])
	return len(lines), 1 + utf8.RuneCount(lines[len(lines)-1])
}

var lineBreak = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

// split cuts data behind each line break, which in YAML is more than a line feed. The last line is what follows the last break.
func split(data []byte) (lines [][]byte) {
	from := 0
	for _, at := range lineBreak.FindAllIndex(data, -1) {
		lines = append(lines, data[from:at[1]])
		from = at[1]
	}
	return append(lines, data[from:])
}

var syntaxLine = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)$`)

// notYAML is the problem of a file that is no YAML. The library names the line where the broken construct began, or none;
// the last line up to which the file could still be read says more.
func notYAML(data []byte, err error) *Problem {
	m := syntaxLine.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if m == nil {
		m = []string{"", "", "it cannot be read"}
	}
	line, _ := strconv.Atoi(m[1])
	lines := split(data)
	if broken := brokenLine(lines); broken > 0 {
		line = broken
	}
	line = min(max(line, 1), len(lines))
	text := lines[line-1]
	indent := len(text) - len(bytes.TrimLeft(text, " "))
	return &Problem{Line: line, Column: indent + 1, Text: "this is not YAML: " + m[2]}
}

// effort is how many bytes brokenLine reads at most: nested deeply enough, even a short file takes its time.
const effort = 1 << 20

// brokenLine is the number of the line behind the longest beginning of the file that is YAML by itself; 0 where finding it takes
// too long.
func brokenLine(lines [][]byte) int {
	data := bytes.Join(lines, nil)
	end, read := len(data), 0
	for n := len(lines) - 1; n > 0; n-- {
		end -= len(lines[n])
		if read += end; read > effort {
			return 0
		}
		var doc yaml.Node
		if yaml.Unmarshal(data[:end], &doc) == nil {
			return n + 1
		}
	}
	return 1
}
