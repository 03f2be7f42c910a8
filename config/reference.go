package config

import (
	"fmt"
	"strings"
)

// Reference is the documentation of every key, in Markdown.
func Reference(parts Parts) []byte {
	var b strings.Builder
	b.WriteString(preface)
	r := referrer{&b}
	r.section(specOf(parts), "", "The file")
	b.WriteString("\n## Example\n\n`twgd config example` prints this file, which loads as it is.\n\n```yaml\n")
	b.Write(Example(parts))
	b.WriteString("```\n")
	return []byte(b.String())
}

const preface = `# Configuration

<!-- Made from the option structs by go generate ./cmd/twgd; do not edit. -->

A node reads one YAML 1.2 file: ` + "`twgd run -c twgd.yaml`" + `. ` + "`twgd validate -c twgd.yaml`" + ` lists every mistake at once, each with its
line, column and key. ` + "`twgd config show`" + ` prints the effective configuration with secrets hidden, ` + "`twgd config schema`" + ` a JSON
Schema for editors.

- Sizes are written ` + "`16MiB`, `64KB` or `512B`" + `, durations ` + "`250ms`, `5m`, `1h30m` or `30d`" + `. Only 0 needs no unit.
- ` + "`${NAME}` and `${NAME:-default}`" + ` take the environment, ` + "`${file:/path}`" + ` the content of a file without its last newline. They are
  expanded after the YAML has been read, inside values only, so that a secret can never become a key or a second value. A
  literal ` + "`${` is written `$${`" + `.
- ` + "`yes`, `no`, `on` and `off`" + ` are texts, ` + "`0777`" + ` is the number 777; merge keys (` + "`<<`" + `) do not exist. Unknown keys, duplicate keys, a second
  document and wrong types are refused.
- Values that come from a file, and the keys marked *secret*, are never printed. Locations hold no credentials: those come from
  the environment or the machine's role.
`

type referrer struct{ b *strings.Builder }

// section writes a mapping as a table, and its mappings behind it.
func (r referrer) section(f *field, path, title string) {
	fmt.Fprintf(r.b, "\n## %s\n\n", title)
	if f.doc != "" {
		fmt.Fprintf(r.b, "%s\n\n", f.doc)
	}
	r.b.WriteString("| key | takes | default | |\n|---|---|---|---|\n")
	for _, c := range f.fields {
		r.row(c)
	}
	if f.choice != nil {
		for _, k := range f.choice.kinds {
			fmt.Fprintf(r.b, "| `%s` | a mapping | one kind is required | %s |\n", k.name, cell(k.doc))
		}
	}
	r.below(f, path)
}

func (r referrer) below(f *field, path string) {
	for _, c := range f.fields {
		switch {
		case c.shape == mapping:
			r.section(c, join(path, c.name), "`"+join(path, c.name)+"`")
		case c.elem != nil && c.elem.shape == mapping:
			elem := *c.elem
			elem.doc = c.doc
			r.section(&elem, join(path, c.name)+"[]", "`"+join(path, c.name)+"[]`")
		}
	}
	if f.choice != nil {
		for _, k := range f.choice.kinds {
			r.section(k.spec, join(path, k.name), "`"+join(path, k.name)+"`")
		}
	}
}

func (r referrer) row(f *field) {
	doc := f.doc
	if f.secret {
		doc += " *Secret.*"
	}
	fmt.Fprintf(r.b, "| `%s` | %s | %s | %s |\n", f.name, cell(f.takes()), cell(f.defaultText()), cell(doc))
}

func (f *field) takes() string {
	switch {
	case f.enum != nil:
		return "`" + strings.Join(quotedAll(f.enum), "`, `") + "`"
	case f.shape == list && f.elem.shape != mapping:
		return "a list of: " + f.elem.allowed()
	case f.shape == table && f.elem.elem != nil:
		return "a mapping to lists of: " + f.elem.elem.allowed()
	}
	return f.allowed()
}

func (f *field) defaultText() string {
	switch {
	case f.required != "":
		return "required"
	case f.auto != "":
		return f.auto
	case f.def != nil:
		return "`" + quoted(*f.def) + "`"
	}
	return ""
}

// cell keeps a text from ending its cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
