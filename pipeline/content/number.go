package content

import (
	"bytes"
	"math"
	"strconv"
)

// appendNumber appends the one spelling of a JSON number's value: its digits without leading and trailing zeros, "e", and the power of ten
// that they are multiplied by; nothing but "0e0" for zero, whatever its sign. It is exact: no digit is rounded away. text is a number by
// RFC 8259. It reports false for an exponent beyond ±2^62; no other number is without a spelling.
func appendNumber(dst, text []byte) ([]byte, bool) {
	mantissa, exponent := text, []byte(nil)
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	begin := len(dst)
	if mantissa[0] == '-' {
		dst, mantissa = append(dst, '-'), mantissa[1:]
	}
	whole, part, _ := bytes.Cut(mantissa, []byte{'.'})
	digits := len(dst)
	dst = append(append(dst, whole...), part...)
	kept := bytes.TrimLeft(dst[digits:], "0")
	if len(kept) == 0 {
		return append(dst[:begin], "0e0"...), true
	}
	dst = dst[:digits+copy(dst[digits:], kept)]
	power := int64(-len(part))
	for dst[len(dst)-1] == '0' {
		dst, power = dst[:len(dst)-1], power+1
	}
	e, ok := parseExponent(exponent)
	if !ok || e > math.MaxInt64/2 || e < math.MinInt64/2 {
		return dst[:begin], false
	}
	return strconv.AppendInt(append(dst, 'e'), e+power, 10), true
}

// parseExponent reads what stands behind the e; nothing is 0.
func parseExponent(text []byte) (e int64, ok bool) {
	negative := false
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		negative, text = text[0] == '-', text[1:]
	}
	for _, c := range text {
		if e > (math.MaxInt64-9)/10 {
			return 0, false
		}
		e = e*10 + int64(c-'0')
	}
	if negative {
		e = -e
	}
	return e, true
}
