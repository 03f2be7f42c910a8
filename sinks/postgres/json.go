package postgres

import (
	"bytes"
	"unicode/utf8"
)

// jsonFault says why PostgreSQL would refuse b as jsonb, by the SQLSTATE that it would give, or is empty. It is exact for syntax,
// encodings and escapes; what depends on the server (the range of numbers, the depth of its stack) the server is asked.
func jsonFault(b []byte) string {
	if f := textFault(b); f != "" {
		return f
	}
	s := jsonScan{b: b}
	if !s.document() && s.fault == "" {
		return invalidText
	}
	return s.fault
}

// SQLSTATEs that can be told without asking the server.
const (
	invalidText    = "22P02" // invalid_text_representation
	untranslatable = "22P05" // untranslatable_character: \u0000
	notInEncoding  = "22021" // character_not_in_repertoire
	outOfTime      = "22008" // datetime_field_overflow
	tooLarge       = "54000" // program_limit_exceeded
)

// textFault is the SQLSTATE with which PostgreSQL would refuse b as text, or empty.
func textFault(b []byte) string {
	if bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b) {
		return notInEncoding
	}
	return ""
}

// jsonScan reads one JSON document (RFC 8259) without recursion: a byte for each open bracket is all that depth costs, and nothing is
// allocated for the first ones.
type jsonScan struct {
	b     []byte
	i     int
	depth int
	outer [64]bool // of the outermost brackets, those that are objects
	inner []bool   // of the others
	fault string   // set where the refusal has another SQLSTATE than invalidText
}

func (s *jsonScan) push(object bool) {
	if s.depth < len(s.outer) {
		s.outer[s.depth] = object
	} else {
		s.inner = append(s.inner[:s.depth-len(s.outer)], object)
	}
	s.depth++
}

// object says whether the innermost bracket is an object's.
func (s *jsonScan) object() bool {
	if at := s.depth - 1; at < len(s.outer) {
		return s.outer[at]
	}
	return s.inner[s.depth-1-len(s.outer)]
}

func (s *jsonScan) document() bool {
	for {
		if !s.value() {
			return false
		}
		done, ok := s.after()
		if !ok || done {
			return ok
		}
	}
}

// value reads a scalar, an empty container, or opens brackets down to the first value inside.
func (s *jsonScan) value() bool {
	for {
		switch c := s.peek(); {
		case c == '"':
			return s.str()
		case c == '{':
			s.i++
			if s.peek() == '}' {
				s.i++
				return true
			}
			s.push(true)
			if !s.key() {
				return false
			}
		case c == '[':
			s.i++
			if s.peek() == ']' {
				s.i++
				return true
			}
			s.push(false)
		default:
			return s.scalar(c)
		}
	}
}

// after reads what may follow a value: the ends of containers and a comma, with the key where one must come. done is true where
// the document has ended.
func (s *jsonScan) after() (done, ok bool) {
	for {
		c := s.peek()
		if s.depth == 0 {
			return true, s.i == len(s.b)
		}
		object := s.object()
		s.i++
		switch {
		case c == ',' && object:
			return false, s.key()
		case c == ',':
			return false, true
		case c == '}' && object, c == ']' && !object:
			s.depth--
		default:
			return false, false
		}
	}
}

func (s *jsonScan) key() bool {
	if s.peek() != '"' || !s.str() || s.peek() != ':' {
		return false
	}
	s.i++
	return true
}

// peek skips white space and returns the next byte, 0 at the end (a zero byte was refused before).
func (s *jsonScan) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *jsonScan) scalar(c byte) bool {
	switch c {
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

func (s *jsonScan) word(w string) bool {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return false
	}
	s.i += len(w)
	return true
}

func (s *jsonScan) number() bool {
	s.take('-')
	if !s.take('0') && s.digits() == 0 {
		return false
	}
	if s.take('.') && s.digits() == 0 {
		return false
	}
	if !s.take('e') && !s.take('E') {
		return true
	}
	if !s.take('+') {
		s.take('-')
	}
	return s.digits() > 0
}

func (s *jsonScan) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *jsonScan) digits() (n int) {
	for rest := s.b[s.i:]; n < len(rest) && rest[n]-'0' <= 9; {
		n++
	}
	s.i += n
	return n
}

// plain marks the bytes that may stand in a string as they are.
var plain = func() (p [256]bool) {
	for c := range p {
		p[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return p
}()

// str reads a string from its opening quote on.
func (s *jsonScan) str() bool {
	for s.i++; ; s.i++ {
		rest := s.b[s.i:]
		n := 0
		for n < len(rest) && plain[rest[n]] {
			n++
		}
		s.i += n
		switch {
		case n == len(rest), rest[n] < 0x20:
			return false
		case rest[n] == '"':
			s.i++
			return true
		case !s.escape():
			return false
		}
	}
}

// escape reads from a backslash to the last byte of the escape.
func (s *jsonScan) escape() bool {
	s.i++
	if s.i >= len(s.b) {
		return false
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		return s.unicode()
	}
	return false
}

// unicode reads \uXXXX from the u on, and the second half of a surrogate pair.
func (s *jsonScan) unicode() bool {
	r, ok := s.hex4()
	switch {
	case !ok, r >= 0xdc00 && r < 0xe000:
		return false
	case r == 0:
		s.fault = untranslatable
		return false
	case r < 0xd800 || r > 0xdfff:
		return true
	}
	if len(s.b)-s.i < 3 || s.b[s.i+1] != '\\' || s.b[s.i+2] != 'u' {
		return false
	}
	s.i += 2
	low, ok := s.hex4()
	return ok && low >= 0xdc00 && low < 0xe000
}

// hex4 reads the four digits behind the byte that is current, and stands on the last one then.
func (s *jsonScan) hex4() (r rune, ok bool) {
	if len(s.b)-s.i < 5 {
		return 0, false
	}
	for _, c := range s.b[s.i+1 : s.i+5] {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return 0, false
		}
		r = r<<4 | rune(unhex(c))
	}
	s.i += 4
	return r, true
}
