package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/stream-arrow/twgd/unit"
	"go.yaml.in/yaml/v3"
)

// decoder walks the file and the tree of fields together. It never stops at a mistake: what is wrong is noted, the value gets
// its default, and the walk goes on.
type decoder struct {
	expander
	file     string
	parts    Parts
	problems Problems
	at       map[string]position // where each path that the file gives stands
	bad      map[string]bool     // paths of which something was said already
	hidden   map[string]bool     // paths whose value came from a file
	secrets  []string            // every secret text seen
	aliased  int                 // nodes visited below an alias
	inAlias  int
}

// position in the file, from 1.
type position struct{ line, column int }

func positionOf(n *yaml.Node) position { return position{n.Line, n.Column} }

// most is how many nodes may be visited below aliases. Aliases of aliases can stand for more than any memory holds.
const most = 10000

// decode puts what n holds into v. Paths are as in streams[0].raw.to.
func (d *decoder) decode(f *field, n *yaml.Node, v reflect.Value, path string) {
	if _, seen := d.at[path]; !seen {
		d.at[path] = positionOf(n)
	}
	if n.Kind == yaml.AliasNode {
		d.inAlias++
		defer func() { d.inAlias-- }()
		n = n.Alias
	}
	if d.inAlias > 0 {
		if d.aliased++; d.aliased == most {
			d.problem(path, Problem{Text: "the aliases of this file stand for too much"})
		}
		if d.aliased >= most {
			return
		}
	}
	switch f.shape {
	case mapping:
		d.mapping(f, n, v, path)
	case list:
		d.list(f, n, v, path)
	case table:
		d.table(f, n, v, path)
	default:
		d.scalar(f, n, v, path)
	}
}

// empty reports whether n is a key without a value, which for everything with parts means that it has none.
func empty(n *yaml.Node) bool {
	m, err := meaningOf(n)
	return n.Kind == yaml.ScalarNode && err == nil && m == isNull
}

func (d *decoder) mapping(f *field, n *yaml.Node, v reflect.Value, path string) {
	f.preset(v)
	if n.Kind != yaml.MappingNode && !empty(n) {
		d.wrong(f, n, path)
		return
	}
	given := map[string]bool{}
	for key, value := range d.pairs(n, path) {
		given[key.Value] = true
		d.key(f, key, value, v, path)
	}
	for _, c := range f.fields {
		if !given[c.name] && c.required != "" {
			d.problem(join(path, c.name), Problem{Text: "this key is missing: " + c.required})
		}
	}
	d.chosen(f, v, path)
}

// pairs yields the keys of a mapping, each once.
func (d *decoder) pairs(n *yaml.Node, path string) func(func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		first := map[string]position{}
		for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				d.problemAt(positionOf(key), path, Problem{Text: "a key is a text", Found: described(key)})
				continue
			}
			if at, twice := first[key.Value]; twice {
				d.problemAt(positionOf(key), join(path, word(key.Value)),
					Problem{Text: fmt.Sprintf("this key is there already, in line %d", at.line)})
				continue
			}
			first[key.Value] = positionOf(key)
			if !yield(key, n.Content[i+1]) {
				return
			}
		}
	}
}

func (d *decoder) key(f *field, key, value *yaml.Node, v reflect.Value, path string) {
	below := join(path, word(key.Value))
	if c := f.child(key.Value); c != nil {
		d.decode(c, value, v.FieldByIndex(c.index), below)
	} else if k := f.choice.kind(key.Value); k != nil {
		d.options(f, k, value, v, path)
	} else {
		d.unknown(f, key, path)
	}
}

func (d *decoder) unknown(f *field, key *yaml.Node, path string) {
	p := Problem{Text: "this key is not known", Allowed: strings.Join(f.keys(), ", "), Meant: near(key.Value, f.keys())}
	d.problemAt(positionOf(key), join(path, word(key.Value)), p)
	if p.Meant != "" {
		d.bad[join(path, p.Meant)] = true // what is misspelled is not missing besides
		if f.choice.kind(p.Meant) != nil {
			d.bad[join(path, f.choice.what)] = true
		}
	}
}

// options decodes the options of one kind. A second kind is refused by chosen.
func (d *decoder) options(f *field, k *kind, n *yaml.Node, v reflect.Value, path string) {
	chosen := v.FieldByIndex(f.choice.index)
	options := reflect.ValueOf(k.options())
	d.decode(k.spec, n, options.Elem(), join(path, k.name))
	if name := chosen.FieldByName("Kind"); name.String() == "" {
		name.SetString(k.name)
		chosen.FieldByName("Options").Set(options)
	} else {
		text := fmt.Sprintf("there is %s already; a %s has one kind", name.String(), f.choice.what)
		d.problem(join(path, k.name), Problem{Text: text})
	}
}

// chosen checks that a mapping of kinds has one.
func (d *decoder) chosen(f *field, v reflect.Value, path string) {
	if f.choice == nil || v.FieldByIndex(f.choice.index).FieldByName("Kind").String() != "" || d.bad[join(path, f.choice.what)] {
		return
	}
	d.problem(path, Problem{Text: "the kind of " + f.choice.what + " is missing", Allowed: strings.Join(f.choice.names(), ", ")})
}

