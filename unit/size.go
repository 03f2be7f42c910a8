// Package unit holds the scalar types that a configuration is written in: sizes, durations and locations. It is the lowest room,
// so that an implementation's option struct can use them and know nothing of the configuration that reads it.
//
// Every type reads itself (UnmarshalText), writes itself (String, which it reads back to the same value), says in words what it
// takes (Form) and as a regular expression for editors (Pattern).
package unit

import (
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Size is a number of bytes, written 16MiB, 64KB, 1.5GiB or 512B. A bare number is refused, since nobody can tell what it was
// meant in; only 0 needs no unit.
type Size int64

// The multiples that sizes are written in, the largest first, binary ones before decimal ones of their order.
var sizes = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

const sizePattern = `^([0-9]{1,19}(\.[0-9]{1,9})?([KMGT]i?)?B|0)$`

var sizeText = regexp.MustCompile(`^([0-9]{1,19}(?:\.[0-9]{1,9})?)((?:[KMGT]i?)?B)$`)

// ParseSize reads a size.
func ParseSize(s string) (Size, error) {
	if s == "0" {
		return 0, nil
	}
	m := sizeText.FindStringSubmatch(s)
	if m == nil {
		return 0, refusal(s, "not a size")
	}
	n, ok := times(m[1], bytesOf(m[2]))
	if !ok {
		return 0, errors.New("a size is a whole number of bytes below 8EiB")
	}
	return Size(n), nil
}

// refusal says what is wrong with a text that is no size and no duration.
func refusal(s, otherwise string) error {
	if strings.Trim(s, "0123456789.") == "" && s != "" {
		return errors.New("the unit is missing")
	}
	return errors.New(otherwise)
}

func bytesOf(name string) int64 {
	for _, u := range sizes {
		if u.name == name {
			return u.bytes
		}
	}
	return 0
}

// times is number times n, and false where that is no whole number or too large for an int64.
func times(number string, n int64) (int64, bool) {
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt64(n))
	return r.Num().Int64(), r.IsInt() && r.Num().IsInt64()
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// String writes the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizes {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return "0B"
}

// Form says what a size looks like.
func (Size) Form() string { return "a size such as 16MiB or 64KB" }

// Pattern is what a size matches.
func (Size) Pattern() string { return sizePattern }
