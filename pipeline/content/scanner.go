package content

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// scanner finds the declared fields in JSON texts and writes them in their one spelling. It allocates nothing in steady state, and is not for
// concurrent use.
//
// A text is checked whole first, by jsontext, in one call. What walks through it afterwards relies on that: it only has to know where strings,
// objects and arrays end, which costs less than to read all tokens one by one.
type scanner struct {
	root  *tree
	dec   *jsontext.Decoder
	rules []jsontext.Options
	input bytes.Buffer
	text  []byte // known to be valid
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
	s.dec = jsontext.NewDecoder(&s.input)
	s.rules = []jsontext.Options{jsontext.AllowDuplicateNames(true)} // names on a path are watched here; others do not matter
	return s
}

// fields is the encoding of the declared fields of value, or why there is none. It is valid until the next call.
func (s *scanner) fields(value []byte) (encoded []byte, reason string) {
	clear(s.found)
	clear(s.seen)
	s.spelt, s.out, s.twice, s.wrong = s.spelt[:0], s.out[:0], false, false
	if !s.valid(value) {
		return nil, NotJSON
	}
	s.text = value
	s.walk(s.root, s.space(0))
	s.text = nil
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

// valid reports whether value is one JSON text by RFC 8259, in UTF-8, and nothing else.
func (s *scanner) valid(value []byte) bool {
	s.input = *bytes.NewBuffer(value)
	s.dec.Reset(&s.input, s.rules...)
	if _, err := s.dec.ReadValue(); err != nil {
		return false
	}
	_, err := s.dec.ReadToken()
	return err == io.EOF
}

// walk passes over the value at i, which stands where t is, and returns where it ends.
func (s *scanner) walk(t *tree, i int) int {
	switch {
	case t.field >= 0:
		return s.field(t.field, i)
	case s.text[i] != '{':
		return s.end(i) // of another type: what is declared inside is missing
	}
	for i = s.space(i + 1); s.text[i] != '}'; i = s.space(i) {
		if s.text[i] == ',' {
			i = s.space(i + 1)
		}
		i = s.member(t, i)
	}
	return i + 1
}

// member passes over a name and its value.
func (s *scanner) member(t *tree, i int) int {
	behind := s.end(i)
	c := t.child(s.unquote(s.text[i:behind]))
	i = s.space(s.space(behind) + 1) // the colon
	if c == nil {
		return s.end(i)
	}
	s.twice = s.twice || s.seen[c.place]
	s.seen[c.place] = true
	return s.walk(c, i)
}

// space is the first place from i on that holds no white space.
func (s *scanner) space(i int) int {
	for i < len(s.text) && (s.text[i] == ' ' || s.text[i] == '\n' || s.text[i] == '\t' || s.text[i] == '\r') {
		i++
	}
	return i
}

// end is where the value at i ends.
func (s *scanner) end(i int) int {
	switch s.text[i] {
	case '"':
		return s.quote(i)
	case '{', '[':
		return s.nested(i)
	}
	for i < len(s.text) && s.text[i] != ',' && s.text[i] != '}' && s.text[i] != ']' && s.text[i] > ' ' {
		i++
	}
	return i
}

// quote is where the string at i ends: behind the first quote that has no backslash, or an even number of them, in front.
func (s *scanner) quote(i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(s.text[i:], '"')
		slashes := 0
		for s.text[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// nested is where the object or array at i ends.
func (s *scanner) nested(i int) int {
	for depth := 0; ; i++ {
		switch s.text[i] {
		case '"':
			i = s.quote(i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// unquote is a JSON string as it is meant. It is valid until the next call.
func (s *scanner) unquote(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	s.name, _ = jsontext.AppendUnquote(s.name[:0], text) // cannot fail: the text is valid
	return s.name
}

// field reads the value of a declared field. Its type comes first, then, for numbers and strings, the length of what follows: so no list
// of values is written like another.
func (s *scanner) field(n, i int) int {
	behind, begin := s.end(i), len(s.spelt)
	text := s.text[i:behind]
	switch kind := text[0]; kind {
	case 'n':
		return behind
	case '{', '[':
		s.wrong = true
		return behind
	case 't', 'f':
		s.spelt = append(s.spelt, kind)
	case '"':
		plain := s.unquote(text)
		s.spelt = append(binary.BigEndian.AppendUint32(append(s.spelt, 's'), uint32(len(plain))), plain...)
	default:
		s.number(text)
	}
	s.found[n] = spelling{begin, len(s.spelt)}
	return behind
}

func (s *scanner) number(text []byte) {
	begin := len(s.spelt)
	spelt, ok := appendNumber(append(s.spelt, 'n', 0, 0, 0, 0), text)
	s.spelt, s.wrong = spelt, s.wrong || !ok
	binary.BigEndian.PutUint32(spelt[begin+1:], uint32(len(spelt)-begin-5))
}
