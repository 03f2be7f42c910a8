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
	d := &decoder{file: file, expander: e, parts: parts,
		at: map[string]position{}, bad: map[string]bool{}, hidden: map[string]bool{}}
	cfg := &Config{spec: specOf(parts), hidden: d.hidden}
	root, fault := parse(data)
	if fault != nil {
		d.problems = append(d.problems, *fault)
	}
	if root != nil {
		d.decode(cfg.spec, root, reflect.ValueOf(cfg).Elem(), "")
		d.complete(cfg)
		d.check(cfg)
	}
	if len(d.problems) > 0 {
		return nil, d.finish()
	}
	return cfg, nil
}

// finish is the error for the user: secrets out, file in, in order.
func (d *decoder) finish() Problems {
	d.problems.scrub(d.secrets)
	for i := range d.problems {
		p := &d.problems[i]
		p.File, p.Line, p.Column = d.file, max(p.Line, 1), max(p.Column, 1)
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
	before := data[:at]
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
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
	lines := bytes.SplitAfter(data, []byte("\n"))
	if broken := brokenLine(lines); broken > 0 {
		line = broken
	}
	line = min(max(line, 1), len(lines))
	text := lines[line-1]
	indent := len(text) - len(bytes.TrimLeft(text, " "))
	return &Problem{Line: line, Column: indent + 1, Text: "this is not YAML: " + m[2]}
}

// brokenLine is the number of the line behind the longest beginning of the file that is YAML by itself; 0 where the file is too
// long to try.
func brokenLine(lines [][]byte) int {
	if len(lines) > 2000 {
		return 0
	}
	data := bytes.Join(lines, nil)
	end := len(data)
	for n := len(lines) - 1; n > 0; n-- {
		end -= len(lines[n])
		var doc yaml.Node
		if yaml.Unmarshal(data[:end], &doc) == nil {
			return n + 1
		}
	}
	return 1
}
