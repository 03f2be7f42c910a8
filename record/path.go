package record

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Path is the folder of the partition in every store, "T/P": T is <topic>~<first eight hex digits of the topic id>, P the
// partition's number, with .generation behind it from the second chain on. Two partitions that differ in anything but their
// cluster and the rest of the topic id have different paths.
//
// In the topic every byte outside of [A-Za-z0-9._-] is written %XX, and so is a leading "_", because names that begin with "_"
// are the store's own. The result holds no byte that a file system or an object store treats specially.
func (p Partition) Path() string {
	b := make([]byte, 0, len(p.Topic)+24)
	b = appendEscaped(b, p.Topic)
	b = append(b, '~')
	b = append(b, p.ShortTopicID()...)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(p.Number), 10)
	if p.Generation > 0 {
		b = append(b, '.')
		b = strconv.AppendInt(b, int64(p.Generation), 10)
	}
	return string(b)
}

// ParsePath takes apart what Path made; shortID is what ShortTopicID gives. Anything that Path would have written in another
// way is refused, so that no two names stand for one partition.
func ParsePath(path string) (topic string, shortID string, number, generation int32, err error) {
	t, p, ok := strings.Cut(path, "/")
	escaped, shortID, tilde := cutLast(t, "~")
	if !ok || !tilde || escaped == "" || !isShortID(shortID) {
		return "", "", 0, 0, fmt.Errorf("%q is not <topic>~<id>/<partition>", path)
	}
	if topic, err = unescape(escaped); err != nil {
		return "", "", 0, 0, fmt.Errorf("path %q: %w", path, err)
	}
	n, g, second := strings.Cut(p, ".")
	if number, err = parseNumber(n); err == nil && second {
		if generation, err = parseNumber(g); err == nil && generation == 0 {
			err = fmt.Errorf("generation 0 is not written out")
		}
	}
	if err != nil {
		return "", "", 0, 0, fmt.Errorf("path %q: %w", path, err)
	}
	return topic, shortID, number, generation, nil
}

// OffsetName writes an offset with twenty digits, so that names sort as offsets do. Offsets are never negative; a negative one
// is a fault of the program and panics.
func OffsetName(offset int64) string {
	if offset < 0 {
		panic("record: the offset " + strconv.FormatInt(offset, 10) + " has no name")
	}
	const zeros = "00000000000000000000"
	digits := strconv.FormatInt(offset, 10)
	return zeros[len(digits):] + digits
}

// ParseOffset reads what OffsetName wrote.
func ParseOffset(name string) (int64, error) {
	if len(name) != 20 {
		return 0, fmt.Errorf("%q is not an offset of twenty digits", name)
	}
	var n uint64
	for i := range len(name) {
		if name[i] < '0' || name[i] > '9' {
			return 0, fmt.Errorf("%q is not an offset of twenty digits", name)
		}
		if i > 0 { // the first of twenty digits is 0 for every int64
			n = n*10 + uint64(name[i]-'0')
		}
	}
	if name[0] != '0' || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is beyond the greatest offset", name)
	}
	return int64(n), nil
}

// appendEscaped appends topic as object keys need it.
func appendEscaped(b []byte, topic string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(topic) {
		if c := topic[i]; plain(c) && (c != '_' || i > 0) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}

// plain reports whether c stands for itself in a name.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// unescape undoes appendEscaped and refuses what it never writes.
func unescape(s string) (string, error) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("the escape at byte %d is cut off", i)
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("the escape at byte %d is not two hex digits", i)
		}
		b = append(b, byte(c))
		i += 2
	}
	if topic := string(b); string(appendEscaped(nil, topic)) == s {
		return topic, nil
	}
	return "", fmt.Errorf("the name is not escaped as names are here")
}

// parseNumber reads a decimal int32 without sign or leading zero.
func parseNumber(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != s || n < 0 {
		return 0, fmt.Errorf("%q is not a partition's number or generation", s)
	}
	return int32(n), nil
}

func isShortID(s string) bool {
	return len(s) == 8 && strings.Trim(s, "0123456789abcdef") == ""
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
