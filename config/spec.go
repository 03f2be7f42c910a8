package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// field is what the tags and the type of one option say. A tree of fields is the whole of what this room knows of options; every
// walk goes over it.
type field struct {
	name  string
	index []int // in the parent struct
	shape shape
	typ   reflect.Type

	doc, auto, form, example, required string

	def      *string // as it would be written
	enum     []string
	min, max string
	pattern  *regexp.Regexp
	secret   bool

	fields []*field // of a struct: its keys
	choice *choice  // of a struct: the kinds of which one is given
	elem   *field   // of a list or a map
}

// shape is what a value looks like in YAML.
type shape uint8

const (
	text    shape = iota // a Go string
	boolean              // true, false
	whole                // a whole number
	number               // a Go float64
	formed               // text that its type reads itself: sizes, durations, locations
	mapping              // a struct
	list                 // a slice
	table                // a map with keys of the user
)

// choice is a set of kinds of which a mapping holds exactly one.
type choice struct {
	index []int  // of the Choice in the parent struct
	what  string // source or sink
	kinds []kind
}

type kind struct {
	name, doc string
	options   func() any
	spec      *field
}

// former is a type that reads its own text and says what it takes.
type former interface {
	Form() string
	Pattern() string
}

// numbers reports whether a plain whole number is as good as its text.
func (f *field) numbers() bool {
	n, ok := reflect.Zero(f.typ).Interface().(interface{ Numbers() bool })
	return ok && n.Numbers()
}

// specOf is the tree of a whole file. It panics where a struct carries a type or a tag that the walk does not know: a fault of
// the program, which every test would show.
func specOf(parts Parts) *field { return structure(reflect.TypeFor[Config](), parts) }

func structure(t reflect.Type, parts Parts) *field {
	f := &field{shape: mapping, typ: t}
	for sf := range fieldsOf(t) {
		if what := sf.Tag.Get("choice"); what != "" {
			f.choice = &choice{sf.Index, what, kindsOf(what, parts)}
		} else if name := sf.Tag.Get("yaml"); name != "" {
			f.fields = append(f.fields, option(sf, name, parts))
		}
	}
	return f
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if sf := t.Field(i); sf.IsExported() && !yield(sf) {
				return
			}
		}
	}
}

func kindsOf(what string, parts Parts) (kinds []kind) {
	add := func(name, doc string, options func() any) {
		spec := structure(reflect.TypeOf(options()).Elem(), parts)
		spec.name, spec.doc = name, doc
		kinds = append(kinds, kind{name, doc, options, spec})
	}
	switch what {
	case "source":
		for _, k := range parts.Sources {
			add(k.Name, k.Doc, func() any { return k.New() })
		}
	case "sink":
		for _, k := range parts.Sinks {
			add(k.Name, k.Doc, func() any { return k.New() })
		}
	default:
		panic("config: no kinds of " + what)
	}
	return kinds
}

func option(sf reflect.StructField, name string, parts Parts) *field {
	f := typed(sf.Type, parts)
	tag := sf.Tag
	f.name, f.index = name, sf.Index
	f.doc, f.auto, f.example, f.required = tag.Get("doc"), tag.Get("auto"), tag.Get("example"), tag.Get("required")
	f.min, f.max, f.secret = tag.Get("min"), tag.Get("max"), tag.Get("secret") == "true"
	if d, ok := tag.Lookup("default"); ok {
		f.def = &d
	}
	if e := tag.Get("enum"); e != "" {
		f.enum = strings.Split(e, "|")
	}
	f.limit(tag)
	return f
}

// limit hands pattern and form to whom they concern: in a list or a table to each element.
func (f *field) limit(tag reflect.StructTag) {
	to := f
	for to.elem != nil && to.elem.shape != formed {
		to = to.elem
	}
	if form := tag.Get("form"); form != "" {
		to.form = form
	}
	if p := tag.Get("pattern"); p != "" {
		to.pattern = regexp.MustCompile(p)
	}
}

// typed is the field of a Go type, without tags.
func typed(t reflect.Type, parts Parts) *field {
	f := &field{typ: t}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		own := reflect.Zero(t).Interface().(former)
		f.shape, f.form, f.pattern = formed, own.Form(), regexp.MustCompile(own.Pattern())
		return f
	}
	switch t.Kind() {
	case reflect.String:
		f.shape = text
	case reflect.Bool:
		f.shape = boolean
	case reflect.Int, reflect.Int32, reflect.Int64:
		f.shape = whole
	case reflect.Float64:
		f.shape = number
	case reflect.Slice:
		f.shape, f.elem = list, typed(t.Elem(), parts)
	case reflect.Map:
		f.shape, f.elem = table, typed(t.Elem(), parts)
	case reflect.Struct:
		return structure(t, parts)
	default:
		panic(fmt.Sprintf("config: no option can be a %s", t))
	}
	return f
}

// keys lists what a mapping may hold.
func (f *field) keys() (names []string) {
	for _, c := range f.fields {
		names = append(names, c.name)
	}
	if f.choice != nil {
		for _, k := range f.choice.kinds {
			names = append(names, k.name)
		}
	}
	return names
}

func (f *field) child(name string) *field {
	for _, c := range f.fields {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (c *choice) kind(name string) *kind {
	if c == nil {
		return nil
	}
	for i := range c.kinds {
		if c.kinds[i].name == name {
			return &c.kinds[i]
		}
	}
	return nil
}

// names lists the kinds.
func (c *choice) names() (names []string) {
	for _, k := range c.kinds {
		names = append(names, k.name)
	}
	return names
}

// allowed says in words which values the field takes.
func (f *field) allowed() string {
	var parts []string
	switch {
	case f.enum != nil:
		return strings.Join(quotedAll(f.enum), ", ")
	case f.form != "":
		parts = append(parts, f.form)
	default:
		parts = append(parts, f.shape.String())
	}
	if f.min != "" {
		parts = append(parts, "at least "+f.min)
	}
	if f.max != "" {
		parts = append(parts, "at most "+f.max)
	}
	return strings.Join(parts, ", ")
}

func (s shape) String() string {
	return [...]string{"a text", "true or false", "a whole number", "a number", "a text", "a mapping", "a list", "a mapping"}[s]
}