func (d *decoder) list(f *field, n *yaml.Node, v reflect.Value, path string) {
	f.preset(v)
	if n.Kind != yaml.SequenceNode && !empty(n) {
		d.wrong(f, n, path)
		return
	}
	for i, item := range n.Content {
		e := reflect.New(v.Type().Elem()).Elem()
		d.decode(f.elem, item, e, fmt.Sprintf("%s[%d]", path, i))
		v.Set(reflect.Append(v, e))
	}
	if f.required != "" && v.Len() == 0 {
		d.problem(path, Problem{Text: "this list is empty: " + f.required})
	}
}

func (d *decoder) table(f *field, n *yaml.Node, v reflect.Value, path string) {
	f.preset(v)
	if n.Kind != yaml.MappingNode && !empty(n) {
		d.wrong(f, n, path)
		return
	}
	m := reflect.MakeMap(v.Type())
	for key, value := range d.pairs(n, path) {
		e := reflect.New(v.Type().Elem()).Elem()
		d.decode(f.elem, value, e, join(path, word(key.Value)))
		m.SetMapIndex(reflect.ValueOf(key.Value), e)
	}
	if m.Len() > 0 {
		v.Set(m)
	}
}

func (d *decoder) scalar(f *field, n *yaml.Node, v reflect.Value, path string) {
	f.preset(v)
	if n.Kind != yaml.ScalarNode {
		d.wrong(f, n, path)
		return
	}
	m, err := meaningOf(n)
	if err != nil {
		d.problem(path, Problem{Text: err.Error(), Allowed: f.allowed()})
		return
	}
	value, file, err := d.expand(n.Value)
	if d.note(f, path, value, file); err != nil {
		d.problem(path, Problem{Text: err.Error()})
		return
	}
	d.put(f, v, path, value, m, value != n.Value)
}

// note remembers what must not be printed.
func (d *decoder) note(f *field, path, value string, file bool) {
	if file {
		d.hidden[path] = true
	}
	if file || f.secret {
		d.secrets = append(d.secrets, value)
	}
}

// put sets v from a scalar's text. An expanded text takes the type that is wanted, if it looks like it.
func (d *decoder) put(f *field, v reflect.Value, path, value string, m meaning, expanded bool) {
	if hint, ok := f.fits(value, m, expanded); !ok {
		d.problem(path, Problem{Text: hint, Found: d.found(f, path, value, m), Allowed: f.allowed()})
		return
	}
	if err := f.set(v, value); err != nil {
		f.preset(v)
		p := Problem{Text: err.Error(), Found: d.found(f, path, value, m), Allowed: f.allowed()}
		if p.Found != hidden {
			p.Meant = near(value, f.enum)
		}
		d.problem(path, p)
		return
	}
	if l, ok := v.Interface().(unit.Location); ok && l != "" {
		d.location(f, l, path)
	}
}

// location judges a location beyond its shape.
func (d *decoder) location(f *field, l unit.Location, path string) {
	if !l.Durable() && !d.parts.AllowMem {
		d.problem(path, Problem{Text: "mem: forgets everything when the process ends; it is for tests", Allowed: f.allowed()})
	}
	if d.parts.Location == nil {
		return
	}
	if err := d.parts.Location(l.String()); err != nil {
		text := err.Error()
		if d.hidden[path] {
			text = "the store refuses this location"
		}
		d.problem(path, Problem{Text: text, Allowed: f.allowed()})
	}
}

// fits reports whether a scalar is of the field's type; if not, why.
func (f *field) fits(value string, m meaning, expanded bool) (hint string, ok bool) {
	switch f.shape {
	case boolean:
		return "this is not true or false", (m == isBool || expanded) && look(value) == isBool
	case whole:
		return "this is not a whole number", (m == isInt || expanded) && look(value) == isInt
	case number:
		looks := look(value)
		return "this is not a number", (m == isInt || m == isFloat || expanded) && (looks == isInt || looks == isFloat)
	case formed:
		return "this has the wrong type", m == isText || m == isInt || expanded
	}
	if m == isNull && value == "" {
		return `there is no value; an empty text is written ""`, false
	}
	return "this is " + m.String() + "; as a text it stands in quotes", m == isText || expanded
}

// found is a value as a message may show it.
func (d *decoder) found(f *field, path, value string, m meaning) string {
	switch {
	case f.secret || d.hidden[path]:
		return hidden
	case m == isText:
		return show(value)
	case value == "":
		return "nothing"
	}
	return word(value)
}

// wrong notes a value of the wrong shape. Its content is not shown: it may be a secret one level too high.
func (d *decoder) wrong(f *field, n *yaml.Node, path string) {
	d.problem(path, Problem{Text: "this has the wrong type", Found: described(n), Allowed: f.shape.String()})
}

func described(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	m, _ := meaningOf(n)
	return m.String()
}

// problem notes a mistake at a path, unless something was said of that path already. A path that the file does not give is
// shown at the nearest one above that it does.
func (d *decoder) problem(path string, p Problem) {
	if d.bad[path] {
		return
	}
	d.bad[path] = true
	d.problemAt(d.place(path), path, p)
}

func (d *decoder) problemAt(at position, path string, p Problem) {
	p.Line, p.Column, p.Path = at.line, at.column, path
	d.problems = append(d.problems, p)
}

func (d *decoder) place(path string) position {
	for path != "" {
		if at, ok := d.at[path]; ok {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return d.at[""]
}
