package content

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Why a record has no content hash. Such a record is never a twin, and nobody is its twin.
const (
	NullValue    = "null_value"    // the value is a null: all deletes would be each other's twins
	EmptyValue   = "empty_value"   // it has no bytes
	NotJSON      = "not_json"      // it is no JSON text by RFC 8259
	DuplicateKey = "duplicate_key" // a name on the way to a declared field stands there twice
	FieldType    = "field_type"    // a declared field is an object, an array, or a number with an exponent beyond 64 bits
	MissingField = "missing_field" // a declared field is not there, or null
)

// tree is the declared fields as a tree of names. A leaf is a field.
type tree struct {
	name     string
	field    int // its place among the sorted paths, -1 inside
	place    int // of this node among all
	children []*tree
}

// newTree takes dotted paths, sorted, and returns how many nodes there are.
func newTree(paths []string) (root *tree, nodes int, err error) {
	root, nodes = &tree{field: -1}, 1
	for i, path := range paths {
		at := root
		for name := range strings.SplitSeq(path, ".") {
			if name == "" {
				return nil, 0, fmt.Errorf("the field %q has an empty name in it", path)
			}
			next := at.child([]byte(name))
			if next == nil {
				next = &tree{name: name, field: -1, place: nodes}
				nodes++
				at.children = append(at.children, next)
			}
			if at = next; at.field >= 0 {
				return nil, 0, fmt.Errorf("the field %q is declared, and so is %q, which it is a part of or the same as", path, paths[at.field])
			}
		}
		if len(at.children) > 0 {
			return nil, 0, fmt.Errorf("the field %q is declared, and so are parts of it", path)
		}
		at.field = i
	}
	return root, nodes, nil
}

func (t *tree) child(name []byte) *tree {
	for _, c := range t.children {
		if c.name == string(name) {
			return c
		}
	}
	return nil
}

// scanner finds the declared fields in JSON texts and writes them in their one spelling. It allocates nothing in steady state, and is not for
// concurrent use.
type scanner struct {
	root  *tree
	dec   *jsontext.Decoder
	rules []jsontext.Options
	text  bytes.Buffer
	name  []byte // a name without its escapes
	spelt []byte // of the fields found, in the order of the text
	found []spelling
	seen  []bool // by node
	twice bool
	wrong bool // a field of a type that cannot be one
	out   []byte
}

// spelling is where a field's type and text lie in spelt; to is 0 where it was not found.
type spelling struct{ from, to int }

func newScanner(root *tree, fields, nodes int) *scanner {
	s := &scanner{root: root, found: make([]spelling, fields), seen: make([]bool, nodes)}
	s.dec = jsontext.NewDecoder(&s.text)
	s.rules = []jsontext.Options{jsontext.AllowDuplicateNames(true)} // names on a path are watched here; others do not matter
	return s
}

// fields is the encoding of the declared fields of value, or why there is none. It is valid until the next call.
func (s *scanner) fields(value []byte) (encoded []byte, reason string) {
	clear(s.found)
	clear(s.seen)
	s.spelt, s.out, s.twice, s.wrong = s.spelt[:0], s.out[:0], false, false
	s.text = *bytes.NewBuffer(value)
	s.dec.Reset(&s.text, s.rules...)
	if s.walk(s.root) != nil || !s.ended() {
		return nil, NotJSON
	}
	switch {
	case s.twice:
		return nil, DuplicateKey
	case s.wrong:
		return nil, FieldType
	case slices.ContainsFunc(s.found, func(f spelling) bool { return f.to == 0 }):
		return nil, MissingField
	}
	for _, f := range s.found {
		s.out = append(s.out, s.spelt[f.from:f.to]...)
	}
	return s.out, ""
}

// ended reports whether nothing stands behind the value.
func (s *scanner) ended() bool {
	_, err := s.dec.ReadToken()
	return err == io.EOF
}

// walk reads one value, which stands where t is.
func (s *scanner) walk(t *tree) error {
	switch {
	case t.field >= 0:
		return s.field(t.field)
	case s.dec.PeekKind() != '{':
		return s.skip() // of another type: what is declared inside is missing
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for s.dec.PeekKind() == '"' {
		if err := s.member(t); err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken() // the closing brace, or what is wrong
	return err
}

// member reads a name and its value.
func (s *scanner) member(t *tree) error {
	name, err := s.dec.ReadValue()
	if err != nil {
		return err
	}
	plain, err := s.unquote(name)
	if err != nil {
		return err
	}
	c := t.child(plain)
	if c == nil {
		return s.skip()
	}
	s.twice = s.twice || s.seen[c.place]
	s.seen[c.place] = true
	return s.walk(c)
}

// unquote is a JSON string as it is meant. It is valid until the next call.
func (s *scanner) unquote(text []byte) (plain []byte, err error) {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1], nil
	}
	s.name, err = jsontext.AppendUnquote(s.name[:0], text)
	return s.name, err
}

// field reads the value of a declared field. Its type comes first, then, for numbers and strings, the length of what follows: so no list
// of values is written like another.
func (s *scanner) field(i int) error {
	kind := s.dec.PeekKind()
	if kind == '{' || kind == '[' {
		s.wrong = true
		return s.skip()
	}
	text, err := s.dec.ReadValue()
	if err != nil || kind == 'n' {
		return err
	}
	begin := len(s.spelt)
	switch kind {
	case 't', 'f':
		s.spelt = append(s.spelt, byte(kind))
	case '"':
		plain, err := s.unquote(text)
		if err != nil {
			return err
		}
		s.spelt = append(binary.BigEndian.AppendUint32(append(s.spelt, 's'), uint32(len(plain))), plain...)
	default:
		s.number(text)
	}
	s.found[i] = spelling{begin, len(s.spelt)}
	return nil
}

func (s *scanner) number(text []byte) {
	begin := len(s.spelt)
	spelt, ok := appendNumber(append(s.spelt, 'n', 0, 0, 0, 0), text)
	s.spelt, s.wrong = spelt, s.wrong || !ok
	binary.BigEndian.PutUint32(spelt[begin+1:], uint32(len(spelt)-begin-5))
}

// skip checks a value and passes over it. It is in memory whole, so that to read it costs less than to count its tokens.
func (s *scanner) skip() error {
	_, err := s.dec.ReadValue()
	return err
}
