package config

import (
	"fmt"
	"strings"
)

// Example is a file that loads, with every key, its default and what it does. What stands behind a leading # is an alternative
// to the line above, or a key whose default is worked out.
func Example(parts Parts) []byte {
	w := &exampler{}
	w.b.WriteString("# Sizes are written 16MiB or 64KB, durations 250ms, 5m or 30d. ${NAME} and ${NAME:-default} take the environment,\n" +
		"# ${file:/path} a file's content; a literal ${ is written $${.\n")
	for _, f := range specOf(parts).fields {
		w.b.WriteString("\n")
		w.field(f, "", "")
	}
	return []byte(w.b.String())
}

type exampler struct{ b strings.Builder }

// line writes text and, from a fixed column on, what it means.
func (w *exampler) line(text, comment string) {
	if comment == "" {
		w.b.WriteString(text + "\n")
		return
	}
	fmt.Fprintf(&w.b, "%-52s # %s\n", text, comment)
}

// field writes a key. first stands in front of it: its indent, or on the first line of a list's item the dash. Lines below it
// are indented by indent.
func (w *exampler) field(f *field, first, indent string) {
	switch {
	case f.shape == mapping:
		w.line(first+f.name+":", f.doc)
		w.keys(f, indent+"  ", indent+"  ")
	case f.shape == list && f.elem.shape == mapping:
		w.line(first+f.name+":", f.doc)
		w.items(f.elem, indent+"  ")
	case strings.HasPrefix(f.example, "#"):
		w.line(indent+"# "+f.name+": "+f.example[1:], f.comment())
	default:
		w.line(first+f.name+": "+f.value(), f.comment())
	}
}

// keys writes what is in a mapping.
func (w *exampler) keys(f *field, first, indent string) {
	for _, c := range f.fields {
		w.field(c, first, indent)
		first = indent
	}
	if f.choice != nil && f.choice.what == "source" {
		for i, k := range f.choice.kinds {
			w.kind(k, indent, i > 0)
		}
	}
}

// kind writes the options of one kind; all but the first of several are commented out, since a mapping takes one.
func (w *exampler) kind(k kind, indent string, comment bool) {
	if comment {
		w.line(indent+"# "+k.name+": …", k.doc)
		return
	}
	w.line(indent+k.name+":", k.doc)
	w.keys(k.spec, indent+"  ", indent+"  ")
}

// items writes one item of a list, or where it is a choice one of each kind.
func (w *exampler) items(f *field, indent string) {
	if f.choice == nil {
		w.keys(f, indent+"- ", indent+"  ")
		return
	}
	for _, k := range f.choice.kinds {
		named := *f
		named.fields = append([]*field(nil), f.fields...)
		name := *named.fields[0]
		name.example = k.name
		named.fields[0] = &name
		w.keys(&named, indent+"- ", indent+"  ")
		w.kind(k, indent+"  ", false)
	}
}

// value is what the example shows.
func (f *field) value() string {
	value := f.example
	switch {
	case f.shape == list || f.shape == table:
		if value == "" {
			return "[]"
		}
		return value
	case value == "" && f.def != nil:
		value = *f.def
	}
	n := scalarNode(value, "!!str")
	if f.shape == boolean || f.shape == whole || f.shape == number {
		n = scalarNode(value, "")
	}
	n.Value = value // an example may show ${NAME}
	return strings.TrimSuffix(string(encode(n)), "\n")
}

// comment says what a key does, what it takes and its default where the value does not show it.
func (f *field) comment() string {
	c := f.doc
	if f.enum != nil {
		c += " " + strings.Join(quotedAll(f.enum), " | ") + "."
	}
	if f.auto != "" {
		c += " Default: " + f.auto + "."
	} else if f.def != nil && *f.def != "" && f.example != "" {
		c += " Default: " + quoted(*f.def) + "."
	}
	return c
}

// quoted writes a value as YAML wants it: what is empty, or would be no text, in quotes.
func quoted(s string) string {
	if m := look(s); m == isNull {
		return `"` + s + `"`
	}
	return s
}

func quotedAll(list []string) (out []string) {
	for _, s := range list {
		out = append(out, quoted(s))
	}
	return out
}
