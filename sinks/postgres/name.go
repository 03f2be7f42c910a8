package postgres

import (
	"errors"
	"fmt"
	"strings"
)

// name is a table's name as it is stored, not as SQL would fold it. An empty schema stands for the session's current one.
type name struct{ schema, table string }

// maxName is the greatest length of an identifier in bytes; PostgreSQL cuts longer ones silently.
const maxName = 63

// parseName reads table or schema.table. A part in double quotes may hold dots, and a quote as two.
func parseName(s string) (name, error) {
	first, rest, err := cutPart(s)
	if err != nil {
		return name{}, err
	}
	if rest == "" {
		return name{table: first}, nil
	}
	second, rest, err := cutPart(rest[1:])
	if err == nil && rest != "" {
		err = errors.New("more than a schema and a table")
	}
	if err != nil {
		return name{}, fmt.Errorf("%q: %w", s, err)
	}
	return name{first, second}, nil
}

// cutPart takes the part before the next dot; rest is empty or begins with that dot.
func cutPart(s string) (part, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		part, rest, err = cutQuoted(s[1:])
	} else {
		end := strings.IndexByte(s, '.')
		if end < 0 {
			end = len(s)
		}
		part, rest = s[:end], s[end:]
	}
	switch {
	case err != nil:
	case part == "":
		err = errors.New("the name is empty")
	case len(part) > maxName:
		err = fmt.Errorf("%q is longer than the %d bytes of a name", part, maxName)
	case strings.IndexByte(part, 0) >= 0:
		err = fmt.Errorf("%q holds a zero byte", part)
	}
	return part, rest, err
}

func cutQuoted(s string) (part, rest string, err error) {
	var b strings.Builder
	for {
		end := strings.IndexByte(s, '"')
		if end < 0 {
			return "", "", errors.New("a double quote is not closed")
		}
		b.WriteString(s[:end])
		s = s[end+1:]
		if !strings.HasPrefix(s, `"`) {
			break
		}
		b.WriteByte('"')
		s = s[1:]
	}
	if s != "" && s[0] != '.' {
		return "", "", errors.New("a name in quotes is followed by something else than a dot")
	}
	return b.String(), s, nil
}

// String is how messages show the name.
func (n name) String() string {
	if n.schema == "" {
		return n.table
	}
	return n.schema + "." + n.table
}

// sql is the name inside a statement.
func (n name) sql() string {
	if n.schema == "" {
		return quote(n.table)
	}
	return quote(n.schema) + "." + quote(n.table)
}

func quote(identifier string) string { return `"` + strings.ReplaceAll(identifier, `"`, `""`) + `"` }
